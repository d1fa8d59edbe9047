"""Chooses the codec of a page by encoding a sample of its cells with each that may suit it.

The candidates of a type stand in the order in which they are read, the fastest first: a later one has to save space. A
sample is four mini-blocks, spread over the page, so that a choice costs a sixteenth of an encoding for each candidate.
"""

from collections.abc import Sequence

from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector, Vector, concat
from .codec import BLOCK_ROWS, Codec
from .registry import codec_by_name

SAMPLED_BLOCKS = 4

MIN_SAVING = 0.05
"""The share of its size by which another codec must be smaller than one that is read faster."""

MIN_SAVING_OF_TEXT = 0.25
"""The same for strings beside plain ones, which are copied, ten times as fast as others are restored."""

_LEAST_BYTES_OF_TEXT = 8 << 10
"""Shorter strings are plain: to look for their symbols takes longer than anything else."""

_NARROW = ("plain", "run_length", "bitshuffle", "frame_of_reference")
_WIDE = ("plain", "run_length", "frame_of_reference", "bitshuffle")
_REALS = ("plain", "alp", "bitshuffle")
_CANDIDATES = {
    PhysicalType.BOOL: ("run_length",),
    PhysicalType.INT8: _NARROW,
    PhysicalType.INT16: _NARROW,
    PhysicalType.INT32: _WIDE,
    PhysicalType.INT64: _WIDE,
    PhysicalType.INT128: ("bitshuffle",),
    PhysicalType.FLOAT32: _REALS,
    PhysicalType.FLOAT64: _REALS,
    PhysicalType.BYTES: ("plain", "prefix", "fsst"),
}


def candidates_of(physical: PhysicalType) -> list[Codec]:
    """Return the codecs to choose from, that which is read fastest first; for strings those without a dictionary."""
    return [codec_by_name(name) for name in _CANDIDATES[physical]]


def choose(cells: FixedVector | BytesVector, physical: PhysicalType, candidates: Sequence[Codec]) -> Codec:
    """Return the codec for a page of ``cells``: the only one, or one of `candidates_of` their type."""
    if len(candidates) == 1:
        return candidates[0]
    is_text = physical is PhysicalType.BYTES
    if is_text and _plain_bytes(cells) < _LEAST_BYTES_OF_TEXT:
        return candidates[0]
    sample = _sample(cells)
    best, best_size = candidates[0], _plain_bytes(sample)
    for codec in candidates[1:]:
        size = len(codec.encode(sample, physical))
        saving = MIN_SAVING_OF_TEXT if is_text and best is candidates[0] else MIN_SAVING
        if size < best_size * (1 - saving):
            best, best_size = codec, size
    return best


def _plain_bytes(cells: Vector) -> int:
    if isinstance(cells, FixedVector):
        return cells.values.nbytes
    assert isinstance(cells, BytesVector), "strings with codes are stored as these"
    return cells.data_bytes + 4 * len(cells)


def _sample(cells: FixedVector | BytesVector) -> Vector:
    """Return whole mini-blocks from all over the page; all of it if it is short."""
    blocks = len(cells) // BLOCK_ROWS
    if blocks <= SAMPLED_BLOCKS:
        return cells
    starts = [BLOCK_ROWS * (number * (blocks - 1) // (SAMPLED_BLOCKS - 1)) for number in range(SAMPLED_BLOCKS)]
    return concat([cells.slice(start, start + BLOCK_ROWS) for start in starts])

"""Chooses the codec of a page by encoding a sample of its cells with each that may suit it.

The first candidate of a type is the one that is read fastest, row by row and in full; another one has to save space. A
sample is four mini-blocks, spread over the page, so that a choice costs a sixteenth of an encoding for each candidate.
"""

from collections.abc import Sequence

from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector, Vector, concat
from .codec import BLOCK_ROWS, Codec
from .registry import codec_by_name

SAMPLED_BLOCKS = 4

MIN_SAVING = 0.05
"""The share of its size by which another codec must be smaller than the one that is read faster."""

MIN_SAVING_OF_TEXT = 0.25
"""The same for strings: plain ones are copied, ten times as fast as others are restored."""

_NARROW = ("bitshuffle", "frame_of_reference", "run_length")
_WIDE = ("frame_of_reference", "bitshuffle", "run_length")
_REALS = ("alp", "bitshuffle")
_CANDIDATES = {
    PhysicalType.BOOL: ("run_length",),
    PhysicalType.INT8: _NARROW,
    PhysicalType.INT16: _NARROW,
    PhysicalType.INT32: _WIDE,
    PhysicalType.INT64: _WIDE,
    PhysicalType.INT128: ("bitshuffle",),
    PhysicalType.FLOAT32: _REALS,
    PhysicalType.FLOAT64: _REALS,
    PhysicalType.BYTES: ("plain", "fsst", "prefix"),
}


def candidates_of(physical: PhysicalType) -> list[Codec]:
    """Return the codecs to choose from, the preferred one first; for strings those without a dictionary."""
    return [codec_by_name(name) for name in _CANDIDATES[physical]]


def choose(cells: FixedVector | BytesVector, physical: PhysicalType, candidates: Sequence[Codec]) -> Codec:
    """Return the codec for a page of ``cells``, one of ``candidates``, the preferred one first."""
    if len(candidates) == 1:
        return candidates[0]
    sample = _sample(cells)
    saving = MIN_SAVING_OF_TEXT if physical is PhysicalType.BYTES else MIN_SAVING
    best, best_size = candidates[0], len(candidates[0].encode(sample, physical)) * (1 - saving)
    for codec in candidates[1:]:
        size = len(codec.encode(sample, physical))
        if size < best_size:
            best, best_size = codec, size
    return best


def _sample(cells: FixedVector | BytesVector) -> Vector:
    """Return whole mini-blocks from all over the page; all of it if it is short."""
    blocks = len(cells) // BLOCK_ROWS
    if blocks <= SAMPLED_BLOCKS:
        return cells
    starts = [BLOCK_ROWS * (number * (blocks - 1) // (SAMPLED_BLOCKS - 1)) for number in range(SAMPLED_BLOCKS)]
    return concat([cells.slice(start, start + BLOCK_ROWS) for start in starts])

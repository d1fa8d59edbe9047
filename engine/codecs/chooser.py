"""Chooses the codec of a page of numbers by encoding a sample of its cells with each that may suit it.

The first candidate of a type is the one that is read fastest, row by row and in full; another one has to save space. A
sample is four mini-blocks, spread over the page, so that a choice costs a sixteenth of an encoding for each candidate.
"""

from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, concat
from .codec import BLOCK_ROWS, Codec
from .registry import codec_by_name

SAMPLED_BLOCKS = 4

MIN_SAVING = 0.05
"""The share of its size by which another codec must be smaller than the one that is read faster."""

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
}


def candidates_of(physical: PhysicalType) -> list[Codec]:
    """Return the codecs to choose from, the preferred one first. Raises KeyError for byte strings."""
    return [codec_by_name(name) for name in _CANDIDATES[physical]]


def choose(cells: FixedVector, physical: PhysicalType) -> Codec:
    """Return the codec for a page of ``cells``."""
    candidates = candidates_of(physical)
    if len(candidates) == 1:
        return candidates[0]
    sample = _sample(cells)
    best, best_size = candidates[0], len(candidates[0].encode(sample, physical))
    for codec in candidates[1:]:
        size = len(codec.encode(sample, physical))
        if size < best_size * (1 - MIN_SAVING):
            best, best_size = codec, size
    return best


def _sample(cells: FixedVector) -> FixedVector:
    """Return whole mini-blocks from all over the page; all of it if it is short."""
    blocks = len(cells) // BLOCK_ROWS
    if blocks <= SAMPLED_BLOCKS:
        return cells
    starts = [BLOCK_ROWS * (number * (blocks - 1) // (SAMPLED_BLOCKS - 1)) for number in range(SAMPLED_BLOCKS)]
    sample = concat([cells.slice(start, start + BLOCK_ROWS) for start in starts])
    assert isinstance(sample, FixedVector)
    return sample

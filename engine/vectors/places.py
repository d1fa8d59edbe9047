"""Places: rows of several vectors in one array, as merges produce and copies take them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Rows of several vectors: the low ``place_bits`` of each word (uint64) are the number of a vector << ``row_bits``
    | a row of it.

    The higher bits are not part of the place: merges leave bits of the keys there, for sorting.
    """

    words: np.ndarray
    row_bits: int
    place_bits: int

    def __len__(self) -> int:
        return len(self.words)


def bits_for(lengths: Sequence[int]) -> tuple[int, int]:
    """Return how many bits the rows, and how many the places, of vectors of the given lengths need."""
    row_bits = (max(lengths, default=1) - 1).bit_length()
    return row_bits, row_bits + (len(lengths) - 1).bit_length()

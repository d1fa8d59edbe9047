"""Finds keys in the rows of a base file, which are in key order: the mini-block first, then the row within it.

The first key of each mini-block is in memory, so one binary search finds the only mini-block that can have a key. The
mini-blocks that a batch needs are decoded some hundreds at a time and searched in place.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..codecs.codec import BLOCK_ROWS
from ..vectors.keys.key_search import last_at_or_before, rows_of
from ..vectors.keys.keys import KeyVector, take_keys

_BLOCKS_AT_ONCE = 256
_DENSE = 1 / 2
"""A range of mini-blocks is decoded as a whole if at least this share of it is needed."""


class SortedRows(Protocol):
    """The keys of some rows, as of a base file in key order."""

    def __len__(self) -> int: ...

    def keys_at(self, rows: np.ndarray) -> KeyVector:
        """Return the keys of ``rows``."""
        ...

    def keys_in(self, first: int, last: int) -> KeyVector:
        """Return the keys of rows [first, last)."""
        ...


def search(rows: SortedRows, first_keys: KeyVector, keys: KeyVector) -> np.ndarray:
    """Return the row number (int64) of each key in a base file, -1 if it is absent.

    ``first_keys`` are those of rows 0, 1,024, 2,048 and so on.
    """
    found = np.full(len(keys), -1, np.int64)
    blocks = last_at_or_before(first_keys, keys)
    if len(keys) == 1:
        if blocks[0] >= 0:
            found[:] = _in_blocks(rows, blocks, blocks, keys)
        return found
    order = np.argsort(blocks, kind="stable")
    order = order[np.searchsorted(blocks[order], 0) :]  # without those before the first key
    wanted, starts = np.unique(blocks[order], return_index=True)
    for first in range(0, len(wanted), _BLOCKS_AT_ONCE):
        last = first + _BLOCKS_AT_ONCE
        part = order[starts[first] : starts[last] if last < len(wanted) else len(order)]
        found[part] = _in_blocks(rows, wanted[first:last], blocks[part], take_keys(keys, part))
    return found


def _in_blocks(rows: SortedRows, wanted: np.ndarray, blocks: np.ndarray, keys: KeyVector) -> np.ndarray:
    """Return the row number of each key, which is in mini-block ``blocks[i]`` or absent; ``wanted`` are all these."""
    low, high = int(wanted[0]), int(wanted[-1]) + 1
    if len(wanted) >= (high - low) * _DENSE:
        first = low * BLOCK_ROWS
        stored = rows.keys_in(first, min(high * BLOCK_ROWS, len(rows)))
        firsts = (blocks - low) * BLOCK_ROWS
        shift: np.ndarray | int = first
    else:
        numbers = (wanted[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(-1)
        stored = rows.keys_at(numbers[: np.searchsorted(numbers, len(rows))])
        firsts = np.searchsorted(wanted, blocks) * BLOCK_ROWS
        shift = blocks * BLOCK_ROWS - firsts
    places = rows_of(stored, firsts, np.minimum(firsts + BLOCK_ROWS, len(stored)), keys)
    return np.where(places < 0, -1, places + shift)

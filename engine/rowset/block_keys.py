"""The encoded keys of single mini-blocks, kept in the page cache: ranges of keys begin and end in the same ones again
and again."""

from __future__ import annotations

from ..cfile.reader import CFileReader
from ..codecs.codec import BLOCK_ROWS
from ..vectors.keys.keys import KeyVector, U64Keys, lower_bound
from .key_search import SortedRows

_KEYS = -3
"""Ends the address of a block's keys in the page cache."""
_BYTES_MAX = 128 << 10
"""Longer keys are not kept: as pages they take far less, for keys that lie side by side begin alike."""


class _BlockKeys:
    __slots__ = ("keys", "nbytes")

    def __init__(self, keys: KeyVector) -> None:
        self.keys = keys
        self.nbytes = keys.values.nbytes if isinstance(keys, U64Keys) else keys.offsets.nbytes + keys.data.nbytes


def place_in_block(rows: SortedRows, block: int, bound: bytes, file: CFileReader) -> int:
    """Return the first row of a mini-block of a base ``file`` whose key is at or above ``bound``, else the end of the
    block. ``rows`` are those of the file.

    Raises:
        StoreError: the file is damaged.
    """
    address = file.file_id, block, _KEYS
    first = block * BLOCK_ROWS
    (entry,) = file.pages.get_many([address])
    if entry is None:
        entry = _BlockKeys(rows.keys_in(first, min(first + BLOCK_ROWS, len(rows))))
        if entry.nbytes <= _BYTES_MAX:
            file.pages.put(address, entry)
    return first + lower_bound(entry.keys, bound)

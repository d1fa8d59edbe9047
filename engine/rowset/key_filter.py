"""The Bloom filter of a DiskRowSet's keys: rules out most absent keys without a search.

11 bits a key leave about 1 % false positives. The filter is a stream of the base file, (0, "key_filter"): four int64 a
block, plain, so that its pages are used in place in the page cache. `RowsetMetadata.key_filter` identifies its hash and
layout; an unknown one is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..cfile.format import StreamKey
from ..cfile.stream import StreamReader
from ..codecs.codec import PAGE_ROWS
from ..delta import LIVE
from ..kernels.keys import bloom as kernels
from ..vectors.memory.memory import address_of, allocate, allocate_zeroed
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector

KEY_FILTER = StreamKey(LIVE, "key_filter")
SPLIT_BLOCK = 1
"""`RowsetMetadata.key_filter`: a split-block Bloom filter (`kernels.bloom`) of `kernels.hashing`."""
BITS_A_KEY = 11
WORDS_A_BLOCK = kernels.BLOCK_BYTES // 8
_FEW_HASHES = 32


def block_count(key_count: int) -> int:
    """Return the number of blocks of a rowset's Bloom filter for ``key_count`` keys."""
    return max(1, -(-key_count * BITS_A_KEY // (8 * kernels.BLOCK_BYTES)))


def filter_cells(hashes: Sequence[np.ndarray]) -> FixedVector:
    """Return the Bloom filter of a rowset's keys, given their hashes in any number of arrays, as cells of its
    stream."""
    count = block_count(sum(len(run) for run in hashes))
    words = allocate_zeroed(count * WORDS_A_BLOCK, np.int64)
    for run in hashes:
        kernels.add_to_filter(address_of(words), count, address_of(run), len(run))
    return FixedVector(words)


def is_whole(stream: StreamReader) -> bool:
    """Return whether a stream may be a filter: words in whole blocks."""
    words = stream.row_count
    return stream.physical is PhysicalType.INT64 and words > 0 and words % WORDS_A_BLOCK == 0


class KeyFilter:
    """The Bloom filter of a rowset's keys, in its open base file. Thread safe."""

    def __init__(self, stream: StreamReader) -> None:
        """Take over a stream whose rows are whole blocks."""
        self._stream = stream
        self._block_count = stream.row_count // WORDS_A_BLOCK
        self._page_shift = (stream.page_rows // WORDS_A_BLOCK).bit_length() - 1

    def may_hold(self, hashes: np.ndarray) -> np.ndarray:
        """Return for each hash (uint64) whether its key may be in the rowset; False is certain.

        Raises CorruptionError or UnreadableFileError if the filter cannot be read.
        """
        result = allocate(len(hashes), np.bool_)
        pages = {number: _words(self._stream, number) for number in self._pages_of(hashes)}
        addresses = np.zeros(self._stream.page_count, np.int64)
        addresses[list(pages)] = [address_of(page) for page in pages.values()]
        where = address_of(addresses), self._page_shift, self._block_count
        kernels.probe_filter(*where, address_of(hashes), len(hashes), address_of(result))
        return result

    def _pages_of(self, hashes: np.ndarray) -> Iterable[int]:
        """Return the pages with the blocks of some hashes; all pages for many hashes."""
        if len(hashes) > _FEW_HASHES:
            return range(self._stream.page_count)
        half = np.uint64(32)
        blocks = (hashes >> half) * np.uint64(self._block_count) >> half  # as the kernel does
        return set((blocks >> np.uint64(self._page_shift)).tolist())


def _words(stream: StreamReader, number: int) -> np.ndarray:
    """Return the words of a page of the stream, in place if possible, else a copy."""
    page = stream.page(number)
    if page.codec.name == "plain" and not page.is_all_null:
        return page.stored
    first = number * stream.page_rows
    cells = stream.read(first, min(first + stream.page_rows, stream.row_count))
    assert isinstance(cells, FixedVector), "checked when the rowset was opened"
    return cells.values


assert PAGE_ROWS % WORDS_A_BLOCK == 0, "no block lies across two pages"

"""PageOutline: all that stays of a page that left the page cache, so that one row of it can be read again without the
rest.

A page has one checksum, so its first reading takes all of it. A reader that wants one row notes a checksum of each
block of 2 KiB, in 1/512 of the page's memory. The next reading takes only the blocks with the row: the codec names them
(`Codec.ranges_of_row`). The codec has checked the same bytes before.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
from xxhash import xxh3_64_intdigest

from ..vectors.memory.memory import allocate
from ..vectors.physical import PhysicalType
from .format import PAGE_HEADER_BYTES
from .page import FileImage, Page

BLOCK_BYTES = 2048
"""Blocks begin at multiples of it in the file, as those of the disk do."""
_BITS = 0xFFFFFFFF
"""Of a checksum are kept; the page's own has as many."""
_OUTLINE_BYTES = 800
"""What the interpreter takes for an outline."""


class PageOutline:
    """A page of a file that was read and checked, without its cells. Thread safe."""

    __slots__ = ("_bitmap", "_page", "_payload", "readings")

    def __init__(self, page: Page) -> None:
        """``page`` is as stored, uncompressed, and its codec has checked it."""
        self.readings = 0
        """Rows that were read by it; approximate."""
        self._page = page.without_cells()
        start = page.offset + PAGE_HEADER_BYTES
        self._payload = _CheckedBytes(start, page.stored)
        self._bitmap = None if page.bitmap is None else _CheckedBytes(start + len(page.stored), page.bitmap)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return _OUTLINE_BYTES + self._payload.checksums.itemsize * self.blocks

    @property
    def blocks(self) -> int:
        """The number of its blocks."""
        return len(self._payload.checksums) + (len(self._bitmap.checksums) if self._bitmap else 0)

    def page_with(self, row: int, image: FileImage, physical: PhysicalType) -> Page | None:
        """Read what a kernel needs to read ``row``, counted from the page's first; return a page in which nothing else
        is. None if the file does not hold what it did.

        Raises UnreadableFileError and CorruptionError as ``FileImage.read``.
        """
        header, codec = self._page.header, self._page.codec
        payload = _Filling(self._payload, image)
        for first, last in codec.ranges_of_row(payload.data, physical, header.row_count, row):
            if not payload.fill(first, last):
                return None
        bitmap = None
        if self._bitmap is not None:
            bitmap = _Filling(self._bitmap, image)
            if not bitmap.fill(row >> 3, (row >> 3) + 1):
                return None
        size = payload.size + (bitmap.size if bitmap else 0)
        return self._page.with_cells(payload.data, bitmap.data if bitmap else None, size)


class _CheckedBytes:
    """Bytes of a file, with a checksum for each block."""

    __slots__ = ("_lead", "checksums", "length", "start")

    def __init__(self, start: int, data: np.ndarray) -> None:
        self.start, self.length = start, len(data)
        self._lead = start % BLOCK_BYTES
        """Bytes of the first block that lie before."""
        view = data.data
        places = [0, *range(BLOCK_BYTES - self._lead, len(data), BLOCK_BYTES), len(data)]
        self.checksums = array("I", [xxh3_64_intdigest(view[a:b]) & _BITS for a, b in pairwise(places)])

    def block_of(self, place: int) -> int:
        """Return the number of the block that a byte is in."""
        return (self._lead + place) // BLOCK_BYTES

    def place_of(self, block: int) -> int:
        """Return the first byte of a block; of the one after the last, the length."""
        return min(max(block * BLOCK_BYTES - self._lead, 0), self.length)

    def holds(self, block: int, data: memoryview) -> bool:
        """Return whether a block is what it was."""
        return xxh3_64_intdigest(data) & _BITS == self.checksums[block]


class _Filling:
    """Memory for a region, of which only some blocks are read."""

    __slots__ = ("_image", "_present", "_region", "_view", "data", "size")

    def __init__(self, region: _CheckedBytes, image: FileImage) -> None:
        self.data = allocate(region.length, np.uint8)
        self.size = 0
        """Bytes that were read."""
        self._view = self.data.data
        self._region, self._image = region, image
        self._present: set[int] = set()

    def fill(self, first: int, last: int) -> bool:
        """Read the blocks with bytes [first, last) from the first to the last that is not there, in one go; return
        whether they are what they were."""
        if first >= last:
            return True
        region, present = self._region, self._present
        blocks = range(region.block_of(first), region.block_of(last - 1) + 1)
        if present:
            missing = [block for block in blocks if block not in present]
            if not missing:
                return True
            blocks = range(missing[0], missing[-1] + 1)
        start, end = region.place_of(blocks[0]), region.place_of(blocks[-1] + 1)
        view = self._view
        self._image.read_to(region.start + start, view[start:end])
        self.size += end - start
        present.update(blocks)
        if len(blocks) == 1:
            return region.holds(blocks[0], view[start:end])
        return all(region.holds(block, view[region.place_of(block) : region.place_of(block + 1)]) for block in blocks)

"""Cuts a stream of vectors into pages: of 65,536 rows, or a smaller power of two, so that a shift finds the page of a
row; and of fewer rows if long cells would take too much memory at once.
"""

from collections.abc import Iterator

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ..codecs.codec import PAGE_ROWS
from ..vectors.vector import BytesVector, DictionaryVector, Vector, concat
from .format import MAX_PAGE_BYTES

TARGET_PAGE_BYTES = 64 * 1024 * 1024
"""The most bytes of cells in a page, unless it is one cell."""


def cell_bytes(vector: Vector) -> int:
    """Return the bytes of the cells of ``vector``, by which pages are cut: without offsets and as if it had no
    dictionary."""
    if isinstance(vector, BytesVector):
        return vector.data_bytes
    if isinstance(vector, DictionaryVector):
        if len(vector.dictionary) == 0:
            return 0
        return int(vector.dictionary.lengths[vector.codes].sum(dtype=np.int64))
    return vector.values.nbytes


class PageCutter:
    """Cuts the vectors of one stream of a cfile into pages.

    A page ends at ``page_rows`` rows, or before the cell that would exceed ``TARGET_PAGE_BYTES``, or a little earlier:
    rows are halved until they fit, so that pages of long cells begin where mini-blocks do. Holds the cells of an
    incomplete page.
    """

    def __init__(self, page_rows: int = PAGE_ROWS) -> None:
        self._page_rows = page_rows
        self._pending: list[Vector] = []
        self._pending_rows = self._pending_bytes = 0

    def add(self, vector: Vector) -> Iterator[Vector]:
        """Yield the pages that ``vector`` completes; iterate to the end.

        Raises InvalidArgumentError if one cell takes more than ``MAX_PAGE_BYTES``.
        """
        first = 0
        while first < len(vector):
            piece, size, is_last = self._piece(vector, first)
            if len(piece):
                self._pending.append(piece)
                self._pending_rows += len(piece)
                self._pending_bytes += size
                first += len(piece)
            if is_last:
                yield self._page()

    def narrow(self, page_rows: int) -> None:
        """Let pages have fewer rows from now on. No row is pending."""
        self._page_rows = page_rows

    def may_skip(self) -> bool:
        """Whether a page may be copied instead: no row is pending."""
        return not self._pending

    def rest(self) -> Iterator[Vector]:
        """Yield the last, incomplete page, if any."""
        if self._pending:
            yield self._page()

    def _piece(self, vector: Vector, first: int) -> tuple[Vector, int, bool]:
        """Return the cells from ``first`` on that fit in the page, their bytes, and whether the page ends there."""
        last = min(len(vector), first + self._page_rows - self._pending_rows)
        is_last = last == first + self._page_rows - self._pending_rows
        while True:
            piece = vector.slice(first, last)
            size = cell_bytes(piece)
            if self._pending_bytes + size <= TARGET_PAGE_BYTES:
                return piece, size, is_last
            if last - first == 1:
                return self._long_cell(piece, size)
            last, is_last = first + (last - first) // 2, True

    def _long_cell(self, cell: Vector, size: int) -> tuple[Vector, int, bool]:
        if self._pending:
            return cell.slice(0, 0), 0, True
        if size > MAX_PAGE_BYTES:
            raise InvalidArgumentError(f"a cell takes {size} bytes; a page holds at most {MAX_PAGE_BYTES}")
        return cell, size, True

    def _page(self) -> Vector:
        page = concat(self._pending)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        return page

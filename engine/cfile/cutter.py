"""Cut a stream of vectors into pages: every page but the last has the same number of rows.

That number is 65,536 for all but streams of very long cells. It is fixed when the first page's worth of rows has
been seen, so that a reader finds a row's page by a shift.
"""

from collections.abc import Iterator

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ..codecs.codec import PAGE_ROWS
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, Vector, concat
from .format import MAX_PAGE_BYTES

TARGET_PAGE_BYTES = 64 * 1024 * 1024
"""What a page of long cells should stay under, on average."""
MIN_PAGE_ROWS = 1024


def cell_bytes(vector: Vector) -> int:
    """Return the bytes of the cells of ``vector``, without offsets and with no use made of a dictionary."""
    if isinstance(vector, BytesVector):
        return vector.data_bytes
    if isinstance(vector, DictionaryVector):
        if len(vector.dictionary) == 0:
            return 0
        return int(vector.dictionary.lengths[vector.codes].sum(dtype=np.int64))
    return vector.values.nbytes


class PageCutter:
    """Takes the vectors of one stream as they come and gives back its pages.

    Holds what is not yet a page. Pages have ``PAGE_ROWS`` rows but for streams of long cells: of these it looks at the
    first 65,536 rows or 64 MiB, whichever end first, and takes the largest power of two between 1,024 and 65,536 with
    which a page of cells of their average size stays under ``TARGET_PAGE_BYTES``.
    """

    def __init__(self, physical: PhysicalType) -> None:
        self.page_rows = PAGE_ROWS
        """Rows of every page but the last; final once a page was given back or ``rest`` was called."""
        self._is_chosen = physical is not PhysicalType.BYTES
        self._head: list[Vector] = []
        self._head_rows = self._head_bytes = 0
        self._pending: list[Vector] = []
        self._pending_rows = self._pending_bytes = 0

    def add(self, vector: Vector) -> Iterator[Vector]:
        """Yield the pages that ``vector`` completes; run it to its end.

        Raises InvalidArgumentError when the cells of one page take more than ``MAX_PAGE_BYTES``.
        """
        if self._is_chosen:
            yield from self._cut(vector)
            return
        self._head.append(vector)
        self._head_rows += len(vector)
        self._head_bytes += cell_bytes(vector)
        if self._head_rows >= PAGE_ROWS or self._head_bytes >= TARGET_PAGE_BYTES:
            yield from self._choose()

    def may_skip(self, page_bytes: int) -> bool:
        """Whether a page of ``PAGE_ROWS`` rows and about ``page_bytes`` may come from elsewhere: no row is pending."""
        is_between = not (self._pending or self._head) and self.page_rows == PAGE_ROWS
        return is_between and page_bytes <= TARGET_PAGE_BYTES

    def skip_page(self) -> None:
        """A page of ``PAGE_ROWS`` rows came from elsewhere."""
        self._is_chosen = True

    def rest(self) -> Iterator[Vector]:
        """Yield the pages that are left when nothing more comes; the last of them may be short."""
        if not self._is_chosen:
            yield from self._choose()
        if self._pending:
            yield self._page()

    def _choose(self) -> Iterator[Vector]:
        while (
            self.page_rows > MIN_PAGE_ROWS and self.page_rows * self._head_bytes > TARGET_PAGE_BYTES * self._head_rows
        ):
            self.page_rows //= 2
        self._is_chosen = True
        head, self._head = self._head, []
        for vector in head:
            yield from self._cut(vector)

    def _cut(self, vector: Vector) -> Iterator[Vector]:
        first = 0
        while first < len(vector):
            last = min(len(vector), first + self.page_rows - self._pending_rows)
            piece = vector.slice(first, last)
            first = last
            self._pending.append(piece)
            self._pending_rows += len(piece)
            self._pending_bytes += cell_bytes(piece)
            if self._pending_bytes > MAX_PAGE_BYTES:
                raise InvalidArgumentError(
                    f"{self._pending_rows} cells take {self._pending_bytes} bytes; a page holds {MAX_PAGE_BYTES}"
                )
            if self._pending_rows == self.page_rows:
                yield self._page()

    def _page(self) -> Vector:
        page = concat(self._pending)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        return page

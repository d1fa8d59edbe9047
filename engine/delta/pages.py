"""The deltas of one column in a file, page by page, as a snapshot reads them.

Zone maps say which pages have the requested rows, and whether a snapshot sees all, some or none of their deltas. A
page is decoded once and kept in the page cache, for the other chunks of the scan and for later scans; its timestamps
are decoded only if visibility depends on them.
"""

from __future__ import annotations

from bisect import bisect_left
from weakref import ReferenceType, ref

import numpy as np

from ...schemas.errors import CorruptionError
from ..cfile.cache import FilePages
from ..cfile.stream import StreamReader
from ..codecs.codec import PAGE_ROWS
from ..kernels.reads.point_read import last_entries
from ..vectors.memory.memory import address_of, allocate
from ..vectors.vector import FixedVector, Vector
from .cells import DeltaCells
from .patch import Patch, RowPlaces
from .sorted_rows import SortedDeltas

_GATHER_BELOW = 1 / 8
"""Cells are fetched one by one if less than this share of a range is needed."""

_KEPT_CELL_BYTES = 4 << 20
"""Larger cells of a page are fetched when needed, and not kept."""

_OFTEN = 16
"""Reads of single rows of a page until its cells are kept."""

_PLACES = np.arange(PAGE_ROWS, dtype=np.int32)


class DeltaPage:
    """A decoded page of deltas: their rows, and their cells once they are read."""

    __slots__ = ("cells", "first", "last", "nbytes", "reads", "rows", "whole")

    def __init__(self, rows: SortedDeltas, first: int, cell_bytes: int) -> None:
        count = rows.all.count
        self.rows, self.first, self.last = rows, first, first + count
        self.cells: DeltaCells | None = None
        self.whole: Patch | None = None
        """The patch for a snapshot that sees the whole page, once its cells are kept."""
        self.reads = 0
        """Reads of single rows; approximate."""
        self.nbytes = count * (4 + 8 + 8) + cell_bytes
        """Including everything computed later: timestamps, cells, and the last delta of each row."""


class DeltaPages:
    """The deltas of one column in a file. Thread safe."""

    def __init__(
        self,
        path: str,
        address: tuple[int, int],
        streams: tuple[StreamReader, StreamReader, StreamReader],
        cache: FilePages,
    ) -> None:
        """``address`` is (file id, column id); ``streams`` are those of rows, timestamps and cells."""
        self._path, self._address, self._cache = path, address, cache
        self._rowids, self._timestamps, self._cells = streams
        rows, times = self._rowids.zone_maps, self._timestamps.zone_maps
        if not len(rows) == len(times) == self._rowids.page_count or self._rowids.page_rows != PAGE_ROWS:
            raise CorruptionError(path, 0, f"the pages of deltas of column {address[1]} have no bounds")
        self._first_rows, self._last_rows = [_bound(zone.min) for zone in rows], [_bound(zone.max) for zone in rows]
        self._bounds = [(_bound(zone.min), _bound(zone.max)) for zone in times]
        self._cell_bytes = self._cells.raw_bytes // max(self._cells.row_count, 1) + 4
        self._only: ReferenceType[Patch] | None = None
        """The patch for a snapshot that sees all of the only page, as long as the page cache keeps it."""

    @property
    def last_change(self) -> int:
        """The timestamp of the newest delta."""
        return max(newest for _, newest in self._bounds)

    def redo(self, first_row: int, last_row: int, snapshot: int, is_scan: bool = True) -> list[Patch]:
        """Return what ``snapshot`` sees of rows [first_row, last_row) through the file as REDO; later patches win.

        A scan reads all cells, so they are kept; other readers get only their own.
        """
        if self._only and self._bounds[0][1] <= snapshot and (patch := self._only()):
            # A fast path for a file with a single page, which all chunks share: it is read as often as a large file.
            return [patch] if self._first_rows[0] < last_row and first_row <= self._last_rows[0] else []
        patches: list[Patch] = []
        for number in self._span(first_row, last_row):
            if not self._has_last(number, snapshot):
                continue
            page = self._page(number)
            if page.whole and self._bounds[number][1] <= snapshot:
                patches.append(page.whole)
            elif rows := page.rows.redo(first_row, last_row, snapshot):
                patches.append(self._patch(page, rows, first_row, last_row, is_scan))
        return patches

    def newest_of(self, rows: np.ndarray, snapshot: int) -> list[tuple[np.ndarray, Vector]]:
        """Return what ``snapshot`` sees through the file as REDO, page by page: the place (int64) of the cell of each
        of ``rows`` (int64, ascending), -1 for none, and the cells; later pages win."""
        found: list[tuple[np.ndarray, Vector]] = []
        for number in self._span(int(rows[0]), int(rows[-1]) + 1):
            if not self._has_last(number, snapshot):
                continue
            page = self._page(number)
            deltas = page.rows
            places = allocate(len(rows), np.int64)
            is_seen = self._bounds[number][1] <= snapshot
            stamps = 0 if is_seen else address_of(deltas.timestamps)
            where = deltas.all.rows_at, deltas.all.count, stamps
            if last_entries(*where, snapshot, address_of(rows), len(rows), address_of(places)):
                found.append(self._cells_of(page, places))
        return found

    def _cells_of(self, page: DeltaPage, places: np.ndarray) -> tuple[np.ndarray, Vector]:
        """Return places in cells that are read now, and kept once a page is read often, for places in the page."""
        page.reads += 1
        is_small = (page.last - page.first) * self._cell_bytes <= _KEPT_CELL_BYTES
        if page.cells is None and is_small and page.reads >= _OFTEN:
            page.cells = DeltaCells(self._cells.read(page.first, page.last))
        if page.cells is not None:
            return places, page.cells.values
        has_one = places >= 0
        vector = self._cells.gather(places[has_one] + page.first)
        places[has_one] = np.arange(len(vector))
        return places, vector

    def undo(self, first_row: int, last_row: int, snapshot: int, is_scan: bool = True) -> list[Patch]:
        """Return what ``snapshot`` sees of rows [first_row, last_row) through the file as UNDO; later patches win."""
        patches: list[Patch] = []
        for number in reversed(self._span(first_row, last_row)):
            if not self._has_first(number, snapshot):
                continue
            page = self._page(number)
            if rows := page.rows.undo(first_row, last_row, snapshot):
                patches.append(self._patch(page, rows, first_row, last_row, is_scan))
        return patches

    def _span(self, first_row: int, last_row: int) -> range:
        """Return the pages that may hold deltas of rows [first_row, last_row)."""
        return range(bisect_left(self._last_rows, first_row), bisect_left(self._first_rows, last_row))

    def _has_last(self, page: int, snapshot: int) -> bool:
        """Whether a page may hold the last delta up to ``snapshot`` of a row.

        Not if all of it is later, or if it has a single row and the next page continues that row visibly.
        """
        if self._bounds[page][0] > snapshot:
            return False
        row = self._last_rows[page]
        if page + 1 == len(self._bounds) or self._first_rows[page] != row or self._first_rows[page + 1] != row:
            return True
        oldest, newest = self._bounds[page + 1]
        is_all_of_the_row = self._last_rows[page + 1] == row
        return not (newest <= snapshot or (is_all_of_the_row and oldest <= snapshot))

    def _has_first(self, page: int, snapshot: int) -> bool:
        """Whether a page may hold the first delta after ``snapshot`` of a row.

        Not if none of it is later, or if it has a single row and the page before has a later delta of that row.
        """
        if self._bounds[page][1] <= snapshot:
            return False
        row = self._first_rows[page]
        if page == 0 or self._last_rows[page] != row or self._last_rows[page - 1] != row:
            return True
        oldest, newest = self._bounds[page - 1]
        is_all_of_the_row = self._first_rows[page - 1] == row
        return not (oldest > snapshot or (is_all_of_the_row and newest > snapshot))

    def _page(self, number: int) -> DeltaPage:
        return self._cache.get((*self._address, number), lambda: self._load(number))

    def _load(self, number: int) -> DeltaPage:
        first = number * PAGE_ROWS
        rowids = values_of(self._rowids, first, min(first + PAGE_ROWS, self._rowids.row_count))
        last = first + len(rowids)
        if rowids[0] < 0 or (rowids[1:] < rowids[:-1]).any():
            raise CorruptionError(self._path, 0, f"the deltas of column {self._address[1]} are not in row order")
        rows = SortedDeltas(
            rowids, _PLACES[: len(rowids)], self._bounds[number], lambda: values_of(self._timestamps, first, last)
        )
        cell_bytes = len(rowids) * self._cell_bytes
        return DeltaPage(rows, first, cell_bytes if cell_bytes <= _KEPT_CELL_BYTES else 0)

    def _patch(self, page: DeltaPage, rows: RowPlaces, first_row: int, last_row: int, is_scan: bool) -> Patch:
        cells = page.cells
        if cells is None and is_scan and (page.last - page.first) * self._cell_bytes <= _KEPT_CELL_BYTES:
            cells = page.cells = DeltaCells(self._cells.read(page.first, page.last))
        if cells:
            patch = Patch(rows, cells)
            if rows is page.rows.newest:
                page.whole = patch
                if len(self._bounds) == 1:
                    self._only = ref(patch)
            return patch
        low, high = rows.window(first_row, last_row)
        if low == high:
            return Patch(rows, DeltaCells(self._cells.read(page.first, page.first)))
        places = _PLACES[: high - low]
        return Patch(
            RowPlaces(rows.rowids[low:high], places),
            DeltaCells(self._at(rows.places[low:high].astype(np.int64) + page.first)),
        )

    def _at(self, positions: np.ndarray) -> Vector:
        """Return the cells at ascending positions: one by one if they are few, else from the decoded range."""
        first, last = int(positions[0]), int(positions[-1]) + 1
        if len(positions) < (last - first) * _GATHER_BELOW:
            return self._cells.gather(positions)
        return self._cells.read(first, last).take(positions - first)


def values_of(stream: StreamReader, first: int, last: int) -> np.ndarray:
    """Return the numbers of a delta file's stream of rowids or timestamps."""
    vector = stream.read(first, last)
    assert isinstance(vector, FixedVector)
    return vector.values


def _bound(bound: object) -> int:
    return bound if isinstance(bound, int) else 0

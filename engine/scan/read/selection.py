"""Which rows of a chunk a scan wants. Late materialisation: what is not needed to tell is not decoded.

Liveness comes first, then the parts of the filter, the cheapest first. Each part looks only at the rows that those
before it left: while they are many, its columns are decoded whole; once they are few, cell by cell; and not at all
when no row is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...codecs.codec import BLOCK_ROWS
from ...filter.bound import BoundFilter
from ...filter.evaluate import select
from ...vectors.vector import Vector
from .chunk import Chunk, ScanRequest

GATHER_BELOW = 1 / 8
"""Rows are fetched one by one where fewer than this share of a chunk is wanted, else the chunk is decoded whole."""


class ChunkCells(Mapping[int, Vector]):
    """The cells of a scan's chunk by column id, decoded when they are first asked for."""

    def __init__(self, chunk: Chunk, request: ScanRequest) -> None:
        self._chunk = chunk
        self._snapshot = request.snapshot
        self._columns = {column.id: column for column in request.columns_read}
        self._known: dict[int, Vector] = {}

    def __getitem__(self, column_id: int) -> Vector:
        """Return the cells of all rows of the chunk."""
        vector = self._known.get(column_id)
        if vector is None:
            chunk = self._chunk
            columns = [self._columns[column_id]]
            (vector,) = chunk.rowset.read_many(columns, chunk.first, chunk.last, self._snapshot)
            self._known[column_id] = vector
        return vector

    def read(self, column_ids: Iterable[int], rows: np.ndarray | None, as_strings: bool = False) -> None:
        """Decode several columns at once, if ``rows`` (as in ``at``) are not few; with ``as_strings`` without their
        dictionaries, if that saves time."""
        unknown = [column_id for column_id in dict.fromkeys(column_ids) if column_id not in self._known]
        if unknown and not self.are_few(rows):
            chunk = self._chunk
            columns = [self._columns[column_id] for column_id in unknown]
            is_whole = as_strings and rows is None
            vectors = chunk.rowset.read_many(columns, chunk.first, chunk.last, self._snapshot, is_whole)
            self._known.update(zip(unknown, vectors, strict=True))

    def at(self, column_id: int, rows: np.ndarray | None) -> Vector:
        """Return the cells of ``rows``, counted from the chunk's first; None for all."""
        if rows is None:
            return self[column_id]
        chunk = self._chunk
        if column_id not in self._known and self.are_few(rows):
            return chunk.rowset.gather(self._columns[column_id], rows + chunk.first, self._snapshot)
        return self[column_id].take(rows)

    def are_few(self, rows: np.ndarray | None) -> bool:
        """Whether ``rows``, as in ``at``, are fetched one by one."""
        return rows is not None and len(rows) < (self._chunk.last - self._chunk.first) * GATHER_BELOW

    def forget(self, column_ids: Iterable[int]) -> None:
        """Drop the cells of columns that are not needed any more: the next that are decoded find their memory warm."""
        for column_id in column_ids:
            self._known.pop(column_id, None)

    def __iter__(self) -> Iterator[int]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class _Few(Mapping[int, Vector]):
    """The cells of some rows of a chunk."""

    def __init__(self, cells: ChunkCells, rows: np.ndarray) -> None:
        self._cells, self._rows = cells, rows

    def __getitem__(self, column_id: int) -> Vector:
        return self._cells.at(column_id, self._rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Rows of a scan's chunk that are alive and match a filter as far as kernels could test it."""

    mask: np.ndarray | None
    """One bool a row; None for all rows."""
    count: int
    rest: tuple[BoundFilter, ...]
    """The parts of the filter that are yet to be tested."""

    @property
    def rows(self) -> np.ndarray | None:
        """The rows, counted from the chunk's first (int64, ascending); None for all."""
        return None if self.mask is None else np.flatnonzero(self.mask)


def select_rows(chunk: Chunk, request: ScanRequest) -> Selection | None:
    """Return the rows of a scan's chunk that kernels chose, without decoding them into vectors; None if the chunk is
    not whole.

    Once fewer rows are left than mini-blocks, the rest of the filter waits: it is tested for these rows alone.
    """
    if chunk.rows is not None or chunk.touched_only:
        return None
    rowset, first, last, snapshot = chunk.rowset, chunk.first, chunk.last, request.snapshot
    mask, count = rowset.live_in(first, last, snapshot), last - first
    if mask is not None:
        count = int(np.count_nonzero(mask))
    rest: list[BoundFilter] = []
    for part in _parts(chunk, request):
        columns = [column for column in request.filter_columns if column.id in part.column_ids]
        is_few = count * BLOCK_ROWS < last - first
        found = None if is_few else rowset.choose(part, columns, first, last, snapshot, mask)
        if found is None:
            rest.append(part)
        else:
            mask, count = found
    return Selection(None if count == last - first else mask, count, tuple(rest) if count else ())


def wanted_rows(
    chunk: Chunk, request: ScanRequest, cells: ChunkCells, selection: Selection | None = None
) -> np.ndarray | None:
    """Return the rows of a scan's chunk that are alive and match, counted from the chunk's first (int64, ascending);
    None for all.

    ``selection`` is that of `select_rows`, if it is known.
    """
    row_count = chunk.last - chunk.first
    selection = selection or select_rows(chunk, request)
    rows = selection.rows if selection else _candidates(chunk, request)
    for part in selection.rest if selection else _parts(chunk, request):
        if rows is not None and not len(rows):
            break
        if rows is not None and (part.has_test or len(rows) < row_count * GATHER_BELOW):
            rows = rows[select(part, _Few(cells, rows), len(rows))]
            continue
        mask = select(part, cells, row_count)
        if rows is not None:
            rows = rows[mask[rows]]
        elif not mask.all():
            rows = np.flatnonzero(mask)
    return rows


def _parts(chunk: Chunk, request: ScanRequest) -> tuple[BoundFilter, ...]:
    """Return the parts of the filter that are not true for every row anyway."""
    return request.where.conjuncts if request.where and not chunk.all_match else ()


def _candidates(chunk: Chunk, request: ScanRequest) -> np.ndarray | None:
    """Return the rows of a chunk that is not whole that are alive and not ruled out before; None for all."""
    rowset, first, last, snapshot = chunk.rowset, chunk.first, chunk.last, request.snapshot
    alive = rowset.live_in(first, last, snapshot)
    rows = None if chunk.rows is None else chunk.rows - first
    if chunk.touched_only:
        touched = rowset.touched((column.id for column in request.filter_columns), first, last, snapshot)
        touched = touched.astype(np.int64) - first
        rows = touched if rows is None else np.intersect1d(rows, touched, assume_unique=True)
    if alive is None or alive.all():
        return rows
    return np.flatnonzero(alive) if rows is None else rows[alive[rows]]

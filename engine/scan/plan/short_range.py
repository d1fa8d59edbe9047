"""Scans of a short range of keys: its rows are read like gets (`tablet/lookup`), not chunk by chunk.

The rowsets are merged by key, as far as the scan's limit reaches. Rows that are dead at the snapshot have keys too, so
more rows are read until enough are alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ....schemas.protocol.service import OneBatch
from ....schemas.rows.prune_count import PruneCount
from ...codecs.codec import BLOCK_ROWS, CorruptPageError
from ...filter.prune import ALL_KEYS, KeyRange
from ...rowset.diskrowset import DiskRowSet
from ...rowset.fill import fill
from ...rowset.native.cell_table import CellTable, TooManyBytesError
from ...rowset.native.row_columns import RowColumns
from ...rowset.row_run import PLACES, RowRun
from ...rowset.rowset import RowSet
from ...tablet.point_batch import HELD_BYTES_MAX
from ...vectors.keys.keys import KeyVector, argsort_keys, concat_keys, key_bytes, lower_bound, slice_keys
from .resolve import ResolvedScan

ROWS_MAX = 256
"""More rows are read chunk by chunk: column by column that is faster."""
_BYTES_MAX = 1 << 20
_RUNS_MAX = 32
_ROUNDS_MAX = 3
"""How often more rows are read because of dead ones. Chunks pass over many dead rows faster."""
LOOK_SECONDS = 0.1
"""A file is looked for at most once in so long: each look gives up the interpreter's lock."""

Run = tuple[RowSet, RowRun]
Piece = tuple[RowSet, np.ndarray, np.ndarray]
"""A rowset, rows of it (int64, ascending), and their places among those of a round."""


def rows_of_short_range(scan: ResolvedScan) -> pa.RecordBatch | None:
    """Return all rows of a scan of a short range of keys, in key order; None if it is none, or only chunks can tell.

    Raises:
        StoreError: a file is damaged.
    """
    request, columns = scan.request, scan.request.row_columns
    if columns is None or request.changes or request.is_split or not request.is_key_range:
        return None
    limit = request.limit if scan.spec.ordered else None
    rowsets = [rowset for version in scan.versions for rowset in version.rowsets()]
    if (first := short_rows(rowsets, request.keys, limit, request.snapshot, columns, request.counts)) is None:
        return None
    rows = next(first) if isinstance(first, OneBatch) else first
    scan.count_rows(rows.num_rows)
    return rows.slice(scan.spec.offset, scan.spec.limit).select([column.name for column in request.columns])


def short_rows(
    rowsets: Sequence[RowSet],
    keys: KeyRange,
    limit: int | None,
    snapshot: int,
    columns: RowColumns,
    count: PruneCount,
) -> pa.RecordBatch | OneBatch | None:
    """Return the rows of some rowsets with keys in a range, in key order: the first ``limit`` of them, or all; None if
    they are many, or only chunks can tell. Add what was read to ``count``.

    Raises:
        StoreError: a file is damaged.
    """
    if keys == ALL_KEYS if limit is None else not 0 < limit <= ROWS_MAX:
        return None
    runs = _runs(rowsets, keys, is_whole=limit is None)
    if runs is None:
        return None
    try:
        rows = _read(runs, ROWS_MAX if limit is None else limit, snapshot, columns)
    except (CorruptPageError, TooManyBytesError):
        return None
    if rows is None:
        return None
    count.rowsets_read += len({id(rowset) for rowset, _ in runs})
    count.rows_total += sum(map(len, rowsets))
    count.rows_in_chunks += rows.num_rows
    return rows


def _runs(rowsets: Sequence[RowSet], keys: KeyRange, is_whole: bool) -> list[Run] | None:
    """Return the runs of the rows; None if there are too many of these, all of which are read if it ``is_whole``."""
    if is_whole and sum(_least_rows(rowset, keys) for rowset in rowsets) > ROWS_MAX:
        return None
    runs: list[Run] = []
    for rowset in rowsets:
        for run in rowset.runs(keys.lower, keys.upper):
            runs.append((rowset, run))
        if len(runs) > _RUNS_MAX or (is_whole and sum(len(run) for _, run in runs) > ROWS_MAX):
            return None
    return runs


def _least_rows(rowset: RowSet, keys: KeyRange) -> int:
    """Return how many rows of a rowset surely have keys in a range, as far as it is known without reading any."""
    if not isinstance(rowset, DiskRowSet):
        return 0
    first, last = rowset.row_range(keys.lower, keys.upper)
    ends = (keys.lower is not None and keys.lower > rowset.min_key) + (keys.upper is not None)
    return max(last - first - ends * BLOCK_ROWS, 0)


def _read(runs: Sequence[Run], limit: int, snapshot: int, columns: RowColumns) -> pa.RecordBatch | OneBatch | None:
    """Return the first rows of some runs; None if they are large, or too many rows before them are dead."""
    merge = _RunMerge(runs)
    batches: list[pa.RecordBatch] = []
    left, size = limit, 0
    for _ in range(_ROUNDS_MAX):
        pieces = merge.next(left if not batches else ROWS_MAX)
        count = sum(len(rows) for _, rows, _ in pieces)
        table = CellTable(columns, np.zeros(count, np.int64), HELD_BYTES_MAX)
        for rowset, rows, places in pieces:
            fill(table, rowset, rows, places, snapshot)
        alive = table.alive(left)
        size += alive.nbytes
        if size > _BYTES_MAX:
            return None
        left -= len(alive.rows)
        is_last = not left or merge.is_empty
        if is_last and not batches and (one := table.one_batch(alive)) is not None:
            return one
        batches.append(table.batch(alive))
        if is_last:
            return pa.concat_batches(batches)
    return None


class _RunHead:
    """What is left of a run, and the keys of its first rows, as far as they were read."""

    def __init__(self, rowset: RowSet, run: RowRun) -> None:
        if isinstance(rowset, DiskRowSet):
            rowset.check_files(LOOK_SECONDS)
        self.rowset, self.run = rowset, run
        self.at = run.first
        self.ready = 0
        """How many keys were read."""
        self._keys: KeyVector | None = None
        self._keys_from = run.first

    def __len__(self) -> int:
        return self.run.last - self.at

    def load(self, count: int) -> None:
        """Read the keys of the next ``count`` rows, as far as there are so many."""
        if self.ready < min(count, len(self)):
            self.ready = min(count, len(self))
            self._keys, self._keys_from = self.run.keys(self.at, self.at + self.ready), self.at

    @property
    def keys(self) -> KeyVector:
        """The keys that were read, of rows that are left."""
        assert self._keys is not None, "load comes first"
        first = self.at - self._keys_from
        return slice_keys(self._keys, first, first + self.ready)

    def take(self, count: int) -> np.ndarray:
        """Take the next rows (int64)."""
        rows = self.run.rows(self.at, self.at + count)
        self.at += count
        self.ready = max(self.ready - count, 0)
        return rows


class _RunMerge:
    """The rows of some runs in key order. Of runs that begin above the rows in hand nothing is read."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._waiting = sorted(runs, key=lambda each: each[1].least, reverse=True)
        self._heads: list[_RunHead] = []

    @property
    def is_empty(self) -> bool:
        """Whether all rows were returned."""
        return not (self._heads or self._waiting)

    def next(self, count: int) -> list[Piece]:
        """Return the next rows in key order: at most ``count``, and at least one of them if there are any."""
        if not self._heads and self._waiting:
            self._heads.append(_RunHead(*self._waiting.pop()))
        if not self._heads:
            return []
        head = self._heads[0]
        size = min(count, len(head))
        if len(self._heads) == 1 and not self._is_due(head.run.end(head.at + size) if self._waiting else b""):
            rowset, rows, places = head.rowset, head.take(size), PLACES[:size]
            is_sorted = head.run.order is None
            pieces = [(rowset, rows, places)] if is_sorted else list(_by_rowset([(rowset, rows)], places))
        else:
            pieces = list(_by_rowset(*self._merged(count)))
        self._heads = [head for head in self._heads if len(head)]
        return pieces

    def _is_due(self, end: bytes) -> bool:
        """Whether a run that waits may have a key below ``end``."""
        return bool(self._waiting) and self._waiting[-1][1].least < end

    def _merged(self, count: int) -> tuple[list[tuple[RowSet, np.ndarray]], np.ndarray]:
        """Return the next rows by their runs, and the place of each in key order (int64)."""
        end = self._known(count)
        while self._waiting and (end is None or self._waiting[-1][1].least < end):
            self._heads.append(_RunHead(*self._waiting.pop()))
            end = self._known(count)
        sizes = [head.ready if end is None else lower_bound(head.keys, end) for head in self._heads]
        keys = concat_keys([slice_keys(head.keys, 0, rows) for head, rows in zip(self._heads, sizes, strict=True)])
        order = argsort_keys(keys)[:count]
        runs = np.repeat(np.arange(len(sizes)), sizes)[order]
        counts = np.bincount(runs, minlength=len(sizes)).tolist()
        pieces = [(head.rowset, head.take(rows)) for head, rows in zip(self._heads, counts, strict=True)]
        return pieces, np.argsort(runs, kind="stable")

    def _known(self, count: int) -> bytes | None:
        """Read the keys of the next ``count`` rows of each run; return the end of those that are all known, None if
        all rows are."""
        for head in self._heads:
            head.load(count)
        ends = [key_bytes(head.keys, head.ready - 1) for head in self._heads if head.ready < len(head)]
        return min(ends) + b"\0" if ends else None


def _by_rowset(pieces: Sequence[tuple[RowSet, np.ndarray]], places: np.ndarray) -> Iterator[Piece]:
    """Yield rows by their rowsets; ``places`` are those of all rows, one run after the other."""
    begin = 0
    together: dict[int, tuple[RowSet, list[np.ndarray], list[np.ndarray]]] = {}
    for rowset, rows in pieces:
        if len(rows):
            _, all_rows, all_places = together.setdefault(id(rowset), (rowset, [], []))
            all_rows.append(rows)
            all_places.append(places[begin : begin + len(rows)])
            begin += len(rows)
    for rowset, all_rows, all_places in together.values():
        rows, where = np.concatenate(all_rows), np.concatenate(all_places)
        order = np.argsort(rows)
        yield rowset, rows[order], where[order]

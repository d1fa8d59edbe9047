"""Chunks: ranges of consecutive rows of a rowset that a scan reads at once, and which of them it skips."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa

from ....schemas.rows.changes import feed_schema
from ....schemas.rows.prune_count import PruneCount
from ....schemas.table.column import ColumnSchema
from ...aggregate.plan import AggregatePlan
from ...codecs.codec import BLOCK_ROWS, PAGE_ROWS
from ...expression.tree import Expr
from ...filter.bind import BoundFilter
from ...filter.expiry import Expiry
from ...filter.prune import KeyRange
from ...rowset.diskrowset import DiskRowSet
from ...rowset.native.absent import absent_bytes
from ...rowset.native.row_columns import RowColumns
from ...rowset.rowset import RowSet
from ...vectors.keys.keys import KeyVector, hash_keys, keys_at_least
from .zones import verdicts

_PAGES_AT_ONCE = 4
"""The most pages of narrow columns to aggregate at once as vectors; and how far decoding may exceed ``chunk_bytes`` in
columns beside the filter's, if all rows match. Both save calls, whose number is the same for one page or a few rows."""
_PAGES_OF_RUN = 16
_BYTES_OF_RUN = 4
"""The most pages of a run, and how far their cells may exceed ``chunk_bytes``: kernels fold them window by window."""
_RUNS_OF_READER = 8
"""Runs for each of those who read at once, so that they end at about the same time."""
_CHUNKS_FETCHED = 8
"""Chunks of far files that are fetched together, while as many are read."""
_LONG_ROWS_MIN, _LONG_ROWS_BYTES, _LONG_ROWS_FACTOR = 8, 2 << 20, 2
"""The fewest rows of a chunk, each of which costs a call for each column; and about the most bytes of one that has less
than a mini-block, or how far it may exceed ``chunk_bytes`` if that is more."""
_ROWS_A_LOOK_UP = 64
"""Rows that are scanned in the time of one key look-up."""


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """The range of a scan of changes, see ``schemas.changes.ChangeSpec``. It ends at the scan's snapshot."""

    since: int
    before: bool
    every: bool
    column_ids: Collection[int]
    """The columns of the table: changes in columns that were dropped since do not count."""


@dataclass(frozen=True, slots=True, eq=False)
class ScanRequest:
    """A scan of one tablet, resolved against its schema.

    ``columns`` are returned, in this order; ``filter_columns`` are those that ``where`` reads. With ``changes`` it is a
    scan of changes up to ``snapshot``.
    """

    columns: tuple[ColumnSchema, ...]
    where: BoundFilter | None
    filter_columns: tuple[ColumnSchema, ...]
    keys: KeyRange
    snapshot: int
    chunk_bytes: int
    changes: ChangeRange | None = None
    expiry: Expiry | None = None
    """When rows expire; None: never. ``where`` leaves them out, but of a scan of changes."""
    limit: int | None = None
    inverse: BoundFilter | None = None
    """NOT ``where``, if it reads no other columns: if no row can match it, and no cell is NULL, every row matches
    ``where``."""
    points: KeyVector | None = None
    """If given, only rows with these keys can match."""
    filter_tree: Expr | None = None
    """``where`` as it was given, for explanations."""
    now: int = 0
    """The moment of NOW(), in microseconds since 1970."""
    few: KeyVector | None = None
    """If given, the rows with these keys, ascending, match ``where``, and no others."""
    aggregate: AggregatePlan | None = None
    """If given, replaces rows by aggregates; ``columns`` are those that it reads."""
    is_key_range: bool = False
    """Whether exactly the rows with keys in ``keys`` match ``where``."""
    is_split: bool = False
    """Whether ``keys`` separate it from other scans: then rows outside are always skipped, not only where cheap."""
    is_far: bool = False
    """Whether files are far away, so that it helps to fetch what is read next."""
    row_columns: RowColumns | None = None
    """The key and ``columns`` as reads of single rows take them; None if these are read column by column."""
    counts: PruneCount = field(default_factory=PruneCount)
    """Adds up what it reads and skips."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the scan's batches."""
        if self.aggregate:
            return self.aggregate.schema
        fields = [column.field for column in self.columns]
        return feed_schema(fields, self.changes.before) if self.changes else pa.schema(fields)

    @property
    def oldest(self) -> int:
        """The earliest timestamp that is read."""
        return self.changes.since if self.changes else self.snapshot

    @property
    def columns_read(self) -> tuple[ColumnSchema, ...]:
        """All columns that are read, each once."""
        return tuple({column.id: column for column in (*self.filter_columns, *self.columns)}.values())


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A chunk of a scan: rows [first, last) of a rowset, or only some of these."""

    rowset: RowSet
    first: int
    last: int
    touched_only: bool = False
    """By zone maps no base cell can match: only rows with deltas of the filter's columns are read."""
    rows: np.ndarray | None = None
    """Only these rows (int64, ascending); None for all."""
    all_match: bool = False
    """By zone maps the filter is true for every row."""


def chunks(rowset: RowSet, request: ScanRequest, count: PruneCount) -> Iterator[Chunk]:
    """Yield the chunks of a rowset that may hold a row of the scan, in row order; add to ``count``."""
    row_count = rowset.row_count(request.snapshot)
    is_sorted = isinstance(rowset, DiskRowSet)
    if is_sorted:
        rowset.check_files()
    find = rowset.exact_range if is_sorted and request.is_split else rowset.row_range
    first, last = find(request.keys.lower, request.keys.upper)
    last = min(last, row_count)
    count.rows_total += row_count
    if first >= last:
        count.rowsets_by_key += 1
        return
    if request.changes and not _is_changed(rowset, request, request.changes.since):
        count.rowsets_unchanged += 1
        return
    row_bytes = _row_bytes(rowset, request)
    if (found := _looked_up(rowset, request)) is not None:
        count.rowsets_by_look_up += 1
        count.rows_in_chunks += len(found)
        count.bytes_in_chunks += len(found) * row_bytes
        most = _chunk_rows(row_bytes, request.chunk_bytes, PAGE_ROWS)
        yield from _chunks_of(rowset, found[(found >= first) & (found < last)], most)
        return
    count.rowsets_read += 1
    size = _chunk_rows(_decoded(rowset, request), request.chunk_bytes, PAGE_ROWS)
    begin = size if request.limit is None else min(size, _chunk_rows(0.0, request.chunk_bytes, request.limit))
    ranges = list(_ranges(first, last, begin, size))
    known = verdicts(rowset, ranges, request.where, request.inverse, request.filter_columns)
    for (chunk_first, chunk_last), (base_may_match, all_match) in zip(ranges, known, strict=True):
        is_touched = base_may_match == all_match and _is_touched(rowset, chunk_first, chunk_last, request)
        if not (base_may_match or is_touched):
            count.chunks_by_zone_map += 1
            continue
        all_match = all_match and not is_touched
        count.chunks_read += base_may_match
        count.chunks_touched_only += not base_may_match
        count.rows_in_chunks += chunk_last - chunk_first
        count.bytes_in_chunks += (chunk_last - chunk_first) * row_bytes
        rows = None
        if request.is_split and not is_sorted:
            rows = chunk_first + np.flatnonzero(_inside(rowset.keys_in(chunk_first, chunk_last), request.keys))
        yield Chunk(rowset, chunk_first, chunk_last, not base_may_match, rows, all_match)


def _is_changed(rowset: RowSet, request: ScanRequest, since: int) -> bool:
    """Whether a row may have changed, or expired, in the time of a scan of changes."""
    if rowset.is_changed(since, request.snapshot):
        return True
    rows = rowset.row_count(request.snapshot)
    return request.expiry is not None and may_expire(rowset, request.expiry, 0, rows, since, request.snapshot)


def may_expire(rowset: RowSet, expiry: Expiry, first: int, last: int, since: int, until: int) -> bool:
    """Whether some of the rows [first, last) may expire after ``since`` and up to ``until``, as they are at
    ``since``."""
    zones = rowset.zone_maps_at(expiry.column.id, first, last, since)
    low, high = expiry.last_gone(since), expiry.last_gone(until)
    return not zones or any(
        zone.min is not None and zone.min <= high and (zone.max is None or zone.max > low)  # pyright: ignore
        for zone in zones
    )


def fetched(wanted: Iterable[Chunk], request: ScanRequest) -> Iterator[Chunk]:
    """Return the chunks of a scan. What they read for sure is fetched while those before them are read, if the store's
    files are far away; a scan that may end early fetches nothing ahead."""
    chunks = iter(wanted)
    return _fetched(chunks, request) if request.is_far and request.limit is None else chunks


def _fetched(wanted: Iterator[Chunk], request: ScanRequest) -> Iterator[Chunk]:
    """Yield chunks, some of them fetched together: the pages of a column are often neighbours."""
    coming: list[Chunk] = []
    while gathered := list(islice(wanted, _CHUNKS_FETCHED)):
        _fetch(gathered, request)
        yield from coming
        coming = gathered
    yield from coming


def _fetch(gathered: Sequence[Chunk], request: ScanRequest) -> None:
    """Begin to fetch what chunks read for sure."""
    spans: dict[tuple[DiskRowSet, bool], list[tuple[int, int]]] = {}
    for chunk in gathered:
        rowset = chunk.rowset
        if isinstance(rowset, DiskRowSet) and chunk.rows is None and not chunk.touched_only:
            whole = request.where is None or chunk.all_match
            spans.setdefault((rowset, whole), []).append((chunk.first, chunk.last))
    for (rowset, whole), of_rowset in spans.items():
        rowset.fetch([column.id for column in (request.columns_read if whole else request.filter_columns)], of_rowset)


def in_runs(wanted: Sequence[Chunk], request: ScanRequest, readers: int) -> Iterator[Chunk]:
    """Join adjacent similar whole chunks of a scan, to runs of some pages; ``readers`` read at once."""
    rows = _PAGES_OF_RUN * PAGE_ROWS
    if readers > 1:
        share = sum(chunk.last - chunk.first for chunk in wanted) // (_RUNS_OF_READER * readers)
        rows = min(rows, max(share, _PAGES_AT_ONCE * PAGE_ROWS))
    place = 0
    while place < len(wanted):
        run = wanted[place]
        most = min(rows, _BYTES_OF_RUN * request.chunk_bytes / _row_bytes(run.rowset, request))
        last, place = run.last, place + 1
        while place < len(wanted) and _continues(run, last, wanted[place]) and wanted[place].last - run.first <= most:
            last, place = wanted[place].last, place + 1
        yield run if last == run.last else replace(run, last=last)


def _continues(run: Chunk, last: int, chunk: Chunk) -> bool:
    """Whether a chunk is like a run of others that ends with row ``last``, and comes next."""
    if run.rowset is not chunk.rowset or last != chunk.first or run.rows is not None or chunk.rows is not None:
        return False
    return (run.touched_only, run.all_match) == (chunk.touched_only, chunk.all_match)


def pieces(run: Chunk, request: ScanRequest) -> Iterator[Chunk]:
    """Cut a run of a scan's chunks into pieces of a few pages of at most ``chunk_bytes``, if it is whole."""
    if run.rows is not None:
        yield run
        return
    size, row_bytes = _PAGES_AT_ONCE * PAGE_ROWS, _row_bytes(run.rowset, request)
    while size > BLOCK_ROWS and size * row_bytes > request.chunk_bytes:
        size //= 2
    if size == BLOCK_ROWS:
        size = _chunk_rows(row_bytes, request.chunk_bytes, size)
    for first, last in _ranges(run.first, run.last, size):
        yield replace(run, first=first, last=last)


def _inside(keys: KeyVector, wanted: KeyRange) -> np.ndarray:
    inside = np.ones(len(keys), np.bool_)
    if wanted.lower is not None:
        inside &= keys_at_least(keys, wanted.lower)
    if wanted.upper is not None:
        inside &= ~keys_at_least(keys, wanted.upper)
    return inside


def bytes_of(rowset: RowSet, request: ScanRequest) -> int:
    """Return about how many bytes the cells have that a scan reads of a rowset."""
    return int(rowset.row_count(request.snapshot) * _row_bytes(rowset, request))


def _row_bytes(rowset: RowSet, request: ScanRequest) -> float:
    cells = rowset.row_bytes
    once = max(1.0, sum(_cell_bytes(cells, column) for column in request.columns_read))
    if request.changes and request.changes.every:
        return once * (1 + rowset.deltas.row_changes / max(rowset.row_count(request.snapshot), 1))
    return once


def _decoded(rowset: RowSet, request: ScanRequest) -> float:
    """Return about how many bytes per row are decoded at once: the filter's columns, if there is a filter. Of the other
    columns few rows are usually left; if all are, decoding exceeds the size by a bounded factor."""
    whole = _row_bytes(rowset, request)
    if request.where is None or request.changes:
        return whole
    of_filter = sum(_cell_bytes(rowset.row_bytes, column) for column in request.filter_columns)
    return max(of_filter, whole / _PAGES_AT_ONCE)


def _cell_bytes(cells: dict[int, float], column: ColumnSchema) -> float:
    known = cells.get(column.id)
    return absent_bytes(column) if known is None else known


def _chunk_rows(row_bytes: float, chunk_bytes: int, most: int) -> int:
    """Return a power of two from one mini-block to one page, so that chunks end where blocks and pages do; ``most``
    rows are enough. Of very long rows return less than a mini-block."""
    rows = PAGE_ROWS
    while rows > BLOCK_ROWS and (rows * row_bytes > chunk_bytes or rows // 2 >= most):
        rows //= 2
    most_bytes = max(_LONG_ROWS_BYTES, _LONG_ROWS_FACTOR * chunk_bytes)
    while rows > _LONG_ROWS_MIN and rows * row_bytes > most_bytes:
        rows //= 2
    return rows


def _ranges(first: int, last: int, size: int, largest: int = 0) -> Iterator[tuple[int, int]]:
    """Cut rows into ranges of ``size``, which doubles up to ``largest``; each ends at a multiple of its size."""
    start = first - first % size
    while start < last:
        yield max(start, first), min(start + size, last)
        start += size
        if size < largest and start % (2 * size) == 0:
            size *= 2


def _looked_up(rowset: RowSet, request: ScanRequest) -> np.ndarray | None:
    """Return the rows of the keys that the filter names (int64, ascending); None if a scan is faster."""
    points = request.points
    if points is None or request.changes or not isinstance(rowset, DiskRowSet):
        return None
    if len(points) * _ROWS_A_LOOK_UP > len(rowset):
        return None
    found = rowset.find(points, hash_keys(points))
    return np.sort(found[found >= 0])


def _chunks_of(rowset: RowSet, rows: np.ndarray, most: int) -> Iterator[Chunk]:
    """Yield chunks of some rows, page by page, of at most so many."""
    if not len(rows):
        return
    pages = rows // PAGE_ROWS
    cuts = [0, *(np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist(), len(rows)]
    for begin, end in pairwise(cuts):
        for start in range(begin, end, most):
            part = rows[start : min(start + most, end)]
            yield Chunk(rowset, int(part[0]), int(part[-1]) + 1, rows=part)


def _is_touched(rowset: RowSet, first: int, last: int, request: ScanRequest) -> bool:
    """Whether a cell of the filter's columns may differ from the base."""
    # If no delta is visible from either end of a range of timestamps, none is visible within it.
    moments = {request.oldest, request.snapshot}
    columns = [column.id for column in request.filter_columns]
    return any(rowset.deltas.touches(column, moment, first, last) for column in columns for moment in moments)

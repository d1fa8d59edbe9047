"""Chunks: the runs of consecutive rows of a rowset that a scan reads at once, and which of them it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...schemas.changes import feed_schema
from ...schemas.column import ColumnSchema
from ..cfile.zone_map import ZoneMap
from ..codecs.codec import BLOCK_ROWS, PAGE_ROWS
from ..filter.bind import BoundFilter
from ..filter.prune import KeyRange, may_match
from ..rowset.absent import absent_bytes
from ..rowset.rowset import RowSet


@dataclass(frozen=True, slots=True)
class ChangeRange:
    """What a scan of changes is of: see ``schemas.changes.ChangeSpec``. It ends at the scan's snapshot."""

    since: int
    before: bool
    every: bool
    column_ids: Collection[int]
    """The columns of the table: what changed in others, which were dropped since, is no change."""


@dataclass(frozen=True, slots=True, eq=False)
class ScanRequest:
    """A scan of one tablet, resolved against its schema.

    ``columns`` are put out, in this order; ``filter_columns`` are those that ``where`` reads. With ``changes`` it is a
    scan of what changed up to ``snapshot``.
    """

    columns: tuple[ColumnSchema, ...]
    where: BoundFilter | None
    filter_columns: tuple[ColumnSchema, ...]
    keys: KeyRange
    snapshot: int
    chunk_bytes: int
    changes: ChangeRange | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the scan's batches."""
        fields = [column.field for column in self.columns]
        return feed_schema(fields, self.changes.before) if self.changes else pa.schema(fields)

    @property
    def oldest(self) -> int:
        """The earliest moment that is looked at."""
        return self.changes.since if self.changes else self.snapshot

    @property
    def columns_read(self) -> tuple[ColumnSchema, ...]:
        """All columns that are read, each once."""
        return tuple({column.id: column for column in (*self.filter_columns, *self.columns)}.values())


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows [first, last) of a rowset."""

    rowset: RowSet
    first: int
    last: int


@dataclass(slots=True)
class PruneCount:
    """What was left out, for ``explain``."""

    rowsets: int = 0
    rowsets_by_key: int = 0
    rowsets_unchanged: int = 0
    chunks: int = 0
    chunks_by_zone_map: int = 0
    rows_in_chunks: int = 0
    rows_total: int = 0
    bytes_in_chunks: float = 0.0


def chunks(rowset: RowSet, request: ScanRequest, count: PruneCount) -> Iterator[Chunk]:
    """Yield the chunks of a rowset that may hold a row of the scan, in row order; add to ``count``."""
    row_count = rowset.row_count(request.snapshot)
    first, last = rowset.row_range(request.keys.lower, request.keys.upper)
    last = min(last, row_count)
    count.rowsets += 1
    count.rows_total += row_count
    if first >= last:
        count.rowsets_by_key += 1
        return
    if request.changes and not rowset.is_changed(request.changes.since, request.snapshot):
        count.rowsets_unchanged += 1
        return
    row_bytes = _row_bytes(rowset, request)
    for chunk_first, chunk_last in _cut(first, last, _chunk_rows(row_bytes, request.chunk_bytes)):
        count.chunks += 1
        if _is_pruned(rowset, chunk_first, chunk_last, request):
            count.chunks_by_zone_map += 1
            continue
        count.rows_in_chunks += chunk_last - chunk_first
        count.bytes_in_chunks += (chunk_last - chunk_first) * row_bytes
        yield Chunk(rowset, chunk_first, chunk_last)


def _row_bytes(rowset: RowSet, request: ScanRequest) -> float:
    cells = rowset.row_bytes
    once = max(1.0, sum(_cell_bytes(cells, column) for column in request.columns_read))
    if request.changes and request.changes.every:
        return once * (1 + rowset.deltas.row_changes / max(rowset.row_count(request.snapshot), 1))
    return once


def _cell_bytes(cells: dict[int, float], column: ColumnSchema) -> float:
    known = cells.get(column.id)
    return absent_bytes(column) if known is None else known


def _chunk_rows(row_bytes: float, chunk_bytes: int) -> int:
    """Return a power of two from one mini-block to one page, so that chunks end where blocks and pages do."""
    rows = PAGE_ROWS
    while rows > BLOCK_ROWS and rows * row_bytes > chunk_bytes:
        rows //= 2
    return rows


def _cut(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first - first % size, last, size):
        yield max(start, first), min(start + size, last)


def _is_pruned(rowset: RowSet, first: int, last: int, request: ScanRequest) -> bool:
    if request.where is None:
        return False

    def zone_map_of(column_id: int) -> ZoneMap | None:
        # Bounds that hold at both ends of a range hold in between: no delta of the column can be seen from within.
        if request.changes and not rowset.zone_maps_at(column_id, first, last, request.changes.since):
            return None
        return joined(rowset.zone_maps_at(column_id, first, last, request.snapshot))

    return not may_match(request.where, zone_map_of, last - first)


def joined(zones: Sequence[ZoneMap]) -> ZoneMap | None:
    """Return bounds of all pages together; None when there are none."""
    if len(zones) < 2:
        return zones[0] if zones else None
    with_values = [zone for zone in zones if zone.min is not None]
    unbounded = any(zone.max is None for zone in with_values)
    lows = [zone.min for zone in with_values if zone.min is not None]
    highs = [zone.max for zone in with_values if zone.max is not None]
    return ZoneMap(
        min(lows, default=None),
        None if unbounded else max(highs, default=None),
        sum(zone.null_count for zone in zones),
        sum(zone.row_count for zone in zones),
        exact=all(zone.exact for zone in zones),
        has_nan=any(zone.has_nan for zone in zones),
    )

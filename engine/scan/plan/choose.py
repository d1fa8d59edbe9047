"""The way of a read: the first one below that holds.

A scan (`Ways.scan`):

1. *One row.* There are no options, and the filter has the form ``id = 7`` for the whole key. The plan lane reads the
   row; neither the filter nor a snapshot of the past is resolved (`point_scan`).
2. *Short range by plan.* There are no options but an order and a limit, and the filter has a form like ``id >= 7 AND
   id < 20`` for the key. Few rows are in the range, or the scan takes the first few in key order. They are read by
   their places; the filter is not compiled (`range_scan`).
3. *Sorted.* There is ``order_by``. The rows come by one of the other ways, and are sorted (`schemas/protocol/sorting`).
4. *Planned part.* It is a ticket whose plan is still kept. The versions of the plan are read by chunks
   (`planned_scans`).
5. *Few rows.* The filter, once compiled, selects a few keys and nothing else. They are looked up (`few`).
6. *Short range.* The same for any filter that, once compiled, selects a range of keys and nothing else, and for times
   in the past (`short_range`).
7. *Chunks.* All else: measures, rows in key order, with marks, or in any order (`by_chunks`).

A row by its key (`Ways.get_row`):

1. *Plan lane.* The key is plain, its tablet is here, its rowsets are indexed, and nothing changes meanwhile
   (`table/point_plan`).
2. *Batch lane.* A look-up of one key, which is always right.

Rows by many keys (`Ways.look_up`): the batch lane, whole or in pieces (`table/key_reads`).

Nobody else in the engine tries a way before another one. A way finds out by its conditions that it does not hold, and
returns None; or while it reads, and raises `UndecidedError`. Both end here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from ....schemas.limits.budget import Budget
from ....schemas.limits.limits import Limits
from ....schemas.protocol.keys import key_of, only_row
from ....schemas.protocol.request import check_may_wait
from ....schemas.protocol.service import RowStamp, ScanStream
from ....schemas.protocol.sorting import is_key_order, sorted_stream
from ....schemas.rows.batches import begun
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import TableDescription
from ...commit.row_stamps import RowStamps
from ...manifest.damage import DamageRegistry
from ...table.key_reads import KeyReads
from ...table.table import Table
from ...tablet.point_read import UndecidedError
from .by_chunks import ChunkStreams
from .few import rows_of_few_keys, stream_of_rows
from .planned_scans import PlannedScans
from .point_scan import PointScans
from .range_scan import LongRangeError, RangeScans
from .resolve import ResolvedScan, Resolver
from .running_counts import RunningCounts
from .short_range import rows_of_short_range
from .snapshots import Snapshots


class Ways:
    """The ways of one store's reads. For what the methods do, see ``StoreService``. Thread safe."""

    def __init__(
        self,
        table: Callable[[str], Table],
        now: Callable[[], int],
        snapshots: Snapshots,
        points: PointScans,
        ranges: RangeScans,
        planned: PlannedScans,
        resolver: Resolver,
        chunks: ChunkStreams,
        damage: DamageRegistry,
        counts: RunningCounts,
        sorting: Budget,
        limits: Limits,
        stamps: RowStamps,
    ) -> None:
        """``table`` finds a table by name, ``now`` returns the newest snapshot; rows are sorted in ``sorting``."""
        self._stamps = stamps
        self._table = table
        self._now = now
        self._snapshots = snapshots
        self._points = points
        self._ranges = ranges
        self._planned = planned
        self._resolver = resolver
        self._chunks = chunks
        self._damage = damage
        self._counts = counts
        self._sorting = sorting
        self._limits = limits

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        return self.scan_table(self._table(spec.table), spec)

    def scan_table(self, table: Table, spec: ScanSpec) -> ScanStream:
        """Scan a table that was found before. The name in ``spec`` is not looked up: another table may have it now."""
        may_be_short = True
        try:
            if (rows := self._by_plan(table, spec)) is not None:
                return rows
        except LongRangeError:
            may_be_short = False
        except UndecidedError:
            pass
        check_may_wait()
        if not spec.checked().order_by:
            return self._unsorted(table, spec, may_be_short=may_be_short)
        key = self._resolver.key(table, spec)
        is_sorted = not is_key_order(spec, key)
        return sorted_stream(spec, key, partial(self._unsorted, table, is_sorted=is_sorted), self._sorting)

    def _by_plan(self, table: Table, spec: ScanSpec) -> ScanStream | None:
        if (row := self._points.scan(table, spec)) is not None:
            return row
        with self._damage.noticing():
            return self._ranges.scan(table, spec)

    def _unsorted(self, table: Table, spec: ScanSpec, is_sorted: bool = False, may_be_short: bool = True) -> ScanStream:
        """Scan without ``order_by``; ``is_sorted`` if the caller sorts the rows."""
        if (part := self._planned_part(table, spec)) is not None:
            return self._chunks.stream(part, is_sorted)
        scan = self._resolver.resolved(table, spec)
        if (rows := self._few_rows(scan, may_be_short)) is not None:
            return stream_of_rows(scan, rows)
        return self._chunks.stream(scan, is_sorted)

    def _planned_part(self, table: Table, spec: ScanSpec) -> ResolvedScan | None:
        planned = self._planned.of(spec)
        return None if planned is None else self._resolver.planned(table, spec, planned)

    def _few_rows(self, scan: ResolvedScan, may_be_short: bool) -> pa.RecordBatch | None:
        with self._damage.noticing():
            rows = rows_of_few_keys(scan)
            if rows is None and may_be_short and (rows := rows_of_short_range(scan)) is not None:
                self._counts.add(scan.request.counts)
            return rows

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See KeyReader."""
        try:
            return self._table(table.name).get_row(table, key, self._now, self._limits)
        except UndecidedError:
            return only_row(self.look_up(table.name, key_of(key, table)).to_table())

    def stamped_row(self, table: TableDescription, key: Sequence[Any]) -> tuple[dict[str, Any] | None, RowStamp | None]:
        """See AnswerKeeper."""
        try:
            return self._table(table.name).stamped_row(table, key, self._now, self._limits, self._stamps)
        except UndecidedError:
            check_may_wait()
            return self.get_row(table, key), None

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        subject = self._table(table)
        reads = KeyReads(subject, keys, self._now, self._limits)
        if (rows := reads.whole()) is not None:
            return ScanStream(rows.schema, None, iter((rows,)), source=(subject.table_id, reads.schema))
        schema, batches = begun(self._pieces(subject, reads))
        return ScanStream(schema, None, batches, source=(subject.table_id, reads.schema))

    def _pieces(self, table: Table, reads: KeyReads) -> Iterator[pa.RecordBatch]:
        with self._snapshots.holding(table, self._now()), self._damage.noticing():
            yield from reads.pieces()

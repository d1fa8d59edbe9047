"""Reads: the scans and point reads of one store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ....schemas.limits.budget import Budget, BudgetShare
from ....schemas.protocol.keys import key_of, only_row
from ....schemas.protocol.request import owner
from ....schemas.protocol.service import Marked, ScanStream
from ....schemas.protocol.sorting import BUDGET_WAIT_SECONDS, sorted_stream, unsorted
from ....schemas.rows.batches import begun
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import ScanPlan, ScanSplit, TableDescription
from ....schemas.table.table import TableSchema
from ...filter.compiled import FilterCache
from ...manifest.damage import DamageRegistry
from ...mvcc.mvcc import MvccManager
from ...options import StoreOptions
from ...table.key_reads import KeyReads
from ...table.table import Table
from ...table.table_version import TableVersion
from ...tablet.point_read import UndecidedError
from ...tablet.tablet import Tablet
from ...tablet.version import Version
from ..read.chunk import ChangeRange, ScanRequest
from ..read.pool import ScanPool
from . import resolve as scanning
from .few import rows_of_few_keys
from .few_groups import groups_at_most
from .planned_scans import PlannedScan, PlannedScans
from .point_scan import PointScans
from .running_counts import RunningCounts
from .snapshots import Snapshots


class Reads:
    """For what the methods do, see ``schemas.service.StoreService``. Thread safe."""

    def __init__(
        self,
        table: Callable[[str], Table],
        mvcc: MvccManager,
        snapshots: Snapshots,
        planned: PlannedScans,
        damage: DamageRegistry,
        pool: ScanPool,
        options: StoreOptions,
        is_far: bool,
    ) -> None:
        """``table`` finds a table by name; ``pool`` reads chunks, of files that may be far away (`FarFileSystem`)."""
        self._table = table
        self._mvcc = mvcc
        self._snapshots = snapshots
        self._planned = planned
        self._damage = damage
        self._pool = pool
        self._options = options
        self._is_far = is_far
        self._memory = Budget("rows to sort, groups and scans", options.reads_bytes)
        self.counts = RunningCounts()
        """What all scans have read and skipped, but for those of rows by their keys."""
        self._filters = FilterCache(options.limits)
        self._points = PointScans(mvcc.snapshot, self._filters, options.limits)

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        if (point := self._points.scan(spec, self._table)) is not None:
            return point
        if spec.checked().order_by:
            return sorted_stream(spec, self._key(spec), self.scan, self._memory)
        if (planned := self._planned.of(spec)) and (stream := self._planned_stream(spec, planned)):
            return stream
        while True:
            table, version, wanted, request = self._resolve(spec)
            versions = scanning.pinned(spec, wanted.tablets, table, request)
            if table.version is version:  # else a pinned rowset may lack a dropped column, or a new tablet its rows
                with self._damage.noticing():
                    few = rows_of_few_keys(spec, table, version, request, wanted.tablets)
                if few is not None:
                    return _whole(spec, request, few, (table.table_id, version.schema))
                return self._stream(spec, table, version, request, wanted.tablets, versions)

    def _planned_stream(self, spec: ScanSpec, planned: PlannedScan) -> ScanStream | None:
        """Start a part of a planned scan from what was kept for it; None if the plan did not have it.

        Tickets are not signed, and who may read what was decided by the names of today. So the table and the columns
        that are read must still be those of the plan.
        """
        table, version = self._table(spec.table), planned.version
        if table is not planned.table:
            return None
        request = self._request(spec, table, version, planned.snapshot, planned.changes)
        now = table.version.schema.by_name
        if any(column.name not in now or now[column.name].id != column.id for column in request.columns_read):
            return None
        tablets = scanning.wanted_tablets(spec, table, version, request).tablets
        versions = planned.versions_of(tablets)
        return None if versions is None else self._stream(spec, table, version, request, tablets, versions)

    def _stream(
        self,
        spec: ScanSpec,
        table: Table,
        version: TableVersion,
        request: ScanRequest,
        tablets: list[Tablet],
        versions: list[Version],
    ) -> ScanStream:
        memory = BudgetShare(self._memory, BUDGET_WAIT_SECONDS, owner().user)
        marked = self._noticed(spec, version, request, tablets, versions, memory)
        has_marks = spec.marks and not request.aggregate
        batches = scanning.unmarked(marked)
        shown, source = marked if has_marks else None, (table.table_id, version.schema)
        return ScanStream(request.schema, request.snapshot, batches, shown, counts=request.counts, source=source)

    def _noticed(
        self,
        spec: ScanSpec,
        version: TableVersion,
        request: ScanRequest,
        tablets: list[Tablet],
        versions: list[Version],
        memory: BudgetShare,
    ) -> Iterator[Marked]:
        ahead, limits, count = self._pool.ahead, self._options.limits, request.counts
        try:
            with memory, self._damage.noticing(), self.counts.counting(count):
                found = scanning.run(spec, version, request, tablets, versions, self._pool, ahead, limits, memory)
                yield from self._planned.reading(spec, found)
        finally:
            _count_rows(count.rows_in_chunks, tablets, versions)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        spec = unsorted(spec.checked(), self._key(spec))
        while True:
            table, version, wanted, request = self._resolve(spec)
            versions = scanning.pinned(spec, wanted.tablets, table, request)
            if table.version is version:
                break
        splits, explain = scanning.estimate(spec, wanted, versions, version, request)
        read_here, read_all = wanted.sums
        rows = sum(split.rows for split in splits)
        may_combine = spec.partial and not spec.is_part
        return ScanPlan(
            snapshot=request.snapshot,
            schema_version=version.schema.version,
            splits=splits,
            planned=scanning.digest(table, request),
            hash=version.hash,
            explain=explain,
            tablets_here=version.tablets_here,
            tablets_all=version.tablets_all,
            read_here=read_here,
            read_all=read_all,
            groups_at_most=groups_at_most(versions, request, rows, self._options.limits) if may_combine else None,
            lease=self._kept(spec, table, version, request, wanted.tablets, versions, splits) if spec.pin else None,
        )

    def _kept(
        self,
        spec: ScanSpec,
        table: Table,
        version: TableVersion,
        request: ScanRequest,
        tablets: list[Tablet],
        versions: list[Version],
        splits: list[ScanSplit],
    ) -> str:
        by_tablet = {tablet.tablet_id: tablet_version for tablet, tablet_version in zip(tablets, versions, strict=True)}
        pinned = spec.pinned(request.snapshot)
        scan = PlannedScan(pinned, table, version, request.snapshot, request.changes, by_tablet)
        return self._planned.keep(scan, splits)

    def last_change(self, table: str) -> int:
        """See StoreService."""
        self._mvcc.check_now()
        timestamp = self._table(table).last_change
        self._mvcc.wait_for(timestamp)
        return timestamp

    def release(self, lease: str) -> None:
        """See StoreService."""
        self._planned.end(lease)

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        found = self._table(table)
        reads = KeyReads(found, keys, self._mvcc.snapshot, self._options.limits)
        if (rows := reads.whole()) is not None:
            return ScanStream(rows.schema, None, iter((rows,)), source=(found.table_id, reads.schema))
        schema, batches = begun(self._pieces(found, reads))
        return ScanStream(schema, None, batches, source=(found.table_id, reads.schema))

    def _pieces(self, table: Table, reads: KeyReads) -> Iterator[pa.RecordBatch]:
        with self._snapshots.holding(table, self._mvcc.snapshot()), self._damage.noticing():
            yield from reads.pieces()

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See KeyReader."""
        try:
            return self._table(table.name).get_row(table, key, self._mvcc.snapshot, self._options.limits)
        except UndecidedError:
            return only_row(self.look_up(table.name, key_of(key, table)).to_table())

    def _key(self, spec: ScanSpec) -> list[str]:
        """Return the key columns of a scan's table, after checking that its sort columns exist."""
        schema = self._table(spec.table).schema
        for term in spec.order_by or ():
            schema.column(term.column)
        return [column.name for column in schema.key]

    def _resolve(self, spec: ScanSpec) -> tuple[Table, TableVersion, scanning.Wanted, ScanRequest]:
        table = self._table(spec.checked().table)
        version = table.version
        request = self._request(spec, table, version, *self._snapshots.range(spec, table, version))
        return table, version, scanning.wanted_tablets(spec, table, version, request), request

    def _request(
        self, spec: ScanSpec, table: Table, version: TableVersion, snapshot: int, changes: ChangeRange | None
    ) -> ScanRequest:
        chunk_bytes = self._options.scan_batch_bytes
        return scanning.resolve_ticket(
            spec, table, version, snapshot, changes, self._filters, chunk_bytes, self._is_far
        )


def _count_rows(rows: int, tablets: list[Tablet], versions: list[Version]) -> None:
    """Divide the rows that a scan has read among its tablets by their sizes, which cost a call for each rowset."""
    if not rows:
        return
    if len(tablets) == 1:
        tablets[0].rows_read += rows
        return
    sizes = [sum(map(len, version.rowsets())) for version in versions]
    total = max(sum(sizes), 1)
    for tablet, size in zip(tablets, sizes, strict=True):
        tablet.rows_read += rows * size // total


def _whole(spec: ScanSpec, request: ScanRequest, rows: pa.RecordBatch, source: tuple[int, TableSchema]) -> ScanStream:
    """Return a stream of rows that have been read."""
    found = [rows] if rows.num_rows else []
    marked = (Marked(batch, None) for batch in found) if spec.marks else None
    return ScanStream(request.schema, request.snapshot, (batch for batch in found), marked, source=source)

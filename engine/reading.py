"""Reading: the part of a store's doors through which rows come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TypeVar

import pyarrow as pa

from ..schemas.description import ScanPlan
from ..schemas.scan import ScanSpec
from ..schemas.service import ScanStream
from ..schemas.sorting import sorted_stream, unsorted
from . import scanning
from .catalog import Catalog
from .damage import DamageRegistry, noticing
from .layout import Layout
from .mvcc.mvcc import MvccManager
from .options import StoreOptions
from .snapshots import Snapshots
from .table import Table
from .tablet.chunk import ScanRequest

Item = TypeVar("Item")


class Reading(ABC):
    """See ``schemas.service.StoreService`` for what the methods do."""

    options: StoreOptions
    damage: DamageRegistry
    _catalog: Catalog
    _mvcc: MvccManager
    _pool: Executor
    _snapshots: Snapshots

    @abstractmethod
    def _check_open(self) -> None:
        """Raise UnavailableError when the store is closed."""

    @noticing
    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        self._check_open()
        if spec.checked().order_by:
            return sorted_stream(spec, self._key(spec), self.scan)
        options = self.options
        while True:
            table, layout, wanted, request = self._resolve(spec)
            ahead = 2 * options.scan_threads
            what = spec, table, layout, request, wanted.tablets, self._pool, ahead
            marked = scanning.run_marked(*what) if spec.marks and not request.aggregate else None
            batches = scanning.run(*what, options.limits) if marked is None else scanning.unmarked(marked)
            if table.layout is layout:  # else a pinned rowset may lack a dropped column, or a new tablet its rows
                told = None if marked is None else self._noticed(marked)
                return ScanStream(request.schema, request.snapshot, self._noticed(batches), told)

    def _noticed(self, items: Iterator[Item]) -> Iterator[Item]:
        with self.damage.noticing():
            yield from items

    @noticing
    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        self._check_open()
        spec = unsorted(spec.checked(), self._key(spec))
        table, layout, wanted, request = self._resolve(spec)
        splits, explain = scanning.estimate(spec, wanted, table, layout, request)
        read_here, read_all = wanted.sums
        return ScanPlan(
            snapshot=request.snapshot,
            schema_version=layout.schema.version,
            splits=splits,
            planned=scanning.digest(table, request),
            explain=explain,
            tablets_here=layout.tablets_here,
            tablets_all=layout.tablets_all,
            read_here=read_here,
            read_all=read_all,
        )

    @noticing
    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """See StoreService."""
        self._check_open()
        return self._catalog.table(table).get(keys, self._mvcc.snapshot, self.options.limits)

    def _key(self, spec: ScanSpec) -> list[str]:
        """Return the key columns of a scan's table, once those that it is sorted by are found there."""
        schema = self._catalog.table(spec.table).schema
        for term in spec.order_by or ():
            schema.column(term.column)
        return [column.name for column in schema.key]

    def _resolve(self, spec: ScanSpec) -> tuple[Table, Layout, scanning.Wanted, ScanRequest]:
        table = self._catalog.table(spec.checked().table)
        layout = table.layout
        snapshot, changes = self._snapshots.range(spec, table, layout)
        options = self.options
        limits, chunk_bytes = options.limits, options.scan_batch_bytes
        request = scanning.resolve_ticket(spec, table, layout, snapshot, changes, limits, chunk_bytes)
        return table, layout, scanning.wanted_tablets(spec, table, layout, request), request

"""What reads the rows of a table for an engine: the scanners and the fragments of a dataset.

They answer as those of ``pyarrow.dataset`` do, without being such: engines call them by name. Batches come as the store
yields them, without a copy, and one at a time as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.service import ScanStream
from ....schemas.rows.scan import ScanSpec
from ....schemas.rows.scan_plan import ScanPlan
from .begun import BegunPart
from .pushed import PushedFilter, one_nan


class ScanService(Protocol):
    """The service of a store as the dataset of an SQL engine needs it: the reads of ``StoreService``."""

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """Divide a scan into splits."""
        ...

    def scan(self, spec: ScanSpec) -> ScanStream:
        """Start a scan."""
        ...


@runtime_checkable
class SplitService(Protocol):
    """The service of a store of several servers, as the dataset of an SQL engine needs it: it reads a split wherever
    its tablet is now."""

    def scan_split(self, server: str, ticket: ScanSpec) -> ScanStream:
        """Start the scan of one split of a plan, which ``server`` made."""
        ...


@dataclass(frozen=True, slots=True)
class Ticket:
    """A part of a table for an SQL engine to read: the whole, or a split of a plan."""

    spec: ScanSpec
    server: str | None = None
    """Of several servers, the one that planned it."""
    rows: int | None = None
    """An estimate; None: not known."""
    begun: BegunPart | None = None
    """Of a read that was begun: its part."""


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table at one snapshot, as the scanners of its dataset read it."""

    store: ScanService
    name: str
    schema: pa.Schema
    """The columns as the store has them."""
    snapshot: int
    views: bool

    def shown(self, names: Sequence[str]) -> pa.Schema:
        """Return the schema of columns as an engine sees it."""
        for name in names:
            if self.schema.get_field_index(name) < 0:
                raise InvalidArgumentError(
                    f"table {self.name!r} has no column {name!r}; it has: {', '.join(self.schema.names)}"
                )
        fields = [self.schema.field(name) for name in names]
        return pa.schema([each.with_type(view_of(each.type)) for each in fields] if self.views else fields)

    def whole(self) -> Ticket:
        """Return the ticket of the whole table."""
        return Ticket(ScanSpec(table=self.name, as_of=self.snapshot))

    def batches(
        self, ticket: Ticket, names: Sequence[str], pushed: PushedFilter, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns ``names`` of the rows that a filter selects. Closing the iterator ends the scan."""
        read = list(dict.fromkeys([*names, *pushed.columns]))
        changes: dict[str, Any] = {"columns": read, "where": pushed.where}
        changes["limit"] = limit if pushed.is_exact else None
        stream = self._opened(ticket, ticket.spec.model_copy(update=changes))
        schema = self.shown(names)
        left = limit
        try:
            for stored in stream.batches:
                batch = one_nan(stored)
                batch = (batch if pushed.is_exact else pushed.kept(batch)).select(list(names))
                batch = batch if left is None else batch.slice(0, left)
                left = left if left is None else left - batch.num_rows
                if batch.num_rows:
                    yield _with_views(batch, schema) if self.views else batch
                if left == 0:
                    return
        finally:
            stream.close()

    def _opened(self, ticket: Ticket, spec: ScanSpec) -> ScanStream:
        if ticket.begun is not None:
            return ticket.begun.stream(spec)
        if ticket.server is not None and isinstance(self.store, SplitService):
            return self.store.scan_split(ticket.server, spec)
        return self.store.scan(spec)

    def count(self, tickets: Sequence[Ticket], pushed: PushedFilter) -> int:
        """Return the number of rows that a filter selects. The store counts them if it reads the whole table."""
        if pushed.is_exact and len(tickets) == 1 and not tickets[0].spec.is_part:
            changes = {"aggregate": {"rows": ("*", "count")}, "where": pushed.where}
            stream = self.store.scan(tickets[0].spec.model_copy(update=changes))
            return stream.to_table().column(0)[0].as_py()
        return sum(batch.num_rows for ticket in tickets for batch in self.batches(ticket, [], pushed))


def view_of(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.string_view()
    return pa.binary_view() if pa.types.is_binary(kind) else kind


def _with_views(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with views of its texts, which stay where they are."""
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch


class TableScanner:
    """Reads some columns of the rows that a filter selects, as a ``pyarrow.dataset.Scanner`` does; each call reads
    anew."""

    def __init__(
        self, source: TableSource, tickets: Sequence[Ticket], names: Sequence[str], pushed: PushedFilter
    ) -> None:
        self._source = source
        self._tickets = tickets
        self._names = list(names)
        self._pushed = pushed
        self.projected_schema = source.shown(names)
        """The schema of the batches."""

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._source.shown(self._source.schema.names)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, as they are read. Closing the iterator ends the scan."""
        return self._batches(None)

    def _batches(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        for ticket in self._tickets if limit != 0 else ():
            for batch in self._source.batches(ticket, self._names, self._pushed, limit):
                yield batch
                if limit is not None:
                    limit -= batch.num_rows
            if limit == 0:
                return

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader that fetches batches on demand."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return all rows, in memory."""
        return _table(list(self.to_batches()), self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self._source.count(self._tickets, self._pushed)

    def head(self, num_rows: int) -> pa.Table:
        """Return some rows: as many, if there are so many."""
        if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 0:
            raise InvalidArgumentError(f"head takes a number of rows from 0 on, not {num_rows!r:.100}")
        return _table(list(self._batches(num_rows)), self.projected_schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows by the Arrow PyCapsule protocol."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def scan_batches(self) -> Iterator[Any]:
        """Refused: batches have no fragments of files."""
        raise _refusal("scan_batches", "read to_batches()")

    def take(self, indices: object) -> pa.Table:
        """Refused: rows have keys and no places."""
        raise _refusal("take", "read rows by their keys with Table.get_many")


def _table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return batches as a table; without columns it still has rows."""
    if not len(schema):
        rows = sum(batch.num_rows for batch in batches)
        return pa.table({"rows": pa.nulls(rows)}).select([])
    return pa.Table.from_batches(batches, schema)


def _refusal(call: str, instead: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the dataset of a table has no {call}: {instead}")

"""A StoreService of dicts: small enough to be right by reading, for testing what stands in front of a store.

Every commit keeps a whole copy of its table, so ``as_of`` is a lookup. Filters are trees of comparisons joined by
``and``; everything else about filters is the engine's to test.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from nyala.schemas.cells.literal import from_json
from nyala.schemas.cells.timestamp import parse_moment
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.protocol.service import KeyReader, PendingResult, RowWriter, ScanStream
from nyala.schemas.protocol.verb import Verb
from nyala.schemas.protocol.verbs import Verbs
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.scan_plan import ScanPlan, ScanSplit
from nyala.schemas.rows.statement import Statement
from nyala.schemas.rows.transaction import StagedBatch, StagedShape, StageResult, TransactionCommit, TransactionResult
from nyala.schemas.rows.write import Durability, RowError, WriteCommand, WriteResult
from nyala.schemas.store.description import (
    DroppedTable,
    Health,
    TableDescription,
    TableStats,
    TabletMap,
    TabletPlace,
    TabletStats,
)
from nyala.schemas.store.grants import Grant
from nyala.schemas.table.alter import Alteration
from nyala.schemas.table.altered import TableState, altered
from nyala.schemas.table.partition_schema import UNPARTITIONED, WHOLE
from nyala.schemas.table.table import TableDefinition, TableSchema

Key = tuple[Any, ...]
Row = dict[str, Any]
Rows = dict[Key, Row]
OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class FakeTable:
    """One table: its schema and every state it was in."""

    def __init__(self, definition: TableDefinition, table_id: int) -> None:
        self.schema = TableSchema.create(definition, Limits())
        self.description = TableDescription(
            name=definition.name,
            table_id=table_id,
            schema_version=1,
            columns=list(self.schema.columns),
            primary_key=definition.primary_key,
            options=definition.options,
        )
        self.states: list[tuple[int, Rows]] = [(0, {})]

    def at(self, timestamp: int) -> Rows:
        return [rows for moment, rows in self.states if moment <= timestamp][-1]


@dataclass
class Done:
    """See PendingResult."""

    answer: WriteResult

    def result(self) -> WriteResult:
        return self.answer


class FakeStore(Verbs, KeyReader, RowWriter):
    """See StoreService. ``batch_rows`` is how many rows a scan's batches have."""

    def __init__(self, batch_rows: int = 1000) -> None:
        self.batch_rows = batch_rows
        self.open_scans = 0
        self.closed = False
        self._lock = threading.RLock()
        self._tables: dict[str, FakeTable] = {}
        self._dropped: dict[str, tuple[FakeTable, datetime]] = {}
        self._timestamp = 1 << 12
        self._staged: dict[str, dict[str, list[tuple[WriteCommand, pa.RecordBatch]]]] = {}

    def create_table(self, definition: TableDefinition) -> TableDescription:
        with self._lock:
            if definition.name in self._tables:
                if definition.if_not_exists:
                    return self._tables[definition.name].description
                raise AlreadyPresentError(f"table {definition.name!r} already exists")
            table = self._tables[definition.name] = FakeTable(definition, len(self._tables) + 1)
            return table.description

    def alter_table(self, alteration: Alteration) -> TableDescription:
        table = self._table(alteration.table)
        state = TableState(alteration.table, table.schema, table.description.options)
        schema = altered(state, alteration.steps, Limits()).schema
        update = {"schema_version": schema.version, "columns": list(schema.columns)}
        table.description = table.description.model_copy(update=update)
        return table.description

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        table = self._table(name)
        del self._tables[name]
        if keep_seconds:
            self._dropped[name] = table, datetime.now(UTC) + timedelta(seconds=keep_seconds)

    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        if table not in self._dropped:
            raise NotFoundError(f"no dropped table {table!r} can be recalled")
        found = self._tables[new_name or str(table)] = self._dropped.pop(str(table))[0]
        return found.description

    def dropped_tables(self) -> list[DroppedTable]:
        return [
            DroppedTable(table_id=table.description.table_id, name=name, until=until)
            for name, (table, until) in self._dropped.items()
        ]

    def tables(self) -> list[str]:
        return sorted(self._tables)

    def describe_table(self, name: str) -> TableDescription:
        return self._table(name).description

    def tablets(self, name: str) -> TabletMap:
        place = TabletPlace(tablet=1, partition=WHOLE)
        return TabletMap(schema_version=self._table(name).schema.version, partitions=UNPARTITIONED, tablets=[place])

    def table_stats(self, name: str) -> TableStats:
        rows = len(self._table(name).states[-1][1])
        tablet = TabletStats(
            tablet=1,
            live_rows=rows,
            rowsets=1,
            delta_files=0,
            memory_bytes=rows,
            bytes_on_disk=0,
            average_rowset_height=1.0,
        )
        return TableStats(name=name, live_rows=rows, bytes_on_disk=0, tablets=[tablet], columns=[])

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        table = self._table(command.table)
        for field in batch.schema:
            if field.type != table.schema.column(field.name).field.type:
                raise InvalidArgumentError(f"column {field.name!r} has the type {field.type}")
        with self._lock:
            return self._apply(table, command, batch)

    def _apply(self, table: FakeTable, command: WriteCommand, batch: pa.RecordBatch) -> WriteResult:
        rows, errors, ignored = dict(table.states[-1][1]), [], 0
        for position, row in enumerate(batch.to_pylist()):
            code = self._apply_row(table, rows, row, command.op)
            if code and command.op.ignores:
                ignored += 1
            elif code:
                errors.append(RowError(row=position, code=code, message=f"row {position}"))
        self._timestamp += 1
        if not (errors and command.atomic):
            table.states.append((self._timestamp, rows))
        applied = 0 if errors and command.atomic else batch.num_rows - ignored - len(errors)
        return WriteResult(
            timestamp=self._timestamp,
            rows=batch.num_rows,
            applied=applied,
            ignored=ignored,
            error_count=len(errors),
            errors=errors,
            durability=command.durability or Durability.FSYNC,
        )

    def _apply_row(self, table: FakeTable, rows: Rows, row: Row, op: Operation) -> str:
        key = tuple(row.get(column.name) for column in table.schema.key)
        if None in key:
            return "INVALID_ARGUMENT"
        if op.base is Operation.INSERT and key in rows:
            return "ALREADY_PRESENT"
        if op.base in (Operation.UPDATE, Operation.DELETE) and key not in rows:
            return "NOT_FOUND"
        if op.base is Operation.DELETE:
            del rows[key]
        else:
            rows[key] = {**dict.fromkeys(table.schema.by_name), **rows.get(key, {}), **row}
        return ""

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        return Done(self.write(command, batch))

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        for batch in batches:
            yield self.write(command, batch)

    def last_change(self, table: str) -> int:
        return self._table(table).states[-1][0]

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        assert command.stage is not None
        name, part = command.stage.transaction, command.stage.part
        self._table(command.table)
        rows = [(command.model_copy(update={"op": op or command.op}), batch) for batch, op in batches]
        self._staged.setdefault(name, {})[part] = rows
        count = sum(batch.num_rows for _, batch in rows)
        return StageResult(transaction=name, part=part, rows=count, seconds_to_live=60)

    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        staged = self._staged.get(commit.transaction, {})
        if missing := [part for part in commit.parts if part not in staged]:
            raise NotFoundError(f"there is no part {missing[0]!r}")
        results = [self.write(*write) for part in commit.parts for write in staged[part]]
        self._staged.pop(commit.transaction, None)
        rows = sum(result.rows for result in results)
        return TransactionResult(timestamp=self._timestamp, rows=rows, applied=rows)

    def abort_transaction(self, transaction: str) -> None:
        self._staged.pop(transaction, None)

    def scan(self, spec: ScanSpec) -> ScanStream:
        schema, snapshot, rows = self._selected(spec)
        return ScanStream(schema, snapshot, self._batches(schema, rows))

    def _batches(self, schema: pa.Schema, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        self.open_scans += 1
        try:
            for start in range(0, len(rows), self.batch_rows):
                part = rows[start : start + self.batch_rows]
                whole = pa.RecordBatch.from_pylist(part)
                yield whole.select(schema.names).cast(schema) if schema.names else whole.select([])
        finally:
            self.open_scans -= 1

    def plan(self, spec: ScanSpec) -> ScanPlan:
        _, snapshot, rows = self._selected(spec)
        split = ScanSplit(tablet=1, rows=len(rows), bytes=100 * len(rows))
        return ScanPlan(snapshot=snapshot, schema_version=1, splits=[split], explain={"rows": len(rows)})

    def _selected(self, spec: ScanSpec) -> tuple[pa.Schema, int, list[Row]]:
        table = self._table(spec.table)
        names = list(table.schema.by_name) if spec.columns is None else spec.columns
        schema = pa.schema([table.schema.column(name).field for name in names])
        snapshot = self._timestamp if spec.as_of is None else parse_moment(spec.as_of)
        if snapshot > self._timestamp:
            raise InvalidArgumentError(f"as_of {spec.as_of} is in the future")
        state = table.at(snapshot)
        keys = sorted(state) if spec.ordered else list(state)
        rows = [state[key] for key in keys if self._matches(table, state[key], spec.where)]
        return schema, snapshot, rows if spec.limit is None else rows[: spec.limit]

    def _matches(self, table: FakeTable, row: Row, where: Any) -> bool:
        if where is None:
            return True
        if not isinstance(where, dict):
            raise InvalidArgumentError(f"the filter {where!r} is no tree")
        if where["op"] == "and":
            return all(self._matches(table, row, part) for part in where["args"])
        column = table.schema.column(where["column"])
        cell, value = row[column.name], from_json(where["value"], column.logical)
        return cell is not None and OPERATORS[where["op"]](cell, value)

    def grants(self) -> list[Grant]:
        return []

    def staged_parts(self, transaction: str) -> list[StagedShape]:
        return []

    def perform(self, verb: Verb, *_: Any, **__: Any) -> Any:
        raise UnavailableError("this store has no files")

    def release_scan(self, lease: str) -> None:
        del lease  # nothing is kept

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        found = self._table(table)
        state = found.states[-1][1]
        wanted = [tuple(row[column.name] for column in found.schema.key) for row in keys.to_pylist()]
        rows = [state[key] for key in wanted if key in state]
        return ScanStream(found.schema.arrow, None, iter([pa.RecordBatch.from_pylist(rows, schema=found.schema.arrow)]))

    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        raise InvalidArgumentError("this store remembers no commits")

    def execute(self, statement: Statement) -> WriteResult:
        raise InvalidArgumentError("this store executes no statements")

    def move_tablet(self, table: str, tablet: int, to: str, server: str | None = None, progress: object = None) -> None:
        raise InvalidArgumentError("there is no other server")

    def maintain(self, table: str, op: str) -> dict[str, Any]:
        self._table(table)
        if op not in ("flush", "flush_deltas"):
            raise InvalidArgumentError(f"unknown maintenance operation {op!r}")
        return {"op": op, "rows": 0}

    def now(self, at_least: int = 0) -> int:
        return max(self._timestamp, at_least)

    def health(self) -> Health:
        return Health(status="ok", version="fake")

    def close(self) -> None:
        self.closed = True

    def _table(self, name: str) -> FakeTable:
        if self.closed:
            raise UnavailableError("the store is closed")
        if found := self._tables.get(name):
            return found
        raise NotFoundError(f"there is no table {name!r}")

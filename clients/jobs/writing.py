"""Writes the rows of tasks into a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ...schemas.cells.literal import from_json
from ...schemas.errors import RowErrors
from ...schemas.protocol.service import StoreService
from ...schemas.rows.operation import Operation
from ...schemas.rows.write import WriteCommand, WriteResult, combine
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from ..convert.casting import cast
from ..convert.data import WriteData
from .link import StoreLink


def write_rows(
    service: StoreService, about: TableDescription, batches: Iterator[pa.RecordBatch], schema: pa.Schema, op: Operation
) -> int:
    """Write the rows of a job's task to a table in commits of a good size; return the number of applied rows. If ``op``
    is an upsert or ``delete_ignore``, writing them again changes nothing.

    Raises:
        RowErrors: rows were refused; the others are applied.
    """
    key = about.primary_key if op.base in (Operation.INSERT, Operation.UPSERT) else ()
    data = WriteData(pa.RecordBatchReader.from_batches(schema, batches), about.columns, key=key)
    results: list[WriteResult] = []
    rows = 0
    for result in service.write_all(WriteCommand(table=about.name, op=op), data):
        results.append(result.shifted(rows))
        rows += result.rows
    if not results:
        return 0
    result = combine(results)
    if result.error_count:
        raise RowErrors(result)
    return result.applied


def replacing(about: TableDescription) -> Operation:
    """Return the operation with which a resumed run of a job can write rows again: immutable cells, which only new rows
    take, then stay unchanged."""
    return Operation.UPSERT_IGNORE if any(column.immutable for column in about.columns) else Operation.UPSERT


@dataclass(frozen=True)
class FillTask(ABC):
    """A task of a job that fills a table: write some rows of a table into another. Can be sent to other processes."""

    was: TableDescription
    """The table that the rows are of."""
    target: StoreLink
    into: TableDescription
    """The table to write to, with the column ids of ``was``."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""

    def write(self) -> int:
        """Write the rows, perhaps again; return their number."""
        projection = Projection(self.was, self.into)
        rows = map(projection.rows, self.batches())
        return write_rows(self.target.service, self.into, rows, projection.schema, replacing(self.into))


class Projection:
    """Converts the rows that a job read, of an earlier version of a table, to its current columns; column ids identify
    columns."""

    def __init__(self, was: TableDescription, becomes: TableDescription) -> None:
        """Columns that ``was`` lacks show their read default, as in rows older than the column."""
        self._becomes = list(becomes.columns)
        self._was: Mapping[int, ColumnSchema] = {column.id: column for column in was.columns}
        self.schema = pa.schema([column.field.with_nullable(True) for column in self._becomes])
        self.key = pa.schema(list(self.schema)[: len(becomes.primary_key)])

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with all columns."""
        arrays = [self._column(batch, column) for column in self._becomes]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the key columns."""
        arrays = [self._column(batch, column) for column in self._becomes[: len(self.key)]]
        return pa.RecordBatch.from_arrays(arrays, schema=self.key)

    def _column(self, batch: pa.RecordBatch, column: ColumnSchema) -> pa.Array:
        earlier = self._was.get(column.id)
        if earlier is not None:
            return cast(batch.column(earlier.name), column.logical, column.name)
        return constant(column, column.read_default, batch.num_rows)


def constant(column: ColumnSchema, value: object, count: int) -> pa.Array:
    """Return the column of one value, given as JSON, that a job writes for rows that lack it."""
    cell = from_json(value, column.logical) if value is not None else None
    return pa.repeat(pa.scalar(cell, column.field.type), count)

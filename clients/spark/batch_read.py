"""Reads a table, or its changes, as a batch: one Spark task for each part of the scan.

``pushFilters`` is deliberately not overridden. Spark 4.3.0 keeps one read plan for all queries over a DataFrame, with
the first query's filters, and would return one query's rows to another. The option ``filter``, which the store
evaluates, belongs to the load and not to a query; the Java shim, where used, creates a read for each query and puts the
query's filters into that option.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...schemas.rows.aggregate import aggregate_schema
from ...schemas.rows.changes import ChangeSpec
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import TableDescription
from ...schemas.table.names import BEFORE, is_of_feed
from ..flight.scan_parts import ScanPart
from .options import BatchReadOptions, StreamReadOptions, is_of_stream, parse
from .part_batches import batches_of
from .plain_errors import plain_errors
from .statement import insertable
from .types import (
    answer_schema,
    arrow_schema,
    changes_schema,
    check_case,
    chosen,
    conform,
    projection,
    table_schema,
)


@dataclass
class ScanPartition(InputPartition):
    """One Spark task of a batch read: a part of a scan at a fixed snapshot."""

    part: ScanPart


class BatchReader(DataSourceReader):
    """Reads a table for Spark as a batch: plans the parts once, in the planner's process; reads each in a task."""

    def __init__(self, schema: StructType, options: BatchReadOptions) -> None:
        """Take the schema that Spark expects.

        Raises:
            StoreError: the table lacks such columns, or cannot be reached.
        """
        self._names = projection(schema, source_schema(options))
        self._schema = schema
        self._options = options

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        """Return the parts, in no particular order. All have one snapshot, whenever they are read."""
        parts = self._options.server().parts(scan_of(self._options, self._names.values()))
        return [ScanPartition(part) for part in parts.parts]

    @plain_errors
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. If there are no parts, Spark passes a partition of its own."""
        if isinstance(partition, ScanPartition):
            check_case(self._names)
            wanted = arrow_schema(self._schema)
            for batch in batches_of(self._options, partition.part):
                yield conform(batch, wanted, self._names)


def asked_schema(given: Mapping[str, str]) -> StructType:
    """Return the columns that a read with Spark's raw options returns. Spark does not say whether it is a stream.

    Raises:
        StoreError: an option is invalid, or there is no such table or column.
    """
    if is_of_stream(given):
        return source_schema(parse(StreamReadOptions, given, "readStream"))
    return source_schema(parse(BatchReadOptions, given, "read"))


def source_schema(options: BatchReadOptions | StreamReadOptions) -> StructType:
    """Return the columns of a Spark read: those of the table, of its changes, or its measures.

    Raises:
        StoreError: there is no such table or column.
    """
    return schema_in(options.server(patient=False).describe_table(options.table), options)  # report a wrong URI at once


def schema_in(table: TableDescription, options: BatchReadOptions | StreamReadOptions) -> StructType:
    """Return the columns of a Spark read of a table. Raises InvalidArgumentError: there is no such column."""
    columns = chosen(table.columns, options.columns)
    if isinstance(options, BatchReadOptions) and options.aggregate is not None:
        fields = pa.schema([column.field for column in columns])
        return answer_schema(aggregate_schema(fields, options.aggregate, ()))
    if not isinstance(options, BatchReadOptions) or options.start_timestamp is not None:
        return changes_schema(columns, options.before_values)
    rows = table_schema(columns)
    return insertable(rows, columns, options, not table.unique_key) if options.is_writable else rows


def scan_of(options: BatchReadOptions, names: Iterable[str]) -> ScanSpec:
    """Return the scan by which a Spark read gets the columns ``names``, in any order."""
    changes = None
    if options.start_timestamp is not None:
        changes = ChangeSpec(
            since=options.start_timestamp,
            until=options.end_timestamp,
            before=options.before_values,
            every=options.read_change_feed,
        )
    return ScanSpec(
        table=options.table,
        columns=None if options.aggregate else columns_of(names),
        where=options.filter,
        as_of=options.snapshot,
        aggregate=options.aggregate,
        changes=changes,
        split_bytes=options.split_size_bytes,
    )


def columns_of(names: Iterable[str]) -> list[str]:
    """Return the table columns behind the columns of a Spark read of rows or of changes."""
    columns = dict.fromkeys(name.removeprefix(BEFORE) for name in names)
    return [name for name in columns if not is_of_feed(name)]

"""Reading a table, or what changed in it, as a batch: a task of Spark for each part of the scan.

``pushFilters`` is not overridden, on purpose. Spark 4.3.0 keeps one read plan for all queries over a DataFrame, with
the filters of whichever came first, and would give the rows of one query to another. The option ``filter``, which is
evaluated in the store, belongs to the load and not to a query; the shim in Java, where it is, makes a read of its own
for each query and writes the query's filters into that option.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...schemas.aggregate import aggregate_schema
from ...schemas.changes import BEFORE, ChangeSpec
from ...schemas.scan import ScanSpec
from ..scan_parts import ScanPart
from .connection import batches_of, store_at
from .options import ReadOptions, StreamReadOptions
from .types import answer_schema, arrow_schema, changes_schema, check_projection, chosen, conform, table_schema


@dataclass
class Part(InputPartition):
    """One task: a part of a scan that is pinned to a snapshot."""

    part: ScanPart


class BatchReader(DataSourceReader):
    """Plans the parts in a process of the planner, once; reads each in a task."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        """Take the schema that Spark expects.

        Raises:
            StoreError: the table has no such columns, or cannot be asked.
        """
        check_projection(schema, source_schema(options))
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the parts, in an order of no meaning. All see one snapshot, whenever they are read."""
        parts = store_at(self._options.uri).parts(scan_of(self._options, self._schema))
        return [Part(part) for part in parts.parts]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one part. Where there is none to read Spark makes up a partition of its own."""
        if isinstance(partition, Part):
            yield from read_part(self._options.uri, partition.part, self._schema)


def read_part(uri: str, part: ScanPart, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a part in the form that Spark demands for ``schema``."""
    wanted = arrow_schema(schema)
    for batch in batches_of(uri, part):
        yield conform(batch, wanted)


def source_schema(options: ReadOptions | StreamReadOptions) -> StructType:
    """Return the columns that a read gives: those of the table, of its changes, or its measures.

    Raises:
        StoreError: there is no such table or column.
    """
    table = store_at(options.uri).describe_table(options.table)
    columns = chosen(table.columns, options.columns)
    if isinstance(options, ReadOptions) and options.aggregate is not None:
        fields = pa.schema([column.field for column in columns])
        return answer_schema(aggregate_schema(fields, options.aggregate, ()))
    is_table = isinstance(options, ReadOptions) and options.start_timestamp is None
    return table_schema(columns) if is_table else changes_schema(columns, options.before_values)


def scan_of(options: ReadOptions, schema: StructType) -> ScanSpec:
    """Return the scan that gives the columns of ``schema``."""
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
        columns=None if options.aggregate else columns_of(schema),
        where=options.filter,
        as_of=options.snapshot,
        aggregate=options.aggregate,
        changes=changes,
        split_bytes=options.split_size_bytes,
    )


def columns_of(schema: StructType) -> list[str]:
    """Return the columns of the table that the columns of a scan or its changes come from."""
    names = [name.removeprefix(BEFORE) for name in schema.fieldNames()]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]

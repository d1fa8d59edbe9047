"""Columns of types that Parquet lacks, as files have them: times in seconds as milliseconds, intervals
of months as their 16 bytes."""

from __future__ import annotations

import pyarrow as pa

from ...convert.leaves import with_leaves


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of ``schema`` as the Parquet files of jobs have them."""
    return pa.schema([field.with_type(with_leaves(field.type, _in_file)) for field in schema], schema.metadata)


def to_parquet(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a ``parquet_schema``, for the Parquet files of jobs, from a batch that may have more."""
    return pa.RecordBatch.from_arrays([_cells(batch.column(field.name), field.type) for field in schema], schema=schema)


def from_parquet(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a Parquet file of jobs with the types of ``schema``."""
    arrays = [_cells(cells, field.type) for cells, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cells(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_interval(kind) or pa.types.is_interval(cells.type):
        return cells.view(kind)
    return cells if cells.type == kind else cells.cast(kind)


def _in_file(kind: pa.DataType) -> pa.DataType:
    if kind == pa.time32("s"):
        return pa.time32("ms")
    return pa.binary(16) if pa.types.is_interval(kind) else kind

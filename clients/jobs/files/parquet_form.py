"""Columns of types that Parquet lacks, as files have them: times in seconds as milliseconds, intervals
of months as their 16 bytes."""

from __future__ import annotations

import pyarrow as pa


def parquet_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of ``schema`` as the Parquet files of jobs have them."""
    return pa.schema([field.with_type(_in_file(field.type)) for field in schema], schema.metadata)


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
    is_ = pa.types
    if kind == pa.time32("s"):
        return pa.time32("ms")
    if is_.is_interval(kind):
        return pa.binary(16)
    if is_.is_struct(kind):
        return pa.struct([field.with_type(_in_file(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(_in_file(kind.key_type), _in_file(kind.item_type))
    if is_.is_fixed_size_list(kind):
        return pa.list_(_in_file(kind.value_type), kind.list_size)
    if is_.is_nested(kind):
        return (pa.large_list if is_.is_large_list(kind) else pa.list_)(_in_file(kind.value_type))
    return kind

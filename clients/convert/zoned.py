"""Timestamps with the zone UTC, as readers of files expect of moments: those of a scan have none, and mean UTC."""

from __future__ import annotations

import pyarrow as pa

from .leaves import with_leaves


def zoned(schema: pa.Schema) -> pa.Schema:
    """Convert the schema of a scan's batches to one with the zone UTC in its timestamps, as readers of files expect,
    also in lists, structs and maps; to cast rows to it copies no timestamp.

    Spark, DuckDB and others take timestamps without a zone for readings of a clock that may hang anywhere.
    """
    return pa.schema([field.with_type(with_leaves(field.type, _moment)) for field in schema], schema.metadata)


def _moment(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if kind == pa.timestamp("us") else kind

"""Timestamps with the zone UTC, as readers of files expect of moments: those of a scan have none, and mean UTC."""

from __future__ import annotations

import pyarrow as pa


def zoned(schema: pa.Schema) -> pa.Schema:
    """Convert the schema of a scan's batches to one with the zone UTC in its timestamps, as readers of files expect; to
    cast rows to it copies nothing.

    Spark, DuckDB and others take timestamps without a zone for readings of a clock that may hang anywhere.
    """
    fields = [field.with_type(pa.timestamp("us", "UTC")) if _is_moment(field) else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _is_moment(field: pa.Field) -> bool:
    return field.type == pa.timestamp("us")

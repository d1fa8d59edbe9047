"""Lists and objects as text of JSON, for columns of text: no column type holds them as they are."""

from __future__ import annotations

import pyarrow as pa

from ...convert.json_cell import json_text


def with_json_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a loaded file whose nested columns are text of JSON. Cells inside that JSON lacks are as in a scan
    of JSON."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            cells = rows.column(place).to_pylist(maps_as_pydicts="strict")
            text = pa.array([None if cell is None else json_text(cell) for cell in cells], pa.string())
            rows = rows.set_column(place, pa.field(field.name, pa.string(), field.nullable), text)
    return rows


def schema_of_text(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a loaded file's rows after ``with_json_text``."""
    return pa.schema([field.with_type(pa.string()) if pa.types.is_nested(field.type) else field for field in schema])

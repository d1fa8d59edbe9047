"""Filters as DuckDB reads them."""

import base64
from decimal import Decimal
from typing import Any

from nyala.schemas.rows.predicate import Junction, Not
from tests.engine.filter import model


def duckdb_literal(value: Any, column: str) -> str:
    """A literal as DuckDB reads it; for a float column of that type, as it would else compare as decimals."""
    if isinstance(value, dict) and "base64" in value:
        return f"from_base64('{value['base64']}')"
    if isinstance(value, dict) and "timestamp" in value:
        text = value["timestamp"]
        if isinstance(text, int):
            return f"make_timestamp({text})"
        is_zoned = text.endswith("Z") or "+" in text
        return f"CAST(TIMESTAMPTZ '{text}' AS TIMESTAMP)" if is_zoned else f"TIMESTAMP '{text}'"
    kind = {"float_c": "FLOAT", "double_c": "DOUBLE"}.get(column)
    if isinstance(value, dict) and "decimal" in value:
        value = {"decimal": f"{Decimal(value['decimal']):f}"}  # DuckDB takes 1e3 for a double, and so the list it is in
    written = model.sql_literal(value)
    if "\0" in written:
        return f"decode(from_base64('{base64.b64encode(str(value).encode()).decode()}'))"
    if isinstance(value, str) and column in ("date_c", "timestamp_us_c"):
        return f"TIMESTAMP {written}"
    return f"CAST({written} AS {kind})" if kind else written


def is_common_ground(node):
    """Whether DuckDB reads the same literals: no number past its widest decimal, no fraction of a microsecond."""
    if isinstance(node, Not):
        return is_common_ground(node.arg)
    if isinstance(node, Junction):
        return all(map(is_common_ground, node.args))
    text = repr(node)
    return not any(part in text for part in ("1e30", "1e-30", "0000001"))

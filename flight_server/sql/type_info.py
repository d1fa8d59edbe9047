"""What Flight SQL's XdbcTypeInfo says of the types of columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_INT, _TEXT = pa.int32(), pa.string()
SCHEMA = pa.schema(
    [
        pa.field("type_name", _TEXT, False),
        pa.field("data_type", _INT, False),
        pa.field("column_size", _INT),
        pa.field("literal_prefix", _TEXT),
        pa.field("literal_suffix", _TEXT),
        pa.field("create_params", pa.list_(pa.field("item", _TEXT, False))),
        pa.field("nullable", _INT, False),
        pa.field("case_sensitive", pa.bool_(), False),
        pa.field("searchable", _INT, False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", _TEXT),
        pa.field("minimum_scale", _INT),
        pa.field("maximum_scale", _INT),
        pa.field("sql_data_type", _INT, False),
        pa.field("datetime_subcode", _INT),
        pa.field("num_prec_radix", _INT),
        pa.field("interval_precision", _INT),
    ]
)
"""The columns of the answer."""
_DATETIME = 9


def _number(name: str, code: int, size: int, radix: int = 10, **more: Any) -> dict[str, Any]:
    return {"type_name": name, "data_type": code, "column_size": size, "num_prec_radix": radix} | more


def _quoted(name: str, code: int, size: int | None, prefix: str = "'", **more: Any) -> dict[str, Any]:
    literal = {"literal_prefix": prefix, "literal_suffix": "'", "searchable": 3}
    return {"type_name": name, "data_type": code, "column_size": size} | literal | more


def _time(name: str, code: int, size: int, word: str, subcode: int) -> dict[str, Any]:
    return _quoted(name, code, size, f"{word} '", sql_data_type=_DATETIME, datetime_subcode=subcode, searchable=2)


_SCALE = {"minimum_scale": 0, "maximum_scale": 38, "create_params": ["precision", "scale"]}
_TYPES = [
    _quoted("bytea", -3, None, "X'", searchable=2),
    {"type_name": "boolean", "data_type": -7, "column_size": 1},
    _number("tinyint", -6, 3),
    _number("bigint", -5, 19),
    _number("numeric", 2, 38, **_SCALE),
    _number("decimal", 3, 38, **_SCALE),
    _number("integer", 4, 10),
    _number("smallint", 5, 5),
    _number("real", 7, 24, 2),
    _number("double precision", 8, 53, 2),
    _quoted("text", 12, None, case_sensitive=True),
    _quoted("varchar", 12, 65_535, case_sensitive=True, create_params=["length"]),
    _time("date", 91, 10, "DATE", 2),
    _time("timestamp without time zone", 93, 26, "TIMESTAMP", 3),
    _time("timestamp with time zone", 93, 32, "TIMESTAMP", 5),
]
_SIGNED = frozenset({-6, -5, 2, 3, 4, 5, 7, 8})


def type_info(data_type: int | None) -> pa.Table:
    """Answer GetXdbcTypeInfo for one type, by its number in JDBC, or for all."""
    rows = sorted(
        (_row(each) for each in _TYPES if data_type is None or each["data_type"] == data_type),
        key=lambda row: (row["data_type"], row["type_name"]),
    )
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(given: dict[str, Any]) -> dict[str, Any]:
    number = {"unsigned_attribute": False, "auto_increment": False} if given["data_type"] in _SIGNED else {}
    common = {"nullable": 1, "case_sensitive": False, "searchable": 2, "fixed_prec_scale": False}
    return {"local_type_name": given["type_name"], "sql_data_type": given["data_type"], **common, **number, **given}

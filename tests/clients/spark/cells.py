"""Rows with everything that filters trip over, and conditions on them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
_CELLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ok": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 0, 1, 127]),
    "i64": (pa.int64(), [_SMALLEST, -1, 0, 1, _LARGEST]),
    "f32": (pa.float32(), [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -1.5, 0.10000000149011612]),
    "f64": (pa.float64(), [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.1, -1.5, 5e-324, 1.7e308]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
            dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        ],
    ),
    "price": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), Decimal("0.01"), Decimal("9999999.99")]),
    "wide": (pa.decimal128(38, 10), [Decimal("-1E-10"), Decimal("1234567890123456789012345678.0123456789")]),
    "text": (pa.string(), ["", "a", "ab", "a%b", "a_b", "a\\b", "it's", "\u00e9", "e\u0301", "\uffff", "\U0001f98c"]),
    'odd.na"me': (pa.int16(), [-1, 0, 32767]),
    "raw": (pa.binary(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"]),
}  # fmt: skip
RANDOM_SCHEMA = pa.schema([pa.field("id", pa.int64(), False), *((name, kind) for name, (kind, _) in _CELLS.items())])
STORED_SCHEMA = pa.schema(
    [field.with_type(pa.timestamp("us")) if field.name == "at" else field for field in RANDOM_SCHEMA]
)
"""The same in the store, whose timestamps have no zone."""

CONDITIONS = [
    "f64 > 1", "f64 >= 0.1", "NOT f64 > 1", "f64 < 1", "f64 <> 0", "f64 = -0.0", "f64 > double('-Infinity')",
    "f64 >= double('NaN')", "f64 IN (0, 1.7e308)", "f64 NOT IN (0, 0.1)", "f64 <=> 0.1D", "NOT (f64 <=> 0.1D)",
    "f64 BETWEEN -2 AND 2", "NOT f64 BETWEEN -2 AND 2", "f32 > float('0.1')", "f32 <= 0.1", "NOT (f32 = float('0.1'))",
    "ok", "NOT ok", "ok > false", "text LIKE 'a%'", "text LIKE '%b'", "text LIKE '%\\\\%%'", "text LIKE 'a_b'",
    "text < 'e\u0301'", "text >= '\uffff'", "NOT text IN ('a', '', 'it\\'s')", "text <=> NULL", "i8 IN (1, NULL)",
    "price <= 0.005", "wide > 0", "at < TIMESTAMP '1970-01-01 00:00:00'", "day > DATE '1969-12-31' OR day IS NULL",
    "raw >= X'80'", "raw = X''", "NOT (i64 = 1 OR f64 > 0)", "(i64 > 0) = (i8 > 0)", "i64 < i8",
    "f64 IN (0.0D, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", "f64 IN (double('NaN'), 1)", "text = CAST(X'ff' AS STRING)",
]  # fmt: skip


def random_rows(rng: random.Random, count: int) -> pa.Table:
    """Return rows of ``RANDOM_SCHEMA``, a fifth of the cells NULL."""
    columns: list[Any] = [pa.array(range(count), pa.int64())]
    for kind, cells in _CELLS.values():
        columns.append(pa.array([None if rng.random() < 0.2 else rng.choice(cells) for _ in range(count)], kind))
    return pa.Table.from_arrays(columns, schema=RANDOM_SCHEMA)


def random_condition(rng: random.Random, depth: int = 3) -> str:
    """Return a condition in Spark's SQL."""
    if depth and rng.random() < 0.6:
        if rng.random() < 0.3:
            return f"NOT ({random_condition(rng, depth - 1)})"
        word = rng.choice(["AND", "OR"])
        return f"({random_condition(rng, depth - 1)} {word} {random_condition(rng, depth - 1)})"
    name = rng.choice(list(_CELLS))
    kind, cells = _CELLS[name]
    column = f"`{name}`"
    match rng.randrange(8):
        case 0:
            return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
        case 1 | 2:
            values = ", ".join(_literal(cell, kind) for cell in rng.sample(cells, rng.randint(1, min(3, len(cells)))))
            return f"{column} {rng.choice(['', 'NOT '])}IN ({values})"
        case 3 if name == "text":
            return f"startswith(text, {_literal(rng.choice(cells), kind)})"
        case 4 if name == "text":
            return f"contains(text, {_literal(rng.choice(cells), kind)})"
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return f"{column} {operator} {_literal(rng.choice(cells), kind)}"


def _literal(cell: Any, kind: pa.DataType) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return f"{'float' if kind == pa.float32() else 'double'}('{cell!r}')"
    if isinstance(cell, int):
        return "(-9223372036854775807L - 1L)" if cell == _SMALLEST else f"{cell}L" if kind == pa.int64() else str(cell)
    if isinstance(cell, dt.datetime):
        return f"TIMESTAMP '{cell.replace(tzinfo=None).isoformat(' ')}'"
    if isinstance(cell, dt.date):
        return f"DATE '{cell.isoformat()}'"
    if isinstance(cell, bytes):
        return f"X'{cell.hex()}'"
    if isinstance(cell, Decimal):
        return f"CAST('{cell:f}' AS DECIMAL({kind.precision},{kind.scale}))"
    return "'" + cell.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""A table whose cells are awkward for filters, and random filters over it, as SQL and as predicates of polars."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa

ROWS = 600
TEXTS = ["", "a", "b", "ab", "a%", "a_", "it's", "Z", "\u00e5", "long text of more than twelve letters", "\\"]
FLOATS = [0.0, -0.0, 1.0, -1.5, 5.0, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
MOMENTS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29, 12, 30), dt.datetime(2024, 3, 1)]
CENTS = [decimal.Decimal(text) for text in ("0.00", "-1.50", "2.25", "99999999.99")]
QUOTED = 'an "odd" Name'
KINDS = {
    "x": pa.int32(),
    "i": pa.int8(),
    "y": pa.int64(),
    "f": pa.float64(),
    "g": pa.float32(),
    "s": pa.string(),
    QUOTED: pa.string(),
    "b": pa.bool_(),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "c": pa.decimal128(10, 2),
    "r": pa.binary(),
}
_FLOATS_32 = [0.0, -0.0, 1.0, -1.5, 0.5, float("nan"), float("inf"), float("-inf")]
VALUES: dict[str, list[Any]] = {
    "x": [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    "i": [-128, -1, 0, 1, 5, 127],
    "y": [-(2**63) + 1, -(2**53) - 1, 0, 1, 2**53 + 1, 2**63 - 1],
    "f": FLOATS,
    "g": _FLOATS_32,
    "s": TEXTS,
    QUOTED: TEXTS,
    "b": [True, False],
    "d": DAYS,
    "t": MOMENTS,
    "c": CENTS,
    "r": [b"", b"a", b"\x00\xff", b"more than twelve bytes"],
}


def rows(random: Random, count: int = ROWS) -> pa.Table:
    """Return rows whose cells are often NULL and often equal."""
    cells: dict[str, Any] = {"id": pa.array(range(count), pa.int64())}
    for name, kind in KINDS.items():
        drawn = [None if random.random() < 0.2 else random.choice(VALUES[name]) for _ in range(count)]
        cells[name] = pa.array(drawn, kind)
    return pa.table(cells)


_SQL_TYPES = {"f": "double", "g": "real", "d": "date", "t": "timestamp", "c": "decimal(10, 2)", "i": "tinyint"}
_SQL_TYPES |= {"x": "int", "y": "bigint"}


def _sql(column: str, value: Any, typed: bool) -> str:
    """Return a value as SQL; typed, so that no engine casts the column."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'" if value else "''"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    text = f"{value!r}" if isinstance(value, int) else f"'{value}'"
    return f"CAST({text} AS {_SQL_TYPES[column]})" if typed or not isinstance(value, int) else text


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def sql_filter(random: Random, depth: int = 3, columns: list[str] | None = None) -> str:
    """Return a random condition."""
    shape = random.random()
    if depth and shape < 0.2:
        return f"NOT ({sql_filter(random, depth - 1, columns)})"
    if depth and shape < 0.6:
        joint = random.choice([" AND ", " OR "])
        parts = (sql_filter(random, depth - 1, columns) for _ in range(random.choice([2, 2, 3])))
        return "(" + joint.join(parts) + ")"
    column = random.choice(columns or list(KINDS))
    name = _name(column)
    values = VALUES[column]
    op = random.choice(["=", "<>", "<", "<=", ">", ">="])
    typed = random.random() < 0.8

    def value() -> str:
        return _sql(column, random.choice(values), typed)

    forms: list[Callable[[], str]] = [
        lambda: f"{name} {op} {value()}",
        lambda: f"{name} {op} {value()}",
        lambda: f"{value()} {op} {name}",
        lambda: f"{name} {random.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}",
        lambda: f"{name} {random.choice(['', 'NOT '])}IN ({', '.join(value() for _ in range(random.randint(1, 9)))})",
        lambda: f"{name} {random.choice(['', 'NOT '])}IN ({', '.join(value() for _ in range(4))}, NULL)",
        lambda: f"{name} IS {random.choice(['', 'NOT '])}NULL",
        lambda: f"({name} {op} {value()}) IS {random.choice(['', 'NOT '])}NULL",
        lambda: f"({name} {op} {value()}) = ({sql_filter(random, 0, columns)})",
        lambda: f"({name} IS DISTINCT FROM {value()})",
        lambda: {"s": f"{name} LIKE 'a%'", "b": name, "f": f"f {op} g", "x": f"x {op} y"}.get(
            column, f"{name} = {name}"
        ),
    ]
    return random.choice(forms)()


def polars_filter(random: Random, depth: int = 3) -> pl.Expr:
    """Return a random predicate of polars."""
    shape = random.random()
    if depth and shape < 0.2:
        return ~polars_filter(random, depth - 1)
    if depth and shape < 0.6:
        one, other = polars_filter(random, depth - 1), polars_filter(random, depth - 1)
        return random.choice([one & other, one | other, one & other, one ^ other])
    column = random.choice(list(KINDS))
    cells = pl.col(column)
    kind = pl.from_arrow(pa.array([], KINDS[column])).dtype  # pyright: ignore

    def value() -> Any:
        return pl.lit(random.choice(VALUES[column]), dtype=kind)

    listed = [random.choice(VALUES[column]) for _ in range(random.randint(1, 6))]
    forms: list[Callable[[], pl.Expr]] = [
        lambda: random.choice([cells == value(), cells != value(), value() == cells]),
        lambda: random.choice([cells < value(), cells <= value(), cells > value(), cells >= value()]),
        lambda: cells.is_between(value(), value(), closed=random.choice(["both", "left", "right", "none"])),  # pyright: ignore
        lambda: cells.is_in(pl.Series(listed, dtype=kind).implode()) if column != "c" else cells == value(),
        lambda: random.choice([cells.is_null(), cells.is_not_null()]),
        lambda: cells.eq_missing(value()),
        lambda: {
            "s": cells.str.starts_with(random.choice(TEXTS)),
            QUOTED: cells.str.ends_with(random.choice(TEXTS)),
            "f": random.choice([pl.col("f").is_nan(), pl.col("f").is_not_nan(), pl.col("f") > pl.col("g")]),
            "b": cells,
            "x": cells + 1 > pl.col("i"),
        }.get(column, cells.is_null()),
    ]
    return random.choice(forms)()

"""What expressions compute to: each value of the table is PostgreSQL's, and DuckDB's where it is not marked.

DuckDB differs by design in some: it divides integers to doubles, computes in the narrower type, and lets doubles
overflow to infinity and divide by zero; PostgreSQL and this store do not.
"""

from __future__ import annotations

import datetime as dt
import math
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from nyala.engine.expression.evaluate import evaluate
from nyala.engine.expression.rows import Rows
from nyala.engine.statement.expressions import expressions_of
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.table import TableDefinition, TableSchema

NAN, INF = math.nan, math.inf
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "k": (pa.int64(), 1),
    "i8": (pa.int8(), -128),
    "i": (pa.int32(), 7),
    "big": (pa.int64(), 2**53 + 1),
    "least": (pa.int64(), -(2**63)),
    "f": (pa.float32(), 0.1),
    "d": (pa.float64(), 2.5),
    "huge": (pa.float64(), 1e22),
    "tiny": (pa.float64(), 0.1),
    "minus_zero": (pa.float64(), -0.0),
    "inf": (pa.float64(), INF),
    "nan": (pa.float64(), NAN),
    "m": (pa.decimal128(9, 2), Decimal("9999999.99")),
    "w": (pa.decimal128(38, 10), Decimal("1234567890123456789.0123456789")),
    "s": (pa.string(), " Abc "),
    "b": (pa.bool_(), True),
    "day": (pa.date32(), dt.date(2024, 2, 29)),
    "ts": (pa.timestamp("us"), dt.datetime(2024, 2, 29, 12, 30, 15, 500000)),
    "none": (pa.int32(), None),
    "no_text": (pa.string(), None),
}
NAMES = pa.schema({name: kind for name, (kind, _) in COLUMNS.items()})
SCHEMA = TableSchema.create(TableDefinition.from_arrow("t", NAMES, ["k"]), Limits())
ROW = pa.record_batch([pa.array([cell], kind) for kind, cell in COLUMNS.values()], schema=NAMES)
FAR = pa.array([2**62, -(2**62), None], pa.int64())
SAME: list[tuple[str, str, Any]] = [
    # numbers
    ("i + 1", "bigint", 8),
    ("7 % 3", "bigint", 1),
    ("-7 % 3", "bigint", -1),
    ("7 % -3", "bigint", 1),
    ("huge % 7", "double", 4.0),
    ("1.0e0 % tiny", "double", 0.09999999999999995),
    ("5.0e0 % inf", "double", 5.0),
    ("-5.5e0 % d", "double", -0.5),
    ("nan % d", "double", NAN),
    ("inf % d", "double", NAN),
    ("1.0 % 0.1", "decimal(9,2)", Decimal("0.00")),
    ("-7.55 % 2", "decimal(9,2)", Decimal("-1.55")),
    ("m % 0.07", "decimal(9,2)", Decimal("0.05")),
    ("0.1 + 0.2", "decimal(9,2)", Decimal("0.30")),
    ("0.1e0 + 0.2e0", "double", 0.1 + 0.2),
    ("1.1 * 1.1", "decimal(9,4)", Decimal("1.2100")),
    ("big + 0.0e0", "double", 2.0**53),
    ("CAST(big AS DOUBLE)", "double", 2.0**53),
    ("CAST(big AS FLOAT)", "float", 2.0**53),
    ("big > 9007199254740992", "boolean", True),
    ("-minus_zero", "double", 0.0),
    ("-0.0e0", "double", -0.0),
    ("minus_zero = 0", "boolean", True),
    ("inf - inf", "double", NAN),
    ("inf + 1", "double", INF),
    ("nan + 1", "double", NAN),
    ("none + 1", "bigint", None),
    ("none % 2", "bigint", None),
    ("round(d)", "double", 3.0),
    ("round(-d)", "double", -3.0),
    ("round(0.125e0, 2)", "double", 0.13),
    ("round(m, 1)", "decimal(12,2)", Decimal("10000000.00")),
    ("round(-m, -1)", "decimal(12,2)", Decimal("-10000000.00")),
    ("ceil(m)", "decimal(12,2)", Decimal("10000000.00")),
    ("floor(-m)", "decimal(12,2)", Decimal("-10000000.00")),
    ("round(15, -1)", "bigint", 20),
    ("abs(-m)", "decimal(9,2)", Decimal("9999999.99")),
    ("greatest(nan, 1)", "double", NAN),
    ("greatest(inf, nan, 1)", "double", NAN),
    ("least(nan, 1)", "double", 1.0),
    ("greatest(none, 3)", "bigint", 3),
    ("coalesce(none, 2.5)", "decimal(9,2)", Decimal("2.50")),
    ("nullif(i, 7.0)", "bigint", None),
    # decimals round half away from zero, whatever they come from
    ("CAST(2.5e0 AS DECIMAL(9,0))", "decimal(9,0)", Decimal(3)),
    ("CAST(0.5e0 AS DECIMAL(9,0))", "decimal(9,0)", Decimal(1)),
    ("CAST(-0.5e0 AS DECIMAL(9,0))", "decimal(9,0)", Decimal(-1)),
    ("CAST(0.125e0 AS DECIMAL(9,2))", "decimal(9,2)", Decimal("0.13")),
    ("CAST('1.555' AS DECIMAL(5,2))", "decimal(5,2)", Decimal("1.56")),
    ("CAST('-1.555' AS DECIMAL(5,2))", "decimal(5,2)", Decimal("-1.56")),
    ("CAST(m AS DECIMAL(12,1))", "decimal(12,1)", Decimal("10000000.0")),
    ("CAST(2.5 AS INT)", "int", 3),
    ("CAST(-2.5 AS INT)", "int", -3),
    ("CAST(m AS INT)", "int", 10000000),
    # doubles round half to even
    ("CAST(d AS INT)", "int", 2),
    ("CAST(-d AS INT)", "int", -2),
    ("CAST(3.5e0 AS INT)", "int", 4),
    # bools
    ("CAST(1 AS BOOLEAN)", "boolean", True),
    ("CAST(0 AS BOOLEAN)", "boolean", False),
    ("CAST(i AS BOOLEAN)", "boolean", True),
    ("CAST(m AS BOOLEAN)", "boolean", True),
    ("CAST(minus_zero AS BOOLEAN)", "boolean", False),
    ("CAST('yes' AS BOOLEAN)", "boolean", True),
    ("CAST('false' AS BOOLEAN)", "boolean", False),
    ("CAST(no_text AS BOOLEAN)", "boolean", None),
    ("CAST(b AS TEXT)", "text", "true"),
    ("CAST(b AS INT)", "int", 1),
    # text
    ("CAST(' 42 ' AS INT)", "int", 42),
    ("CAST('nan' AS DOUBLE)", "double", NAN),
    ("CAST('-Infinity' AS DOUBLE)", "double", -INF),
    ("CAST(d AS TEXT)", "text", "2.5"),
    ("CAST(m AS TEXT)", "text", "9999999.99"),
    ("CAST(day AS TEXT)", "text", "2024-02-29"),
    ("CAST(ts AS TEXT)", "text", "2024-02-29 12:30:15.5"),
    ("CAST(CAST(day AS TIMESTAMP) AS TEXT)", "text", "2024-02-29 00:00:00"),
    ("trim(s) || 'x'", "text", "Abcx"),
    ("no_text || 'x'", "text", None),
    ("left(trim(s), -1)", "text", "Ab"),
    ("right(trim(s), -1)", "text", "bc"),
    ("substr(trim(s), 0, 2)", "text", "A"),
    ("length('\xe9\u65e5')", "bigint", 2),
    ("trim(s) ILIKE 'aB%'", "boolean", True),
    ("trim(s) LIKE 'aB%'", "boolean", False),
    # moments
    ("day + 1", "date", dt.date(2024, 3, 1)),
    ("day - DATE '2024-02-01'", "bigint", 28),
    ("CAST(TIMESTAMP '1969-12-31 23:59:59.999999' AS DATE)", "date", dt.date(1969, 12, 31)),
    ("ts + INTERVAL '90' MINUTE", "timestamp", dt.datetime(2024, 2, 29, 14, 0, 15, 500000)),
    ("ts - day = INTERVAL '45015500' MILLISECOND", "boolean", True),
    ("day < ts", "boolean", True),
    ("coalesce(CAST(NULL AS DATE) - day, 3)", "bigint", 3),
    ("CAST(day AS TIMESTAMP) = day", "boolean", True),
    ("extract(second FROM ts)", "bigint", 15),
    ("year(DATE '0001-01-01')", "bigint", 1),
    # conditions
    ("none = 1 OR b", "boolean", True),
    ("none = 1 AND b", "boolean", None),
    ("none IN (1, 2)", "boolean", None),
    ("i NOT IN (1, 7.0)", "boolean", False),
    ("f = 0.1", "boolean", True),
    ("i > 2.5", "boolean", True),
    ("i BETWEEN 6.5 AND none", "boolean", None),
    ("CASE WHEN i <> 7 AND 1 % (i - 7) = 0 THEN 1 ELSE 2 END", "bigint", 2),
    ("(none = 1 AND i + 1 = 8) IS NULL", "boolean", True),
    ("none = 1 AND i + 1 = 9", "boolean", False),
    ("coalesce(i, 1 % (i - 7))", "bigint", 7),
    ("coalesce(none, i + 1, 1 % (i - 7))", "bigint", 8),
    ("coalesce(none, none + 1, 2.5)", "decimal(9,2)", Decimal("2.50")),
    ("CASE i WHEN 7 THEN 'a' ELSE 'b' END", "text", "a"),
    ("CASE WHEN none > 1 THEN 1 ELSE 2.5 END", "decimal(9,2)", Decimal("2.50")),
]
OURS: list[tuple[str, str, Any]] = [
    ("7 / 2", "bigint", 3),
    ("-7 / 2", "bigint", -3),
    ("i8 * i8", "bigint", 16384),
    ("-i8", "bigint", 128),
    ("2147483647 + 1", "bigint", 2147483648),
    ("least % -1", "bigint", 0),
    ("w * 2", "decimal(38,10)", Decimal("2469135780246913578.0246913578")),
    ("1.0 / 3", "decimal(9,5)", Decimal("0.33333")),
    ("2 / 3.0", "decimal(38,16)", Decimal("0.6666666666666666")),
    ("concat('a', no_text)", "text", None),
    ("CAST(' On ' AS BOOLEAN)", "boolean", True),
    ("CAST('2024-02-29 12:00:00+02:00' AS TIMESTAMP)", "timestamp", dt.datetime(2024, 2, 29, 10)),
    ("now() - INTERVAL '1' DAY", "timestamp", dt.datetime(2001, 9, 8, 1, 46, 40)),
    ("CASE WHEN 1 % (i - 7) = 0 AND i <> 7 THEN 1 ELSE 2 END", "bigint", 2),
    ("CASE WHEN 1 % (i - 7) = 0 OR i = 7 THEN 1 ELSE 2 END", "bigint", 1),
    ("nan = nan", "boolean", False),
    ("nan > 1", "boolean", False),
]
REFUSED = [
    ("CAST(1e300 AS FLOAT)", "float", "beyond the range of float"),
    ("1e300", "float", "beyond the range of float"),
    ("huge * 1e300 * 1e300", "double", "overflow: a number is beyond the range of double"),
    ("1e400", "double", "beyond the range of its type"),
    ("CAST('1e400' AS DOUBLE)", "double", "beyond the range of double"),
    ("1 / 0", "bigint", "division by zero; write NULLIF"),
    ("d % 0", "double", "division by zero; write NULLIF"),
    ("1.5 % 0.0", "decimal(9,2)", "division by zero; write NULLIF"),
    ("least - 1", "bigint", "overflow"),
    ("-least", "bigint", "overflow"),
    ("abs(least)", "bigint", "overflow"),
    ("nan", "decimal(9,2)", "nan"),
    ("inf", "decimal(9,2)", "inf"),
    ("d", "int", "truncated"),
    ("nan", "int", "nan"),
    ("m * 100", "decimal(9,2)", "precision"),
    ("w % 0.3", "decimal(9,2)", "decimals of up to 18 digits"),
    ("CAST('x' AS BOOLEAN)", "boolean", "neither true nor false"),
    ("CAST('1.5' AS INT)", "int", "parse"),
    ("i + s", "bigint", r"\+ takes numbers, not text"),
    ("-s", "bigint", "- takes numbers, not text"),
    ("i = s", "boolean", "an integer and text cannot be compared"),
    ("i = 'x'", "boolean", "an integer cannot be compared with 'x'; expected a number"),
    ("i AND b", "boolean", "a condition must be true or false, not an integer"),
    ("ts + 1", "timestamp", "cannot combine a timestamp and an integer"),
    ("year(i)", "bigint", "YEAR takes a date or a timestamp, not an integer"),
    ("coalesce(i, s)", "bigint", "of several types"),
    ("round(d, i)", "double", "argument of ROUND must be a constant whole number"),
    ("i LIKE 'x'", "boolean", "LIKE takes text"),
    ("b", "bigint", "a bool cannot be stored as int64"),
]


def value(text: str, kind: str, rows: pa.RecordBatch = ROW) -> list[Any]:
    expressions = expressions_of({"b": text}, SCHEMA, Limits(), 10**15)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return evaluate(expressions["b"], Rows.of(rows), LogicalType.parse(kind)).to_pylist()


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(("text", "kind", "expected"), SAME + OURS, ids=[text for text, _, _ in SAME + OURS])
def test_a_value_is_as_in_the_table(text: str, kind: str, expected: Any) -> None:
    (cell,) = value(text, kind)
    assert is_same(cell, expected), cell
    (again,) = value(f"CASE WHEN k = 1 THEN {text} END", kind)  # on rows, where it might be a constant
    assert is_same(again, expected), again


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("t", pa.Table.from_batches([ROW]))
    yield connection
    connection.close()


@pytest.mark.parametrize(("text", "kind", "expected"), SAME, ids=[text for text, _, _ in SAME])
def test_duckdb_computes_the_same(duck: duckdb.DuckDBPyConnection, text: str, kind: str, expected: Any) -> None:
    found = duck.execute(f"SELECT CAST({text} AS {kind}) FROM t").fetchone()
    assert found is not None and is_same(found[0], expected), found


@pytest.mark.parametrize(("text", "kind", "why"), REFUSED, ids=[f"{text} as {kind}" for text, kind, _ in REFUSED])
def test_what_has_no_value_is_refused(text: str, kind: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"(?i){why}") as refused:
        value(text, kind)
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("moments", [FAR.cast(pa.timestamp("us")), pa.array([2**31 - 1, -(2**31), None], pa.int32())])
def test_years_beyond_32767(moments: pa.Array) -> None:
    """Arrow computes years in 16 bits, and writes "<value out of range>"."""
    is_day = moments.type == pa.int32()
    kind = pa.date32() if is_day else pa.timestamp("us")
    name = "day" if is_day else "ts"
    rows = pa.record_batch({"k": [1, 2, 3], name: moments.cast(kind)})
    years, first = (5_881_580, "5881580-07-11") if is_day else (148_108, "148108-07-06 14:00:27.387904")
    assert value(f"year({name})", "bigint", rows)[0] == years
    texts = value(f"CAST({name} AS TEXT)", "text", rows)
    assert texts[0] == first and texts[1].startswith("-") and texts[2] is None
    assert value(f"month({name})", "bigint", rows)[:2] == [7, 6]
    assert value(f"{name} > DATE '9999-12-31'", "boolean", rows) == [True, False, None]


def test_a_column_of_dates_compares_with_one_of_timestamps_wherever_they_are() -> None:
    days = pa.array([2**31 - 1, -(2**31), 0, 0, None], pa.int32()).cast(pa.date32())
    moments = pa.array([0, 0, 0, 1, 0], pa.timestamp("us"))
    rows = pa.record_batch({"k": range(5), "day": days, "ts": moments})
    assert value("day < ts", "boolean", rows) == [False, True, False, True, None]
    assert value("day = ts", "boolean", rows) == [False, False, True, False, None]

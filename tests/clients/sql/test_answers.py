"""The types of the columns of an answer: those that all branches and all parts have in common."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.engine import SqlEngine
from nyala.schemas.errors import InvalidArgumentError

AT = dt.datetime(2024, 1, 1, 15)
FAR = 5_000_000_000


@pytest.fixture
def t(embedded: Database) -> Database:
    embedded.sql(
        "CREATE TABLE t (id bigint PRIMARY KEY, day date, ts timestamp, b int, c bigint, r real, x double precision, "
        "d numeric(9, 2), u smallint, s text)"
    )
    embedded.sql(f"INSERT INTO t VALUES (1, '2024-01-01', '{AT}', 1, {FAR}, 0.5, 1.1, 2.25, 7, 'a')")
    return embedded


ANSWERS: list[tuple[str, list[Any] | None, pa.DataType, list[Any]]] = [
    ("SELECT CASE WHEN id = 2 THEN day ELSE ts END FROM t", None, pa.timestamp("us"), [AT]),
    ("SELECT 1 AS k UNION ALL SELECT 2.5 ORDER BY k", None, pa.float64(), [1.0, 2.5]),
    ("SELECT b FROM t UNION ALL SELECT c FROM t ORDER BY b", None, pa.int64(), [1, FAR]),
    ("SELECT b FROM t UNION ALL SELECT c * b FROM t ORDER BY b", None, pa.int64(), [1, FAR]),
    ("SELECT max(k) FROM (SELECT b AS k FROM t UNION SELECT c FROM t) AS both", None, pa.int64(), [FAR]),
    ("SELECT CASE WHEN id = 2 THEN b ELSE c END FROM t", None, pa.int64(), [FAR]),
    ("SELECT CASE WHEN id = 2 THEN b * b ELSE c END FROM t", None, pa.int64(), [FAR]),
    ("SELECT CASE WHEN id = 2 THEN 1 ELSE 2.5 END FROM t", None, pa.float64(), [2.5]),
    ("SELECT CASE WHEN id = 2 THEN r ELSE x END FROM t", None, pa.float64(), [1.1]),
    ("SELECT CASE WHEN id = 2 THEN d ELSE 1.255 END FROM t", None, pa.decimal128(10, 3), [Decimal("1.255")]),
    ("SELECT CASE WHEN id = ? THEN d ELSE 1.255 END FROM t", [2], pa.decimal128(10, 3), [Decimal("1.255")]),
    ("SELECT CASE WHEN id = 2 THEN b ELSE ? END FROM t", [2.5], pa.float64(), [2.5]),
    ("SELECT b * b FROM t", None, pa.int32(), [1]),
    ("SELECT map(['k'], [s]) FROM t", None, pa.map_(pa.string(), pa.string()), [[("k", "a")]]),
    ("SELECT arrow_cast([s], 'LargeList(Utf8View)') FROM t", None, pa.large_list(pa.string()), [["a"]]),
    ("SELECT arrow_cast([s], 'FixedSizeList(1, Utf8View)') FROM t", None, pa.list_(pa.string(), 1), [["a"]]),
    ("SELECT ARRAY[u + u] FROM t", None, pa.list_(pa.int16()), [[14]]),
]


@pytest.mark.parametrize(("text", "params", "kind", "cells"), ANSWERS, ids=[text for text, _, _, _ in ANSWERS])
def test_types(t: Database, text: str, params: list[Any] | None, kind: pa.DataType, cells: list[Any]) -> None:
    """At the first time, with the plan that was kept, and when the query is described."""
    engine = SqlEngine(t._store)
    for _ in range(2):
        (column,) = (answer := engine.query(text, params).to_arrow()).columns
        assert column.type == kind and column.to_pylist() == cells
    assert engine.describe(text, params).schema == answer.schema


def test_changes_keep_the_values_of_all_branches(t: Database) -> None:
    t.sql("UPDATE t SET ts = CASE WHEN to_char(ts, '%Y') = '1999' THEN day ELSE ts END WHERE id = 1")
    t.sql("INSERT INTO t (id, c) SELECT id + 1, CASE WHEN id = 2 THEN b ELSE c END FROM t")
    assert t.sql("SELECT ts, c FROM t ORDER BY id").to_pylist() == [{"ts": AT, "c": FAR}, {"ts": None, "c": FAR}]


def test_a_value_beyond_its_column_is_an_error(t: Database) -> None:
    with pytest.raises(
        InvalidArgumentError, match="a computed value is out of the range of int32: cast an operand to bigint"
    ):
        t.sql("SELECT b + CAST(2147483647 AS int) AS k FROM t").to_arrow()

"""Casts to integers round as PostgreSQL and the store do."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.whole_numbers import whole_numbers


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, x double precision, r real, d numeric(9,2), n int)")
    embedded.sql(
        "INSERT INTO t VALUES (1, 0.5, 1.5, 0.5, 1), (2, 2.5, -2.5, 2.5, 2), (3, 2.6, NULL, -2.5, 3), "
        "(4, NULL, 7, NULL, 4)"
    )
    return embedded


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        ("x::int", [0, 2, 3, None]),
        ("CAST(x AS bigint)", [0, 2, 3, None]),
        ("r::smallint", [2, -2, None, 7]),
        ("d::int", [1, 3, -3, None]),
        ("(x * 1)::int", [0, 2, 3, None]),
        ("-x::int + 1", [1, -1, -2, None]),
        ("(x + x::int)::text", ["0.5", "4.5", "5.6", None]),
        ("x::int::double precision::text", ["0.0", "2.0", "3.0", None]),
        ("x::text::double precision::bigint", [0, 2, 3, None]),
        ("CAST(CAST(x AS integer) + sqrt(x) AS int)", [1, 4, 5, None]),
        ("n::bigint", [1, 2, 3, 4]),
        ("1.5::int", [2, 2, 2, 2]),
        ("2.5::int", [3, 3, 3, 3]),
        ("CAST(-2.5 AS int)", [-3, -3, -3, -3]),
        ("n + CASE WHEN n < 3 THEN x ELSE n END::int", [1, 4, 6, 8]),
    ],
)
def test_a_cast(db: Database, expression: str, cells: list[object]) -> None:
    assert [row["v"] for row in db.sql(f"SELECT id, {expression} AS v FROM t ORDER BY id").to_pylist()] == cells


def test_names_stay(db: Database) -> None:
    text = "SELECT x + d AS v, r FROM (SELECT x::int, CAST(d AS int), r::int::text FROM t WHERE id = 1) AS q"
    assert db.sql(text).to_pylist() == [{"v": 1, "r": "2"}]
    assert db.sql("SELECT d::int, round(d), round(x)::int FROM t WHERE id = 3").to_arrow().num_columns == 3


def test_a_condition_and_a_parameter(db: Database) -> None:
    assert db.sql("SELECT id FROM t WHERE x::int = 3 AND CAST(? AS int) = 2", [2.5]).to_pylist() == [{"id": 3}]


def test_a_change_rounds_alike(db: Database) -> None:
    db.sql("UPDATE t SET n = x::int WHERE id = 2")
    db.sql("UPDATE t SET n = x::int WHERE id IN (SELECT id FROM t WHERE x::int = 3)")
    assert [row["n"] for row in db.sql("SELECT n FROM t ORDER BY id").to_pylist()] == [1, 2, 3, 4]


def test_other_texts_stay(db: Database) -> None:
    schema = db.table("t").schema
    for text in ("SELECT n::bigint FROM t", "SELECT x::text FROM t", "SELECT int FROM t"):
        assert whole_numbers(text, {"t": schema}) == text

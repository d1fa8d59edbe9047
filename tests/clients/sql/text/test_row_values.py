"""Comparisons of rows of several values, with NULL as in PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, a int, b bigint, c numeric(10, 2), day date)")
    embedded.sql(
        "INSERT INTO t VALUES (1, 1, 10, 1.25, '2024-01-31'), (2, 1, 20, 2.5, '2024-02-29'), "
        "(3, 2, NULL, -3.75, '2023-12-31'), (4, 2, 40, 0.05, '1969-07-20'), (5, 3, 50, NULL, NULL), "
        "(6, NULL, 60, 99.99, '0900-03-04'), (7, 3, 70, 12.34, '9000-10-11'), (8, NULL, NULL, 1000000.01, '2024-05-15')"
    )
    embedded.sql("CREATE TABLE u (k bigint PRIMARY KEY, a int, n int)")
    embedded.sql("INSERT INTO u VALUES (10, 1, 1), (40, 2, 1), (20, NULL, 2), (60, 9, 3)")
    return embedded


MANY = ", ".join(f"({number}, {number * 10})" for number in range(1, 40))


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("(a, b) = (1, 10)", [1]),
        ("(a, b) <> (1, 10)", [2, 3, 4, 5, 6, 7]),
        ("(a, b) != (2, 40)", [1, 2, 5, 6, 7]),
        ("NOT (a, b) = (2, 40)", [1, 2, 5, 6, 7]),
        ("(a, b) < (2, 40)", [1, 2]),
        ("(a, b) <= (2, 40)", [1, 2, 4]),
        ("(a, b) > (1, 10)", [2, 3, 4, 5, 7]),
        ("(a, b) >= (2, 40)", [4, 5, 7]),
        ("(a, b, id) > (1, 20, 1)", [2, 3, 4, 5, 7]),
        ("(3, 50) > (a, b)", [1, 2, 3, 4]),
        ("(a, b) BETWEEN (1, 20) AND (3, 50)", [2, 3, 4, 5]),
        ("(a, b) NOT BETWEEN (1, 20) AND (3, 50)", [1, 7]),
        ("ROW(a, b) < ROW(2, 40)", [1, 2]),
        ("(a, b) IN ((1, 10), (2, 40))", [1, 4]),
        ("(a, b) IN ((NULL, 60), (1, 20))", [2]),
        ("(a, b) IN ((2, 40))", [4]),
        ("(a, b) NOT IN ((1, 10), (2, 40))", [2, 5, 6, 7]),
        ("(a, b) NOT IN ((1, 10), (2, NULL))", [2, 5, 7]),
        ("NOT ((a, b) IN ((1, 10), (2, 40)))", [2, 5, 6, 7]),
        ("((a, b) IN ((1, 10), (2, 40))) IS NULL", [3, 8]),
        ("(c, a) IN ((1.25, 1), (0.05, 2))", [1, 4]),
        ("(day, a) IN (('2024-01-31', 1), ('9000-10-11', 3))", [1, 7]),
        (f"(a, b) IN ({MANY})", [1]),
        (f"(a, b) IN ((NULL, 60), {MANY}, (2, 40))", [1, 4]),
        (f"(a, b) NOT IN ({MANY})", [2, 4, 5, 7]),
        (f"(a, b) NOT IN ((2, NULL), {MANY})", [2, 5, 7]),
        ("(a, b) IS NULL", [8]),
        ("(a, b) IS NOT NULL", [1, 2, 4, 5, 7]),
        ("NOT ((a, b) IS NULL)", [1, 2, 3, 4, 5, 6, 7]),
        ("(a, b) IN (SELECT a, k FROM u)", [1, 4]),
        ("(a, b) IN (SELECT a, k FROM u) OR id = 8", [1, 4, 8]),
        ("(a, b) IN (SELECT a, max(k) FROM u GROUP BY a)", [1, 4]),
        ("(a, b) IN (SELECT a, k FROM u ORDER BY k LIMIT 1)", [1]),
        ("(a, b) IN (VALUES (1, 10), (NULL, 60))", [1]),
        ("(a, b) IN (SELECT a, k FROM u UNION SELECT 3, 70)", [1, 4, 7]),
        ("(a, b) IN (SELECT 2, k FROM u WHERE k = 40 INTERSECT SELECT 2, 40)", [4]),
        ("(a, b) NOT IN (SELECT a, k FROM u)", [5, 7]),
        ("(a, b) NOT IN (SELECT a, k FROM u WHERE a IS NOT NULL)", [2, 5, 7]),
        ("NOT (a, b) IN (SELECT a, k FROM u WHERE a IS NOT NULL)", [2, 5, 7]),
        ("NOT ((a, b) IN (SELECT a, k FROM u WHERE a IS NOT NULL))", [2, 5, 7]),
        ("(a, b) NOT IN (SELECT a, k FROM u WHERE k < 0)", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("(a, b) NOT IN (SELECT NULL, NULL FROM u)", []),
        ("id IN (SELECT id FROM t WHERE (a, b) = (2, 40))", [4]),
    ],
)
def test_conditions(db: Database, condition: str, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()] == ids


def test_values(db: Database) -> None:
    rows = db.sql("SELECT (a, b) = (1, 10) AS x, (a, b) IN ((1, 10), (2, NULL)) AS y FROM t ORDER BY id").to_arrow()
    assert rows["x"].to_pylist() == [True, False, False, False, False, False, False, None]
    assert rows["y"].to_pylist() == [True, False, None, None, False, None, False, None]


@pytest.mark.parametrize(
    ("text", "given", "ids"),
    [
        ("SELECT id FROM t WHERE (a, b) > (?, ?) AND id < ? ORDER BY id", [1, 20, 7], [3, 4, 5]),
        ("SELECT id FROM t WHERE (a, b) > ($1, $2) AND id < $3 ORDER BY id", [1, 20, 7], [3, 4, 5]),
        ("SELECT id FROM t WHERE id < ? AND (a, b) NOT IN ((?, ?), (?, ?)) ORDER BY id", [7, 1, 10, 2, 40], [2, 5, 6]),
        ("SELECT id FROM t WHERE (a, b) IN (SELECT a, k FROM u WHERE k > $least)", {"least": 10}, [4]),
    ],
)
def test_parameters(db: Database, text: str, given: Any, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql(text, given).to_pylist()] == ids


def test_joins(db: Database) -> None:
    inner = db.sql("SELECT t.id FROM t JOIN t AS o ON (t.a, t.b) = (o.a, o.b) ORDER BY 1").to_arrow()
    assert inner["id"].to_pylist() == [1, 2, 4, 5, 7]
    outer = db.sql("SELECT t.id, u.k FROM t LEFT JOIN u ON (t.a, t.b) = (u.a, u.k) AND u.n = 1 ORDER BY 1").to_arrow()
    assert outer["k"].to_pylist() == [10, None, None, 40, None, None, None, None]


def test_changes(db: Database) -> None:
    assert db.sql("UPDATE t SET c = 0 WHERE (a, b) IN (SELECT a, k FROM u)").changed == 2
    assert db.sql("DELETE FROM t WHERE (a, b) > (?, ?)", [2, 40]).changed == 2
    assert db.sql("DELETE FROM t WHERE (a, b) NOT IN ((1, 10), (2, 40))").changed == 2
    assert [row["id"] for row in db.sql("SELECT id FROM t ORDER BY id").to_pylist()] == [1, 3, 4, 8]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (a, b) IN (SELECT a, k FROM u) FROM t",
        "SELECT id FROM t WHERE NOT (id = 1 AND (a, b) IN (SELECT a, k FROM u))",
        "SELECT id FROM t WHERE ((a, b) IN (SELECT a, k FROM u)) IS NULL",
    ],
)
def test_where_a_query_is_no_condition(db: Database, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="conditions of WHERE, HAVING and ON"):
        db.sql(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT id FROM t WHERE (a, b) = (1, 2, 3)", "the same number of values on both sides"),
        ("SELECT id FROM t WHERE (a, b) IN ((1, 2), (1, 2, 3))", "the same number of values on both sides"),
        ("SELECT id FROM t WHERE (a, b) IN (SELECT a, k FROM u WHERE u.n = t.id)", "refers to the outer query"),
    ],
)
def test_refusals(db: Database, text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        db.sql(text).to_arrow()

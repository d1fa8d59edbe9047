"""ORDER BY of expressions with names that a column of the answer and one of a table share."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.clients.api.database import Database


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, a int, b bigint, s text)")
    embedded.sql("INSERT INTO t VALUES (1, 2, 10, 'x'), (2, -3, 30, 'Y'), (3, 1, 20, 'z'), (4, 2, 5, 'w')")
    return embedded


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT id, b AS a FROM t ORDER BY a + 0, id", [(2, 30), (3, 20), (1, 10), (4, 5)]),
        ("SELECT id, b AS a FROM t ORDER BY -a, id DESC", [(4, 5), (1, 10), (3, 20), (2, 30)]),
        ("SELECT id, b AS a FROM t ORDER BY abs(t.a), a", [(3, 20), (4, 5), (1, 10), (2, 30)]),
        ("SELECT id, b AS a FROM t ORDER BY t.a, a", [(2, 30), (3, 20), (4, 5), (1, 10)]),
        ("SELECT id, b AS a FROM t ORDER BY a", [(4, 5), (1, 10), (3, 20), (2, 30)]),
        ("SELECT id, b AS a, a AS b FROM t ORDER BY a % 2, id", [(2, 30, -3), (1, 10, 2), (4, 5, 2), (3, 20, 1)]),
        ("SELECT id, -a AS y FROM t ORDER BY y + 1, id", [(1, -2), (4, -2), (3, -1), (2, 3)]),
        (
            "SELECT id, -q.a AS a FROM (SELECT id, a FROM t) AS q ORDER BY abs(a), id",
            [(3, -1), (1, -2), (4, -2), (2, 3)],
        ),
        ("SELECT upper(s) AS s, id FROM t AS o ORDER BY o.s", [("Y", 2), ("W", 4), ("X", 1), ("Z", 3)]),
        ("SELECT a, sum(b) AS b FROM t GROUP BY a ORDER BY sum(b) DESC, a", [(-3, 30), (1, 20), (2, 15)]),
        ("SELECT a, -sum(b) AS b FROM t GROUP BY a ORDER BY sum(b), a", [(2, -15), (1, -20), (-3, -30)]),
        ("SELECT a, max(b) AS b FROM t GROUP BY a ORDER BY max(b) - min(b), b DESC", [(-3, 30), (1, 20), (2, 10)]),
        ("SELECT a, sum(b) AS b FROM t GROUP BY a ORDER BY b + 1", [(2, 15), (1, 20), (-3, 30)]),
        (
            "SELECT * FROM (SELECT a, sum(b) AS b FROM t GROUP BY a ORDER BY sum(b) DESC LIMIT 2) AS q ORDER BY b",
            [(1, 20), (-3, 30)],
        ),
        (
            "WITH q AS (SELECT s, max(b) AS b FROM t GROUP BY s ORDER BY max(b) LIMIT 1) SELECT s, b AS a FROM q",
            [("w", 5)],
        ),
    ],
)
def test_orders(db: Database, text: str, rows: list[tuple[Any, ...]]) -> None:
    table = db.sql(text).to_arrow()
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows
    assert not any("#" in name for name in table.column_names)

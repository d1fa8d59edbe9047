"""IN with NULL in its list."""

from __future__ import annotations

import pytest
import sqlglot

from nyala.clients.api.database import Database
from nyala.clients.sql.null_lists import without_null_lists


def rewritten(text: str) -> str:
    return without_null_lists(text, list(sqlglot.tokenize(text, read="postgres")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT x IN (1, NULL)", "SELECT (x IN (1) OR NULL)"),
        ("SELECT a.x IN (NULL, 1, null, 2)", "SELECT (a.x IN (1, 2) OR NULL)"),
        ('SELECT s."a"."x" NOT IN (NULL, NULL, f(1, 2), NULL)', 'SELECT (s."a"."x" NOT IN (f(1, 2)) AND NULL)'),
        ("SELECT x IN (NULL)", "SELECT x = NULL"),
        ("SELECT x NOT IN (NULL, NULL) AND y", "SELECT x <> NULL AND y"),
        ("SELECT x IN (1, y IN (2, NULL), 3)", "SELECT x IN (1, (y IN (2) OR NULL), 3)"),
        ("SELECT x IN (SELECT y FROM t WHERE z IS NULL)", "SELECT x IN (SELECT y FROM t WHERE z IS NULL)"),
        ("SELECT x IN (SELECT NULL)", "SELECT x IN (SELECT NULL)"),
        ("SELECT f(x) IN (1, NULL)", "SELECT f(x) IN (1, NULL)"),
        ("SELECT x IN (coalesce(NULL, 1), -NULL)", "SELECT x IN (coalesce(NULL, 1), -NULL)"),
        ("SELECT position('a' IN x), NULL", "SELECT position('a' IN x), NULL"),
    ],
)
def test_the_text(text: str, expected: str) -> None:
    assert rewritten(text) == expected


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("NOT ((n IN (3, 1, 0, 6, NULL)) AND (n IN (4, 0, 9, 5)))", [1, 2, 3]),
        ("(n IN (1, 0, 6, 7, NULL) AND n IN (4, 0, 9, 5)) IS NULL", [0, 4]),
        ("n IN (1, 2, 6, 7, NULL) AND t.n NOT IN (2, 7, 8, 9)", [1]),
        ("NOT (n IN (1, 2, 6, 7, NULL) AND n NOT IN (2, 4, 8, 9, NULL))", [2, 4]),
        ("n NOT IN (NULL)", []),
        ("n IN (2, NULL) OR n IN (1, 3, 4, 5, NULL)", [1, 2, 3, 4]),
    ],
)
def test_null_is_not_forgotten(db: Database, condition: str, ids: list[int]) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
    db.sql("INSERT INTO t VALUES (0, NULL), (1, 1), (2, 2), (3, 3), (4, 4)")
    assert [row["id"] for row in db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()] == ids

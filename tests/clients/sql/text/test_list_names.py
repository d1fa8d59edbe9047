"""Lists of ANY and ALL of a table that has the name of one around."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.text.list_names import with_named_lists


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("n = ANY (SELECT n FROM t WHERE id = 1)", [1]),
        ("n >= ALL (SELECT n FROM t WHERE n IS NOT NULL)", [2]),
        ("n > SOME (SELECT t.n FROM t)", [2]),
        ("n <> ALL (SELECT n FROM t WHERE id = 1 GROUP BY n)", [2]),
        ("n = ANY (SELECT n FROM t WHERE id = 1 UNION SELECT n FROM t WHERE id = 4)", [1]),
        ("(n IN (SELECT n FROM t WHERE id = 1)) IS NULL", [3]),
        ("CASE WHEN n NOT IN (SELECT n FROM t WHERE id = 1) THEN true ELSE false END", [2]),
        ("n <= ALL (SELECT n FROM t AS u WHERE u.g = t.g AND n IS NOT NULL)", [1, 3]),
        ("n IN (SELECT n FROM t WHERE id = 1)", [1]),
    ],
)
def test_columns_of_two_tables(embedded: Database, condition: str, ids: list[int]) -> None:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, n int, g int)")
    embedded.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 1), (3, NULL, 2)")
    rows = embedded.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()
    assert [row["id"] for row in rows] == ids


def test_the_text() -> None:
    text = "SELECT 1 FROM t WHERE x = ANY (SELECT t.x FROM t ORDER BY 1) AND y > ALL (SELECT y + 1 FROM t)"
    named = 'SELECT 1 FROM t WHERE x = ANY (SELECT t.x AS "list#1" FROM t ORDER BY 1) AND y > ALL (SELECT y + 1 FROM t)'
    assert with_named_lists(text) == named
    assert (
        with_named_lists("SELECT any FROM t WHERE a IN (SELECT a FROM t)")
        == "SELECT any FROM t WHERE a IN (SELECT a FROM t)"
    )

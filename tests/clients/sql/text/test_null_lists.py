"""IN with NULL, in its list or its operand."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.text.exact_lists import exact_lists
from nyala.clients.sql.text.null_lists import without_null_lists
from nyala.clients.sql.text.parsed_text import read_text


def rewritten(text: str) -> str:
    return without_null_lists(text, read_text(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT x IN (1, NULL)", "SELECT (x IN (1) OR NULL)"),
        ("SELECT a.x IN (NULL, 1, null, 2)", "SELECT (a.x IN (1, 2) OR NULL)"),
        ('SELECT s."a"."x" NOT IN (NULL, NULL, f(1, 2), NULL)', 'SELECT (s."a"."x" NOT IN (f(1, 2)) AND NULL)'),
        ("SELECT x IN (NULL)", "SELECT (x = NULL)"),
        ("SELECT x NOT IN (NULL, NULL) AND y", "SELECT (x <> NULL) AND y"),
        ("SELECT x IN (1, y IN (2, NULL), 3)", "SELECT x IN (1, (y IN (2) OR NULL), 3)"),
        ("SELECT x IN (SELECT y FROM t WHERE z IS NULL)", "SELECT x IN (SELECT y FROM t WHERE z IS NULL)"),
        ("SELECT x IN (SELECT NULL)", "SELECT x IN (SELECT NULL)"),
        ("SELECT f(x) IN (1, NULL)", "SELECT (f(x) IN (1) OR NULL)"),
        ("SELECT x IN (coalesce(NULL, 1), -NULL)", "SELECT x IN (coalesce(NULL, 1), -NULL)"),
        ("SELECT position('a' IN x), NULL", "SELECT position('a' IN x), NULL"),
        ("SELECT x IN (1), x IN (2), y IN (3)", "SELECT x IN (1), nullif(x, NULL) IN (2), y IN (3)"),
        ("SELECT x IN (1), t.X IN (NULL, 2)", "SELECT x IN (1), (nullif(t.X, NULL) IN (2) OR NULL)"),
        ("SELECT x IN (1) UNION SELECT x IN (2)", "SELECT x IN (1) UNION SELECT x IN (2)"),
        (
            "SELECT a + x IN (1, NULL), -x IN (NULL), (a).x IN (2, NULL)",
            "SELECT (a + x IN (1) OR NULL), (-x = NULL), ((a).x IN (2) OR NULL)",
        ),
        (
            "SELECT (x) IN (1), x+0 IN(2), (t.x)IN(3)",
            "SELECT (x) IN (1), nullif(x+0, NULL) IN(2), nullif(nullif((t.x), NULL), NULL)IN(3)",
        ),
        ("SELECT x IN (1), x::int NOT IN (2)", "SELECT x IN (1), nullif(x::int, NULL) NOT IN (2)"),
        ("SELECT x IN (1, 2), x IN (3), (t.X) IN (1,2)", "SELECT x IN (1, 2), nullif(x, NULL) IN (3), (t.X) IN (1,2)"),
        ("SELECT x IN (?), x IN (?)", "SELECT x IN (?), nullif(x, NULL) IN (?)"),
        ("SELECT x IN ($1), x IN ($1), x IN ($2)", "SELECT x IN ($1), x IN ($1), nullif(x, NULL) IN ($2)"),
        ("SELECT x IN (1, NULL) GROUP BY x IN (1, NULL)", "SELECT (x IN (1) OR NULL) GROUP BY (x IN (1) OR NULL)"),
        (
            "SELECT (x IN (1, NULL)) IN (TRUE, NULL)",
            "SELECT (nullif(((x IN (1) OR NULL)), NULL) IN (TRUE) OR NULL)",
        ),
        ("SELECT (a, b) IN ((1, 2), (3, 4))", None),
        ("SELECT 1 IN (2), 1 IN (3)", None),
        ("SELECT x IN (1, (SELECT x IN (2)))", "SELECT x IN (1, (SELECT x IN (2)))"),
    ],
)
def test_the_text(text: str, expected: str | None) -> None:
    assert rewritten(text) == (expected or text)


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("NOT ((n IN (3, 1, 0, 6, NULL)) AND (n IN (4, 0, 9, 5)))", [1, 2, 3]),
        ("(n IN (1, 0, 6, 7, NULL) AND n IN (4, 0, 9, 5)) IS NULL", [0, 4]),
        ("n IN (1, 2, 6, 7, NULL) AND t.n NOT IN (2, 7, 8, 9)", [1]),
        ("NOT (n IN (1, 2, 6, 7, NULL) AND n NOT IN (2, 4, 8, 9, NULL))", [2, 4]),
        ("n NOT IN (NULL)", []),
        ("n IN (2, NULL) OR n IN (1, 3, 4, 5, NULL)", [1, 2, 3, 4]),
        ("n NOT IN (1, 2, 3, 4) OR n NOT IN (5, 6, 7, 8)", [1, 2, 3, 4]),
        ("(n) NOT IN (1, 2, 3, 4) OR (n) NOT IN (5, 6, 7, 8)", [1, 2, 3, 4]),
        ("(n) NOT IN (1, 2) OR t.n NOT IN (5, 6)", [1, 2, 3, 4]),
        ("n + 0 NOT IN (1, 2) OR n + 0 NOT IN (5, 6)", [1, 2, 3, 4]),
        ("n::bigint NOT IN (1, 2) OR n NOT IN (5, 6)", [1, 2, 3, 4]),
        ("n NOT IN (9, 8) AND n IN (1, 2) OR (n NOT IN (1, 2) OR n NOT IN (3, 4))", [1, 2, 3, 4]),
        ("NOT (upper(n::text) IN ('1', NULL) AND upper(n::text) IN ('1', '2'))", [3, 4]),
        ("NOT (-n IN (-1, NULL) AND -n IN (-1, -2))", [3, 4]),
        ("id + n IN (2, NULL)", [1]),
        ("NULL AND n NOT IN (1, 2, 3)", []),
        ("n IN (NULL) AND id > 0", []),
        ("id > 0 AND n NOT IN (NULL) AND id + 1 > 0", []),
        ("id IN (SELECT t.id FROM t WHERE NULL AND n > 1) OR id = 2", [2]),
        ("NOT (n IN (1, 2, 3, 4) AND n IN (5, 6, 7, 8))", [1, 2, 3, 4]),
        ("(n IN (1, 2, 9, 8) AND n NOT IN (1, 2, 9, 8, 7)) IS NULL", [0]),
    ],
)
def test_null_is_not_forgotten(db: Database, condition: str, ids: list[int]) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
    db.sql("INSERT INTO t VALUES (0, NULL), (1, 1), (2, 2), (3, 3), (4, 4)")
    assert [row["id"] for row in db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()] == ids


def test_equal_lists_are_one_expression(db: Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT, s TEXT)")
    db.sql("INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'), (3, NULL, NULL)")
    for text in (
        "SELECT x IN (1, NULL) AS k, count(*) AS n FROM t GROUP BY x IN (1, NULL)",
        "SELECT (x) IN (1, NULL) AS k, count(*) AS n FROM t GROUP BY x IN (1, NULL) ORDER BY (x IN (1, NULL))",
        "SELECT s, x IN (1, 2) AS k, count(*) AS n FROM t GROUP BY s, x IN (1, 2) ORDER BY x IN (1, 2), s",
        "SELECT DISTINCT x IN (1, 2) AS k FROM t ORDER BY x IN (1, 2)",
        "SELECT DISTINCT id > 2 AS j, x IN (1, NULL) AS k FROM t ORDER BY x IN (1, NULL) DESC, id > 2",
        "SELECT DISTINCT x + 1 AS k FROM t ORDER BY x + 1, k LIMIT 5",
        "SELECT x IN (1, 2) AS k, x IN (3) AS m, count(*) AS n FROM t GROUP BY x IN (1, 2), x IN (3)",
        "SELECT upper(s) IN ('A', NULL) AS k, count(*) AS n FROM t GROUP BY upper(s) IN ('A', NULL)",
    ):
        with duckdb.connect() as oracle:
            rows = db.sql("SELECT * FROM t").to_arrow()
            oracle.register("t", rows)
            expected = oracle.execute(text).fetchall()
        assert sorted(map(repr, (tuple(row.values()) for row in db.sql(text).to_pylist()))) == sorted(
            map(repr, expected)
        ), text


def test_a_filter_that_is_null(db: Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
    db.sql("INSERT INTO t VALUES (1, 1), (2, NULL)")
    nothing = "(SELECT * FROM w WHERE n = NULL AND id > 0)"
    text = f"WITH w AS (SELECT * FROM t) SELECT a.id, b.id AS other FROM w a LEFT JOIN {nothing} b ON a.id = b.id"
    assert sorted(row["id"] for row in db.sql(text).to_pylist()) == [1, 2]
    assert "table t" in db.sql(f"EXPLAIN {text}").to_arrow()["plan"].to_pylist()
    assert db.sql("DELETE FROM t WHERE n IN (NULL) AND id > 0").rows == 0


def test_a_table_may_have_the_name_that_a_place_would_get(db: Database) -> None:
    for name, cell in (("t", 1), ('"t#1"', 2), ('"#list1"', 3)):
        db.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
        db.sql(f"INSERT INTO {name} VALUES ({cell})")
    text = 'SELECT a.id, b.id AS b, c.id AS c FROM t a, t b, "t#1" c'
    assert db.sql(text).to_pylist() == [{"id": 1, "b": 1, "c": 2}]
    text = 'SELECT id FROM "#list1" WHERE id IN (SELECT id + 2 FROM t GROUP BY id)'
    assert db.sql(text).to_pylist() == [{"id": 3}]


def test_lists_of_a_query_without_tables(db: Database) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    lists = "IN (SELECT id FROM t GROUP BY id)"
    assert db.sql(f"SELECT id FROM t WHERE FALSE AND id {lists} AND id + 1 {lists}").to_pylist() == []


LISTS = {
    "with NULL": "SELECT v FROM u",
    "empty": "SELECT v FROM u WHERE v > 9",
    "without NULL": "SELECT v FROM u WHERE v < 9",
    "of the row": "SELECT v FROM u WHERE v = t.n",
    "of the row, in order": "SELECT v FROM u WHERE v >= n",
    "of groups": "SELECT max(v) FROM u GROUP BY w",
    "never NULL": "SELECT w FROM u",
}
CONDITIONS = [
    "n IN ({})",
    "n NOT IN ({})",
    "n NOT IN ({}) OR no",
    "NOT n IN ({}) AND NOT no",
    "NOT (n IN ({}) AND NOT no)",
    "NOT (n NOT IN ({}) OR no)",
    "(n IN ({})) IS NULL",
    "CASE WHEN n NOT IN ({}) THEN TRUE ELSE n = 1 END",
    "id NOT IN ({}) OR no",
    "coalesce(n IN ({}), no, TRUE)",
]


@pytest.fixture
def lists(db: Database) -> Iterator[tuple[Database, duckdb.DuckDBPyConnection]]:
    with duckdb.connect() as oracle:
        for text in (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, no BOOLEAN)",
            "INSERT INTO t VALUES (0, NULL, FALSE), (1, 1, FALSE), (2, 2, FALSE), (3, 3, NULL), (4, 4, TRUE)",
            "CREATE TABLE u (w BIGINT PRIMARY KEY, v BIGINT)",
            "INSERT INTO u VALUES (1, NULL), (2, 1), (3, 2)",
        ):
            db.sql(text)
            oracle.execute(text)
        yield db, oracle


@pytest.mark.parametrize("query", LISTS.values(), ids=LISTS.keys())
def test_a_query_as_a_list_has_three_outcomes(lists: tuple[Database, duckdb.DuckDBPyConnection], query: str) -> None:
    db, oracle = lists
    for condition in CONDITIONS:
        text = f"SELECT id FROM t WHERE {condition.format(query)} ORDER BY id"
        assert [row["id"] for row in db.sql(text).to_pylist()] == [row[0] for row in oracle.execute(text).fetchall()], (
            text
        )


def test_joins_stay_where_they_are_exact() -> None:
    tables = {
        "t": pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]),
        "u": pa.schema([pa.field("w", pa.int64(), nullable=False), ("v", pa.int64())]),
    }
    for text in (
        "SELECT id FROM t WHERE n IN (SELECT v FROM u) OR n = 1",
        "SELECT id FROM t WHERE n NOT IN (SELECT v FROM u) AND n > 1",
        "SELECT id FROM t WHERE id NOT IN (SELECT w FROM u) OR n = 1",
        "SELECT id FROM t WHERE id NOT IN (SELECT w FROM u WHERE v = n)",
    ):
        assert exact_lists(text, tables) == text
    changed = exact_lists("SELECT id FROM t WHERE n  not\n IN (SELECT w FROM u) OR NOT n IN (SELECT w FROM u)", tables)
    assert changed == "SELECT id FROM t WHERE n  <> ALL (SELECT w FROM u) OR NOT n = ANY (SELECT w FROM u)"

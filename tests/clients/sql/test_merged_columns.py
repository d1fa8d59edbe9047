"""Columns that joins merge: those of USING and NATURAL."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    for text in (
        "CREATE TABLE a (id bigint PRIMARY KEY, x bigint, v text)",
        "CREATE TABLE b (id bigint PRIMARY KEY, x bigint, w text)",
        "CREATE TABLE c (x bigint PRIMARY KEY, v text)",
        "INSERT INTO a VALUES (1, 1, 'a1'), (2, 2, 'a2'), (3, NULL, 'a3')",
        "INSERT INTO b VALUES (2, 2, 'b2'), (3, 3, 'b3'), (4, NULL, 'b4')",
        "INSERT INTO c VALUES (2, 'c2'), (3, 'c3'), (4, 'c4')",
        "CREATE TABLE n (k numeric(20,18) PRIMARY KEY, v text)",
        "CREATE TABLE f (w text PRIMARY KEY, k double precision)",
        "INSERT INTO n VALUES (0.1, 'n1'), (0.3, 'n3')",
        "INSERT INTO f VALUES ('f1', 0.1), ('f2', 'nan')",
        "CREATE TABLE d (k date PRIMARY KEY, v text)",
        "CREATE TABLE m (k timestamp PRIMARY KEY, w text)",
        "INSERT INTO d VALUES ('2026-01-01', 'd1'), ('9999-12-31', 'd2')",
        "INSERT INTO m VALUES ('2026-01-01', 'm1'), ('9999-12-31 00:00:00', 'm2'), ('0001-01-01', 'm3')",
    ):
        embedded.sql(text)
    return embedded


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("SELECT x FROM a FULL JOIN b USING (x) ORDER BY x", "x", [(1,), (2,), (3,), (None,), (None,)]),
        (
            "SELECT x, v, w FROM a FULL OUTER JOIN b USING (x) WHERE x > 1 ORDER BY x",
            "x v w",
            [(2, "a2", "b2"), (3, None, "b3")],
        ),
        (
            "SELECT * FROM a FULL JOIN b USING (x) WHERE x > 0 ORDER BY x",
            "x id v id w",
            [(1, 1, "a1", None, None), (2, 2, "a2", 2, "b2"), (3, None, None, 3, "b3")],
        ),
        (
            "SELECT * FROM a NATURAL FULL JOIN b ORDER BY id",
            "id x v w",
            [(1, 1, "a1", None), (2, 2, "a2", "b2"), (3, 3, None, "b3"), (3, None, "a3", None), (4, None, None, "b4")],
        ),
        ("SELECT a.x, b.x FROM a FULL JOIN b USING (x) WHERE x = 3", "x x", [(None, 3)]),
        (
            "SELECT x + 1 AS y, count(*) AS n FROM a FULL JOIN b USING (x) GROUP BY x HAVING x > 0 ORDER BY y DESC",
            "y n",
            [(4, 1), (3, 1), (2, 1)],
        ),
        (
            "SELECT v FROM a FULL JOIN b USING (x) ORDER BY x DESC NULLS LAST, v LIMIT 3",
            "v",
            [(None,), ("a2",), ("a1",)],
        ),
        ("SELECT DISTINCT x FROM a FULL JOIN b USING (x) ORDER BY x DESC NULLS LAST", "x", [(3,), (2,), (1,), (None,)]),
        (
            "SELECT x FROM a FULL JOIN b USING (x) FULL JOIN c USING (x) WHERE x > 0 ORDER BY x",
            "x",
            [(1,), (2,), (3,), (4,)],
        ),
        ("SELECT x, c.v FROM a FULL JOIN b USING (x) JOIN c USING (x) ORDER BY x", "x v", [(2, "c2"), (3, "c3")]),
        (
            "SELECT x, c.v FROM a FULL JOIN b USING (x) LEFT JOIN c USING (x) WHERE x > 1 ORDER BY x",
            "x v",
            [(2, "c2"), (3, "c3")],
        ),
        (
            "SELECT x, w FROM a FULL JOIN b USING (x) RIGHT JOIN c USING (x) ORDER BY x",
            "x w",
            [(2, "b2"), (3, "b3"), (4, None)],
        ),
        ("SELECT x FROM a RIGHT JOIN b USING (x) ORDER BY x", "x", [(2,), (3,), (None,)]),
        ("SELECT id, x FROM a NATURAL RIGHT JOIN b ORDER BY id", "id x", [(2, 2), (3, 3), (4, None)]),
        ("SELECT p.x FROM a AS p FULL JOIN (SELECT x, w FROM b) AS q USING (x) WHERE x = 3", "x", [(None,)]),
        ("SELECT x FROM a FULL JOIN (SELECT * FROM b) AS q USING (x) WHERE x = 3", "x", [(3,)]),
        ("WITH q AS (SELECT x FROM b) SELECT x FROM a FULL JOIN q USING (x) WHERE x = 3", "x", [(3,)]),
        ("SELECT max(x) AS m FROM (SELECT * FROM a FULL JOIN b USING (x)) AS q", "m", [(3,)]),
        ("SELECT x FROM c, a FULL JOIN b USING (id) WHERE c.v = 'c2' AND id = 4", None, None),
        ("SELECT c.x, id FROM c, a FULL JOIN b USING (id) WHERE c.v = 'c2' AND id = 4", "x id", [(2, 4)]),
        ("SELECT row_number() OVER (ORDER BY x) AS r FROM a FULL JOIN b USING (x) WHERE x = 3", "r", [(1,)]),
        ("SELECT x FROM a JOIN b USING (x) WHERE x > 1", "x", [(2,)]),
        (
            "SELECT id, w FROM a LEFT JOIN b USING (id) WHERE id < 3 AND v > '' ORDER BY id",
            "id w",
            [(1, None), (2, "b2")],
        ),
        (
            "SELECT x, w FROM a RIGHT JOIN b USING (x) WHERE x = 3 OR x IS NULL ORDER BY w",
            "x w",
            [(3, "b3"), (None, "b4")],
        ),
        ("SELECT c.v FROM a NATURAL JOIN b JOIN c ON c.x = id WHERE id = 2", "v", [("c2",)]),
        ("SELECT count(*) AS n FROM a JOIN b USING (x) WHERE x IN (SELECT x FROM c WHERE x > 1)", "n", [(1,)]),
        ("SELECT * FROM a JOIN b USING (x)", "x id v id w", [(2, 2, "a2", 2, "b2")]),
        ("SELECT * FROM a JOIN b USING (x) JOIN c USING (x)", "x id v id w v", [(2, 2, "a2", 2, "b2", "c2")]),
        ("SELECT * FROM a NATURAL JOIN c", "x v id", []),
        ("SELECT k, v, w FROM n JOIN f USING (k)", "k v w", [(0.1, "n1", "f1")]),
        ("SELECT v, w FROM n FULL JOIN f USING (k) ORDER BY k", "v w", [("n1", "f1"), ("n3", None), (None, "f2")]),
        ("SELECT v, w FROM d JOIN m USING (k) ORDER BY v", "v w", [("d1", "m1"), ("d2", "m2")]),
    ],
)
def test_a_merged_column(db: Database, text: str, names: str | None, rows: list[Any] | None) -> None:
    if names is None or rows is None:
        with pytest.raises(InvalidArgumentError, match="mbiguous"):
            db.sql(text).to_arrow()
        return
    table = db.sql(text).to_arrow()
    assert table.column_names == names.split()
    cells = [column.to_pylist() for column in table.columns]
    assert [tuple(map(_plain, row)) for row in zip(*cells, strict=True)] == rows


def _plain(cell: Any) -> Any:
    return cell if isinstance(cell, int | str | None) else round(float(cell), 9)


def test_columns_of_unknown_tables(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="after ON"):
        db.sql("SELECT x FROM a FULL JOIN (a AS p JOIN b AS q ON p.id = q.id) USING (x)")

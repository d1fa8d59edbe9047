"""Columns of an answer that have the same name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE a (id bigint PRIMARY KEY, v bigint, s text)")
    embedded.sql("CREATE TABLE b (id bigint PRIMARY KEY, w bigint)")
    embedded.sql("INSERT INTO a VALUES (1, 10, 'x'), (2, 20, 'y')")
    embedded.sql("INSERT INTO b VALUES (2, 200), (3, 300)")
    return embedded


def _answer(table: pa.Table) -> tuple[list[str], list[tuple[Any, ...]]]:
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return table.column_names, rows


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("SELECT id, id FROM a ORDER BY id", "id id", [(1, 1), (2, 2)]),
        ("SELECT id, v, id, id FROM a ORDER BY 1", "id v id id", [(1, 10, 1, 1), (2, 20, 2, 2)]),
        ("SELECT *, id FROM a ORDER BY id DESC", "id v s id", [(2, 20, "y", 2), (1, 10, "x", 1)]),
        ("SELECT *, * FROM b ORDER BY 1", "id w id w", [(2, 200, 2, 200), (3, 300, 3, 300)]),
        ("SELECT *, b.* FROM b ORDER BY id DESC LIMIT 1", "id w id w", [(3, 300, 3, 300)]),
        ("SELECT b.*, v, b.*, b.* FROM a, b WHERE a.id = b.id", "id w v id w id w", [(2, 200, 20, 2, 200, 2, 200)]),
        ("SELECT b.*, * FROM a, b WHERE a.id = b.id", "id w id v s id w", [(2, 200, 2, 20, "y", 2, 200)]),
        ("SELECT *, *, id FROM (SELECT id FROM b LIMIT 1) AS q", "id id id", [(2, 2, 2)]),
        ("SELECT id, * FROM a ORDER BY id LIMIT 1", "id id v s", [(1, 1, 10, "x")]),
        ("SELECT *, -v AS id, v + 1 AS n FROM a ORDER BY n LIMIT 1", "id v s id n", [(1, 10, "x", -10, 11)]),
        ("SELECT a.id, b.id FROM a JOIN b ON a.id = b.id", "id id", [(2, 2)]),
        ("SELECT a.id AS n, b.w AS n FROM a JOIN b USING (id)", "n n", [(2, 200)]),
        ("SELECT v, v + 1 AS v, s FROM a WHERE id = 1", "v v s", [(10, 11, "x")]),
        ("SELECT v + 1 AS v, v FROM a WHERE id = 1", "v v", [(11, 10)]),
        ("SELECT count(*), count(*), max(v) AS m, max(v) AS m FROM a", "count(*) count(*) m m", [(2, 2, 20, 20)]),
        ("SELECT id, id::text, (id)::double precision FROM a WHERE id = 1", "id id id", [(1, "1", 1.0)]),
        ("SELECT -v::int, -v::text::int, count(*) OVER () FROM a LIMIT 1", None, [(-10, -10, 2)]),
        ("SELECT 1, 1", None, [(1, 1)]),
        (
            "SELECT id, id FROM a UNION ALL SELECT w, id FROM b ORDER BY 1",
            "id id",
            [(1, 1), (2, 2), (200, 2), (300, 3)],
        ),
        ("SELECT s, s, count(*) AS n FROM a GROUP BY s ORDER BY s", "s s n", [("x", "x", 1), ("y", "y", 1)]),
        ("SELECT * FROM (SELECT id, id FROM a) AS q WHERE true ORDER BY 1", "id id", [(1, 1), (2, 2)]),
        ("SELECT * FROM (SELECT a.id, b.id FROM a JOIN b USING (id)) AS q", "id id", [(2, 2)]),
        ("SELECT q.* FROM (SELECT * FROM a JOIN b ON a.id = b.id) AS q", "id v s id w", [(2, 20, "y", 2, 200)]),
        ("WITH q (k, l) AS (SELECT id, id FROM a) SELECT l, k FROM q ORDER BY k", "l k", [(1, 1), (2, 2)]),
        ("SELECT id FROM a WHERE EXISTS (SELECT id, id FROM b WHERE b.id = a.id)", "id", [(2,)]),
        ("SELECT id, (SELECT max(id) AS id FROM b) FROM a ORDER BY id", "id id", [(1, 3), (2, 3)]),
        ("SELECT id, (SELECT id FROM b WHERE w = 200), v FROM a WHERE id = 1", "id id v", [(1, 2, 10)]),
        ("SELECT DISTINCT id, id FROM a ORDER BY id", "id id", [(1, 1), (2, 2)]),
        ('SELECT id AS "Id", v AS "Id" FROM a WHERE id = 1', "Id Id", [(1, 10)]),
    ],
)
def test_all_columns_are_there(db: Database, text: str, names: str | None, rows: list[Any]) -> None:
    table = db.sql(text).to_arrow()
    given, cells = _answer(table)
    assert cells == rows
    assert names is None or given == names.split()
    assert db.sql(text).to_arrow().equals(table)  # its plan is kept


def test_with_parameters(db: Database) -> None:
    assert _answer(db.sql("SELECT id, id FROM a WHERE v > ?", [15]).to_arrow()) == (["id", "id"], [(2, 2)])


def test_rows_of_an_insert(db: Database) -> None:
    db.sql("INSERT INTO b SELECT id + 10, id + 10 FROM a")
    assert db.sql("SELECT count(*) AS n FROM b WHERE id = w").to_pylist() == [{"n": 2}]


def test_a_table_has_no_such_columns(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="names the column 'id' twice"):
        db.sql("CREATE TABLE c (PRIMARY KEY (id)) AS SELECT id, id FROM a")

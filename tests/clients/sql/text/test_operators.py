"""Operators of PostgreSQL that DataFusion has not."""

from __future__ import annotations

from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, a int, s text, tags text[])")
    embedded.sql(
        "INSERT INTO t VALUES (1, 5, 'b', ARRAY['x', NULL]), (2, -3, 'B', ARRAY['y']), (3, NULL, 'a', NULL), "
        "(4, 12, NULL, ARRAY['x', 'y'])"
    )
    return embedded


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        ("a # 3", [6, -2, None, 15]),
        ("~a", [-6, 2, None, -13]),
        ("~(a + 1) # ~1", [7, -1, None, 12]),
        ("a - (~a)", [11, -5, None, 25]),
        ("a + 1 # 1", [7, -1, None, 12]),
        ("2 ^ 2 # 1", [5.0, 5.0, 5.0, 5.0]),
        ("a BETWEEN SYMMETRIC 10 AND 5", [True, False, None, False]),
        ("a NOT BETWEEN SYMMETRIC 10 AND 5", [False, True, None, True]),
        ("a BETWEEN SYMMETRIC NULL AND 5", [None, None, None, None]),
        ("a BETWEEN SYMMETRIC 12 AND -3 AND a > 0", [True, False, None, True]),
        ("tags && ARRAY['x', 'z']", [True, False, None, True]),
        ("tags && ARRAY['z', NULL]", [False, False, None, False]),
        ("array_remove(ARRAY[1, 2, 1], 1)", [[2], [2], [2], [2]]),
        ("s COLLATE \"C\" < 'a'", [False, True, False, None]),
    ],
)
def test_values(db: Database, expression: str, cells: list[Any]) -> None:
    assert db.sql(f"SELECT {expression} AS x FROM t ORDER BY id").to_arrow()["x"].to_pylist() == cells


@pytest.mark.parametrize(
    ("text", "given", "rows"),
    [
        ("SELECT count(*), sum(a) FROM t GROUP BY ()", None, [(4, 14)]),
        ("SELECT count(*), sum(a) FROM t WHERE a > 100 GROUP BY () HAVING count(*) = 0", None, [(0, None)]),
        ("SELECT id FROM t WHERE a BETWEEN SYMMETRIC ? AND ? AND id < ?", [7, -4, 2], [(1,)]),
        ("SELECT s FROM t WHERE s > 'A' ORDER BY s COLLATE \"C\" DESC", None, [("b",), ("a",), ("B",)]),
    ],
)
def test_queries(db: Database, text: str, given: Any, rows: list[tuple[Any, ...]]) -> None:
    table = db.sql(text, given).to_arrow()
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows


@pytest.mark.parametrize("expression", ["~a + 1", "- ~a", "2 * ~a"])
def test_where_postgresql_means_another_operand(db: Database, expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="in parentheses"):
        db.sql(f"SELECT {expression} FROM t")


def test_other_collations_are_refused(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="COLLATE is not supported"):
        db.sql('SELECT s FROM t ORDER BY s COLLATE "de_DE"')

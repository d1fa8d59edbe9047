"""Words of PostgreSQL for which DataFusion has others."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, s text, ok boolean, at timestamp, day date)")
    embedded.sql(
        "INSERT INTO t VALUES (1, 'a!%', true, '2024-02-03 14:05:06.007', '2024-02-03'), (2, 'a\\b', true, NULL, "
        "NULL), (3, 'abc', false, NULL, NULL)"
    )
    return embedded


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("SELECT id FROM t ORDER BY id FETCH FIRST 2 ROWS ONLY", [1, 2]),
        ("SELECT id FROM t ORDER BY id FETCH NEXT ROW ONLY", [1]),
        ("SELECT id FROM t ORDER BY id OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY", [2]),
        ("WITH q AS MATERIALIZED (SELECT id FROM t) SELECT max(id) FROM q", [3]),
        ("WITH q AS NOT MATERIALIZED (SELECT id FROM t) SELECT min(id) FROM q", [1]),
        ("SELECT sign(-id) FROM t ORDER BY id DESC LIMIT 1", [-1]),
        ("SELECT every(ok) FROM t", [False]),
        ("SELECT array_join(array_cat(ARRAY[1], ARRAY[2]), '-')", ["1-2"]),
        ("SELECT id FROM t WHERE s LIKE 'a!%' ESCAPE '!'", []),
        ("SELECT id FROM t WHERE s LIKE 'a!!!%' ESCAPE '!'", [1]),
        ("SELECT id FROM t WHERE s LIKE 'A#!\\%' ESCAPE '\\' OR s ILIKE 'A\\B' ESCAPE ''", [2]),
        ("SELECT id FROM t WHERE s NOT LIKE '%x%%' ESCAPE 'x' ORDER BY id", [2, 3]),
        ("SELECT to_char(at, 'YYYY-MM-DD HH24:MI:SS') FROM t WHERE id = 1", ["2024-02-03 14:05:06"]),
        ("SELECT to_char(at, 'DD.MM.YY HH12:MI am, DDD, \"MM\"') FROM t WHERE id = 1", ["03.02.24 02:05 pm, 034, MM"]),
        ("SELECT to_char(at, 'YYYY-MM-DDTHH24:MI:SS.MS') FROM t WHERE id = 1", ["2024-02-03T14:05:06.007"]),
        ("SELECT to_char(day, 'Dy Mon IYYY IW') FROM t WHERE id = 1", ["Sat Feb 2024 05"]),
        ("SELECT to_char(at, '%Y') FROM t WHERE id = 1", ["2024"]),
        ("SELECT to_char(to_date('03/02/2024', 'DD/MM/YYYY'), 'YYYY-MM-DD')", ["2024-02-03"]),
    ],
)
def test_a_word(db: Database, text: str, cells: list[object]) -> None:
    assert db.sql(text).to_arrow().column(0).to_pylist() == cells


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT to_char(at, 'FXYYYY') FROM t", "'FXYYYY'"),
        ("SELECT id FROM t INTERSECT ALL SELECT 1", "INTERSECT ALL"),
        ("SELECT id FROM t EXCEPT ALL SELECT 1", "EXCEPT ALL"),
    ],
)
def test_a_word_that_is_refused(db: Database, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        db.sql(text)

"""Inner queries with OFFSET."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database

PAGE = "SELECT id FROM t ORDER BY id LIMIT 2 OFFSET 1"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (f"SELECT * FROM ({PAGE}) AS q ORDER BY id", [2, 3]),
        (f"SELECT * FROM ({PAGE}) AS q ORDER BY id DESC", [3, 2]),
        ("SELECT * FROM (SELECT id FROM t ORDER BY n LIMIT 2 OFFSET 1) AS q ORDER BY id", [2, 3]),
        ("SELECT count(*) FROM (SELECT * FROM (SELECT id FROM t LIMIT 3 OFFSET 1) AS q ORDER BY id) AS r", [3]),
        (f"WITH q AS ({PAGE}) SELECT id FROM q ORDER BY id", [2, 3]),
        (f"SELECT id FROM (SELECT id, rank() OVER (ORDER BY id) FROM ({PAGE}) AS q) AS r ORDER BY 1", [2, 3]),
        (f"({PAGE}) UNION ALL SELECT 9 ORDER BY id", [2, 3, 9]),
        (f"SELECT q.id FROM t JOIN ({PAGE}) AS q ON q.id = t.id ORDER BY q.id", [2, 3]),
        ("SELECT id FROM (SELECT id FROM t UNION SELECT 0 ORDER BY id LIMIT 3 OFFSET 1) AS q ORDER BY id", [1, 2, 3]),
        (PAGE, [2, 3]),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT 1 OFFSET 2) ORDER BY id", [3]),
    ],
)
def test_a_page_is_whole(embedded: Database, text: str, cells: list[int]) -> None:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, n int)")
    embedded.sql("INSERT INTO t VALUES (1, 4), (2, 3), (3, 2), (4, 1)")
    assert embedded.sql(text).to_arrow().column(0).to_pylist() == cells

"""Operators bind as in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.text.parsed_text import read_text
from nyala.clients.sql.text.precedence import with_parentheses
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    database = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    database.sql("CREATE TABLE p (id bigint PRIMARY KEY, x int, ok boolean)")
    database.sql("INSERT INTO p VALUES (1, 1, TRUE), (2, 2, TRUE), (3, NULL, FALSE)")
    yield database
    database.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
        ("a is not distinct from b+1 or c", "(a is not distinct from b+1) or c"),
        ("(a IS DISTINCT FROM b) AND c", "(a IS DISTINCT FROM b) AND c"),
        ("a IS DISTINCT FROM b = c AND d", "(a IS DISTINCT FROM b = c) AND d"),
        ("NOT a = b IS DISTINCT FROM NULL AND d", "NOT (a = b IS DISTINCT FROM NULL) AND d"),
        ("a IN (1, b) IS DISTINCT FROM c AND d", "((a IN (1, b)) IS DISTINCT FROM c) AND d"),
        ("a NOT BETWEEN 1 AND b IS DISTINCT FROM c OR d", "(a NOT BETWEEN 1 AND b IS DISTINCT FROM c) OR d"),
        ("a || b LIKE c IS DISTINCT FROM d LIKE e AND f", "((a || b LIKE c) IS DISTINCT FROM d LIKE e) AND f"),
        (
            "a IS DISTINCT FROM b::int AND -a IS NOT DISTINCT FROM f(c)[1]",
            "(a IS DISTINCT FROM b::int) AND (-a IS NOT DISTINCT FROM f(c)[1])",
        ),
        ("a || b || c = d", "a || b || c = d"),
        ("a||b + c * 2||d", "a||(b + c * 2)||d"),
        ("a - b || c", "(a - b) || c"),
        ("f(a).x || -b", "f(a).x || -b"),
        ("a | b & c", "(a | b) & c"),
        ("a | b | c << 1 << d", "(a | b | c) << 1 << d"),
        ("a & b = c AND d = e & 1", "a & b = c AND d = e & 1"),
        ("a LIKE b || c = d", "(a LIKE b || c) = d"),
        ("a = b NOT LIKE 'c' ESCAPE '$' AND d", "a = (b NOT LIKE 'c' ESCAPE '$') AND d"),
        ("a = b IN (1, 2 | 3 & 4)", "a = (b IN (1, (2 | 3) & 4))"),
        ("a <> b BETWEEN 1 AND 2 OR NOT c = d", "a <> (b BETWEEN 1 AND 2) OR NOT c = d"),
        ("a @> b IS NULL", "(a @> b) IS NULL"),
        ("(a LIKE b) = (c || (d + e))", "(a LIKE b) = (c || (d + e))"),
        ("CASE WHEN a IS DISTINCT FROM b THEN c END", "CASE WHEN (a IS DISTINCT FROM b) THEN c END"),
    ],
)
def test_the_text(text: str, expected: str | None) -> None:
    query = f"SELECT {text} FROM t"
    answer = with_parentheses(query, read_text(query))
    assert expected is None or answer == f"SELECT {expected} FROM t"
    assert read_text(answer).tree.sql().replace("(", "").replace(")", "") == read_text(query).tree.sql().replace(
        "(", ""
    ).replace(")", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a' || 1 + 2", "a3"),
        ("1 + 2 || 'a'", "3a"),
        ("'a' || 2 * 3 || 'b'", "a6b"),
        ("4 | 1 & 2", 0),
        ("1 | 2 << 2", 12),
        ("1 << 2 + 1", 8),
        ("3 & 1 = 1", True),
        ("'ab' LIKE 'a%' = true", True),
        ("true = 'ab' LIKE 'a%'", True),
        ("'ab' NOT LIKE 'a%' = false", True),
        ("'ab' ILIKE 'A' || '%' = true", True),
        ("'ab' SIMILAR TO 'ab' = true", True),
        ("true = 'ab' ~ 'a'", True),
        ("true = 1 IN (1)", True),
        ("false = 1 NOT IN (1)", True),
        ("false = 1 NOT BETWEEN 0 AND 2", True),
        ("true = 1 BETWEEN 0 AND 2", True),
        ("ARRAY[1] @> ARRAY[1] IS NULL", False),
        ("ARRAY[1] @> ARRAY[1] = true", True),
        ("1 IS DISTINCT FROM 2 AND false", False),
        ("1 IS DISTINCT FROM 1 OR true", True),
        ("true IS DISTINCT FROM 1 = 2", True),
        ("1 = 2 IS NOT DISTINCT FROM true", False),
        ("NOT 1 IS DISTINCT FROM 1 AND true", True),
        ("NOT 1 = 2 AND NOT 1 IS NULL", True),
        ("- 5 % 3 + 2", 0),
    ],
)
def test_the_value(db: Database, text: str, expected: object) -> None:
    assert db.sql(f"SELECT {text} AS v").to_pylist() == [{"v": expected}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 ^ 3", 8),
        ("-2 ^ 2", 4),
        ("2 ^ 3 ^ 2", 64),
        ("2 ^ (3 ^ 2)", 512),
        ("2 * 3 ^ 2 + 1", 19),
        ("power(x, 2) ^ 2 ^ -1 || ''", "0.0625"),
    ],
)
def test_a_power(db: Database, text: str, value: object) -> None:
    """DataFusion has an exclusive or there."""
    assert db.sql(f"SELECT {text} AS v FROM p WHERE x ^ 2 > 3").to_pylist() == [{"v": value}]


def test_a_power_in_a_change(db: Database) -> None:
    db.sql("CREATE TABLE powers (id bigint PRIMARY KEY, x int)")
    db.sql("INSERT INTO powers VALUES (1, 7), (2, 1)")
    db.sql("UPDATE powers SET x = x ^ ? WHERE x ^ 2 > 48", [3])
    assert db.sql("SELECT x FROM powers ORDER BY id").to_pylist() == [{"x": 343}, {"x": 1}]


def test_rows_are_chosen_by_both_conditions(db: Database) -> None:
    assert db.sql("SELECT id FROM p WHERE ok IS DISTINCT FROM FALSE AND FALSE").to_pylist() == []
    assert db.sql("SELECT id FROM p WHERE x IS DISTINCT FROM id AND ok").to_pylist() == []
    assert db.sql("DELETE FROM p WHERE ok IS DISTINCT FROM FALSE AND FALSE").changed == 0
    assert db.sql("UPDATE p SET x = 5 WHERE ok IS NOT DISTINCT FROM TRUE AND x IS DISTINCT FROM 1").changed == 1
    assert db.sql("UPDATE p SET x = 6 WHERE ok IS NOT DISTINCT FROM TRUE AND x > random() + 1").changed == 1

"""SIMILAR TO, whose patterns are those of SQL and no regular expressions."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE p (id bigint PRIMARY KEY, s text)")
    embedded.sql("INSERT INTO p VALUES (1, 'abc'), (2, 'a.c'), (3, NULL), (4, 'xabcx'), (5, '')")
    return embedded


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("abc", "'abc'", True),
        ("abc", "'a'", False),
        ("abc", "'%(b|d)%'", True),
        ("abc", "'(b|c)%'", False),
        ("abc", "'a_c'", True),
        ("abc", "'a.c'", False),
        ("a.c", "'a.c'", True),
        ("a\nc", "'a_c'", True),
        ("a\nc", "'a%'", True),
        ("abc", "'_b_|x'", True),
        ("xabc", "'abc|x'", False),
        ("aab", "'a{2}b'", True),
        ("aaab", "'a{1,2}b'", False),
        ("aab", "'a+b?'", True),
        ("b", "'a*b'", True),
        ("^a$", "'^a$'", True),
        ("a", "'^a$'", False),
        ("a-c", "'a[^a-z]c'", True),
        ("abc", "'a[a-z]c'", True),
        ("a]c", "'a[]x]c'", True),
        ("a&c", "'a[&&x~]c'", True),
        ("a%c", "'a[%]c'", True),
        ("a1c", "'a[[:digit:]]c'", True),
        ("50%", "'50\\%'", True),
        ("500", "'50\\%'", False),
        ("50%", "'50!%' ESCAPE '!'", True),
        ("50\\", "'50\\' ESCAPE ''", True),
        ("it's", "'it''_'", True),
        ("a#b", "'a#b'", True),
    ],
)
def test_a_pattern(db: Database, text: str, pattern: str, matches: bool) -> None:
    answer = db.sql(f"SELECT ? SIMILAR TO {pattern} AS a, NOT ? NOT SIMILAR TO {pattern} AS b", [text, text])
    assert answer.to_pylist() == [{"a": matches, "b": matches}]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("s SIMILAR TO '%b%'", [1, 4]),
        ("s NOT SIMILAR TO '%b%'", [2, 5]),
        ("NOT s SIMILAR TO ('a_c')", [4, 5]),
        ("s SIMILAR TO NULL", []),
        ("s || 'x' SIMILAR TO '_{4}' AND id < 2", [1]),
        ("id IN (SELECT id FROM p WHERE s SIMILAR TO 'a_c' GROUP BY id)", [1, 2]),
    ],
)
def test_rows(db: Database, condition: str, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql(f"SELECT id FROM p WHERE {condition} ORDER BY id").to_pylist()] == ids


def test_a_change(db: Database) -> None:
    assert db.sql("DELETE FROM p WHERE s SIMILAR TO 'a%'").changed == 2


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("s", "takes a pattern in quotes"),
        ("'a' || s", "takes a pattern in quotes"),
        ("'a[b'", r"has a \[ without"),
        ("'a\\'", "ends with its character of ESCAPE"),
        ("'a' ESCAPE 'xy'", "one character"),
        ("'[a--c]'", "two dashes"),
    ],
)
def test_a_pattern_that_is_none(db: Database, pattern: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        db.sql(f"SELECT id FROM p WHERE s SIMILAR TO {pattern}")

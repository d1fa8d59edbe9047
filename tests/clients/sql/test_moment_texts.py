"""Texts of timestamps, and casts to texts of a length, as PostgreSQL has them."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError

LONG, SHORT, FAR = "2024-01-31 10:15:30.25", "2024-01-31 08:00:00", "0900-10-20 00:00:00.000001"


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, at timestamp, s text, n numeric(9, 2), day date)")
    embedded.sql(
        f"INSERT INTO t VALUES (1, '{LONG}', 'abcdef', 12.34, '2024-01-31'), (2, '{SHORT}', 'ab', -1, NULL), "
        f"(3, '{FAR}', '', 1000, NULL), (4, NULL, NULL, NULL, NULL)"
    )
    return embedded


@pytest.mark.parametrize(
    ("expression", "cells"),
    [
        ("at::text", [LONG, SHORT, FAR, None]),
        ("CAST(at AS varchar)", [LONG, SHORT, FAR, None]),
        ("at || '|' || id", [f"{LONG}|1", f"{SHORT}|2", f"{FAR}|3", None]),
        ("concat(at, '|', id)", [f"{LONG}|1", f"{SHORT}|2", f"{FAR}|3", "|4"]),
        ("concat_ws(',', at, day)", [f"{LONG},2024-01-31", SHORT, FAR, ""]),
        ("CAST(at AS varchar(10))", ["2024-01-31", "2024-01-31", "0900-10-20", None]),
        ("at::varchar(7)::text || '!'", ["2024-01!", "2024-01!", "0900-10!", None]),
        ("upper(at::text)", [LONG, SHORT, FAR, None]),
        ("date_trunc('month', at)::text", ["2024-01-01 00:00:00"] * 2 + ["0900-10-01 00:00:00", None]),
        (
            "(at + INTERVAL '1 second')::text",
            [LONG[:-4] + "1.25", SHORT[:-1] + "1", "0900-10-20 00:00:01.000001", None],
        ),
        ("day::text", ["2024-01-31", None, None, None]),
        ("s::varchar(3)", ["abc", "ab", "", None]),
        ("CAST(s AS character varying(4)) || '.'", ["abcd.", "ab.", ".", None]),
        ("n::varchar(4)", ["12.3", "-1.0", "1000", None]),
        ("coalesce(s, 'none')::varchar(2)::text", ["ab", "ab", "", "no"]),
    ],
)
def test_texts(db: Database, expression: str, cells: list[str | None]) -> None:
    assert db.sql(f"SELECT {expression} AS x FROM t ORDER BY id").to_arrow()["x"].to_pylist() == cells


def test_conditions(db: Database) -> None:
    assert db.sql("SELECT id FROM t WHERE at::text LIKE '2024-01-31 10%'").to_pylist() == [{"id": 1}]
    assert db.sql("SELECT count(*) AS n FROM t GROUP BY at::varchar(10) ORDER BY n").to_arrow()["n"].to_pylist() == [
        1,
        1,
        2,
    ]


@pytest.mark.parametrize(
    "expression", ["at::varchar(3)", "s::varchar(3)", "at || 'x'", "CAST(s AS character varying(4))"]
)
def test_a_mistake_elsewhere_is_named(db: Database, expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no column 'none'"):
        db.sql(f"SELECT {expression}, none FROM t")


def test_names_stay(db: Database) -> None:
    text = (
        "SELECT at, s FROM (SELECT id, at::text, s::varchar(2) FROM t) AS q WHERE q.at > '2' AND s = 'ab' ORDER BY id"
    )
    assert db.sql(text).to_pylist() == [{"at": LONG, "s": "ab"}, {"at": SHORT, "s": "ab"}]


@pytest.mark.parametrize(
    "value", ["at", "at::text", "CAST(at AS varchar)", "(SELECT max(at)::text FROM t AS o WHERE o.id = t.id)"]
)
def test_changes(db: Database, value: str) -> None:
    db.sql(f"UPDATE t SET s = {value} WHERE id < 4")
    assert db.sql("SELECT s FROM t WHERE id < 4 ORDER BY id").to_arrow()["s"].to_pylist() == [LONG, SHORT, FAR]

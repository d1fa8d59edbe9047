"""Timestamps, dates and texts that a query compares, in all years that the store has."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, at timestamp, day date, s text)")
    embedded.sql(
        "INSERT INTO t VALUES (1, '0001-01-01', '0001-01-01', 'a'), (2, '2026-01-01 12:00:00', '2026-01-01', 'b'), "
        "(3, '9999-12-31', '9999-12-31', 'c'), (4, NULL, NULL, 'd')"
    )
    return embedded


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("at = TIMESTAMP '9999-12-31'", [3]),
        ("at < timestamp '9999-12-31 00:00:00'", [1, 2]),
        ("at >= '9999-12-31'", [3]),
        ("at > '0001-01-01'", [2, 3]),
        ("'0001-01-01' = at", [1]),
        ("at = '9999-12-31'::timestamp", [3]),
        ("at = CAST('9999-12-31' AS timestamp without time zone)", [3]),
        ("at = timestamptz '9999-12-31 01:00:00+01'", [3]),
        ("at = TIMESTAMP WITH TIME ZONE '9999-12-31 00:00:00Z'", [3]),
        ("at = DATE '9999-12-31'", [3]),
        ("at > DATE '2026-01-01'", [2, 3]),
        ("at = day", [1, 3]),
        ("day < at", [2]),
        ("day = TIMESTAMP '9999-12-31'", [3]),
        ("day < '9999-12-31'", [1, 2]),
        ("day::timestamp = at", [1, 3]),
        ("at BETWEEN '0001-01-01' AND DATE '2026-01-02'", [1, 2]),
        ("at NOT BETWEEN '0001-01-01' AND TIMESTAMP '2026-01-02'", [3]),
        ("at IN ('0001-01-01', DATE '9999-12-31')", [1, 3]),
        ("at NOT IN (TIMESTAMP '9999-12-31')", [1, 2]),
        ("at IN (SELECT at FROM t WHERE at > '3000-01-01')", [3]),
        ("day IN (SELECT at FROM t)", [1, 3]),
        ("at > now()", [3]),
        ("day < current_timestamp - INTERVAL '100 years'", [1]),
        ("at - INTERVAL '1 day' > day - 2", [1, 2, 3]),
        ("at - day > INTERVAL '1 hour'", [2]),
        ("CASE WHEN id = 2 THEN day ELSE at END = '9999-12-31'", [3]),
        ("coalesce(at, '9999-12-31') = '9999-12-31'", [3, 4]),
        ("nullif(at, '9999-12-31') IS NULL", [3, 4]),
        ("date_trunc('day', at) = '9999-12-31'", [3]),
        ("at IS NOT DISTINCT FROM TIMESTAMP '9999-12-31'", [3]),
        ("at > '2026-01-01 11:59'", [2, 3]),
        ("at = TIMESTAMP '2026-01-01 12:00'", [2]),
        ("at <= '2026-01-01T12:00'::timestamp", [1, 2]),
        ("at = CAST('2026-01-01 12:00' AS timestamp) AND at IN ('2026-01-01 12:00')", [2]),
        ("at = day + INTERVAL '12 hours'", [2]),
        ("day + INTERVAL '36 hours' > at + INTERVAL '35 hours'", [1, 3]),
        ("DATE '2025-12-30' + INTERVAL '60 hours' = at", [2]),
        ("day - INTERVAL '1 day' = '2025-12-31'", [2]),
        ("id = (SELECT max(id) FROM t WHERE at > TIMESTAMP '2300-01-01')", [3]),
    ],
)
def test_all_years(db: Database, condition: str, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()] == ids


@pytest.mark.parametrize(("value", "ids"), [(LAST, [3]), (LAST.date(), [3]), ("9999-12-31", [3]), (None, [])])
def test_parameters(db: Database, value: Any, ids: list[int]) -> None:
    assert [row["id"] for row in db.sql("SELECT id FROM t WHERE at = ?", [value]).to_pylist()] == ids
    assert [row["id"] for row in db.sql("SELECT id FROM t WHERE day = ?", [value]).to_pylist()] == ids


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("SELECT TIMESTAMP '9999-12-31' AS at", [LAST]),
        ("SELECT '0001-01-01'::timestamp AS at", [FIRST]),
        ("SELECT CASE WHEN id = 1 THEN day ELSE at END AS at FROM t WHERE id <> 2 ORDER BY id", [FIRST, LAST, None]),
        ("SELECT at FROM t WHERE id = 3 UNION ALL SELECT day FROM t WHERE id = 1 ORDER BY at", [FIRST, LAST]),
        ("SELECT day AS at FROM t WHERE id = 1 UNION SELECT at FROM t WHERE id = 3 ORDER BY at", [FIRST, LAST]),
        ("SELECT at FROM t WHERE id = 1 UNION ALL SELECT '9999-12-31' ORDER BY at", [FIRST, LAST]),
        ("SELECT max(at) AS at FROM (SELECT at FROM t UNION SELECT TIMESTAMP '2000-01-01') AS q", [LAST]),
        ("SELECT at FROM t INTERSECT SELECT day FROM t ORDER BY at NULLS LAST", [FIRST, LAST, None]),
        ("SELECT coalesce(at, '9999-12-31') AS at FROM t WHERE id <> 2 ORDER BY id", [FIRST, LAST, LAST]),
        ("SELECT s::timestamp AS at FROM (SELECT '9999-12-31' AS s) AS q", [LAST]),
    ],
)
def test_answers(db: Database, text: str, cells: list[Any]) -> None:
    column = db.sql(text).to_arrow()["at"]
    assert column.type == pa.timestamp("us")
    assert column.to_pylist() == cells


def test_a_filter_reaches_the_store(db: Database) -> None:
    for condition in ("at > '2300-01-01'", "at > TIMESTAMP '2300-01-01'", "at > DATE '2300-01-01'"):
        plan = "\n".join(db.sql(f"EXPLAIN SELECT id FROM t WHERE {condition}").to_arrow()["plan"].to_pylist())
        assert '"column": "at"' in plan, condition


def test_nanoseconds_that_are_written_stay(db: Database) -> None:
    column = db.sql("SELECT TIMESTAMP '2026-01-01 00:00:00.123456789' AS at").to_arrow()["at"]
    assert column.type == pa.timestamp("ns")


def test_finer_literals_are_rounded_where_they_meet_microseconds(embedded: Database) -> None:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, at timestamp)")
    embedded.sql(
        "INSERT INTO t VALUES (1, '2026-01-01 00:00:00.123456'), (2, '2026-01-01 00:00:00.123457'), "
        "(3, '2027-01-01'), (4, '9000-01-01 00:00:00.123457')"
    )
    fine = "'2026-01-01 00:00:00.1234567'"
    for condition, ids in (
        (f"at = {fine}", [2]),
        (f"at = TIMESTAMP {fine}", [2]),
        (f"at IN ({fine}, TIMESTAMP '2026-12-31 23:59:59.9999996')", [2, 3]),
        (f"at >= {fine}::timestamp", [2, 3, 4]),
        (f"at BETWEEN CAST({fine} AS timestamp) AND '2026-01-02'", [2]),
        ("at < TIMESTAMP '2026-01-01 00:00:00.1234569'", [1]),
        ("at = '9000-01-01 00:00:00.1234567' OR at = TIMESTAMP '2026-01-01 00:00:00.1234564+00'", [1, 4]),
        ("at = TIMESTAMP '9000-01-01 00:00:00.1234567'", [4]),
    ):
        rows = embedded.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist()
        assert [row["id"] for row in rows] == ids, condition
    embedded.sql(f"INSERT INTO t VALUES (5, TIMESTAMP {fine})")
    embedded.sql(f"INSERT INTO t SELECT 6, TIMESTAMP {fine}")
    rows = embedded.sql("SELECT at FROM t WHERE id > 4").to_arrow()
    assert rows["at"].to_pylist() == [dt.datetime(2026, 1, 1, 0, 0, 0, 123457)] * 2


def test_a_change(db: Database) -> None:
    assert db.sql("UPDATE t SET s = 'far' WHERE at > TIMESTAMP '9999-12-30' OR at < DATE '0001-01-02'").changed == 2
    assert db.sql("DELETE FROM t WHERE upper(s) = 'FAR' AND at = '9999-12-31'").changed == 1


@pytest.mark.parametrize(
    "text", ["SELECT at AS timestamp FROM t WHERE id = 1", "SELECT timestamp FROM (SELECT at AS timestamp FROM t) AS q"]
)
def test_a_name_is_no_type(db: Database, text: str) -> None:
    assert db.sql(text).to_arrow().column_names == ["timestamp"]

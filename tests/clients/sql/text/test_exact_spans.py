"""Intervals and times that a query compares, which DataFusion compares by their days, or not at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.sql.text.exact_spans import exact_spans

HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nyala.Database]:
    folder: Path = tmp_path_factory.mktemp("spans")
    begun = [dt.datetime(2026, 1, 1)] * 4
    rows = pa.table(
        {
            "k": [1, 2, 3, 4],
            "d": pa.array([HOUR, 24 * HOUR, 25 * HOUR, None], pa.duration("us")),
            "s": pa.array([3_600, 86_400, 90_000, None], pa.duration("s")),
            "c": pa.array([dt.time(1), dt.time(12, 30), None, dt.time(23, 59, 59)], pa.time64("us")),
            "n": pa.array([dt.time(1), dt.time(12, 30), None, dt.time(23, 59, 59)], pa.time32("s")),
            "begun": pa.array(begun, pa.timestamp("us")),
            "ended": pa.array([each + dt.timedelta(hours=20 + hour) for hour, each in enumerate(begun)]),
        }
    )
    with nyala.open(folder / "store") as db:
        db.create_table("t", data=rows, primary_key="k")
        db.sql("CREATE TABLE i (k bigint PRIMARY KEY, span interval)")
        db.sql("INSERT INTO i VALUES (1, INTERVAL '1 day'), (2, INTERVAL '24 hours')")
        yield db


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("d = INTERVAL '1 day'", [2]),
        ("INTERVAL '1' DAY < d", [3]),
        ("d > interval '23 hours 59 minutes 59.5 seconds'", [2, 3]),
        ("s >= INTERVAL '1 day'", [2, 3]),
        ("d BETWEEN INTERVAL '1 hour' AND INTERVAL '1 days'", [1, 2]),
        ("d IN (INTERVAL '1 hour', INTERVAL '25 hours')", [1, 3]),
        ("d <> INTERVAL '1 week'", [1, 2, 3]),
        ("d + INTERVAL '1 hour' = INTERVAL '2 hours'", [1]),
        ("ended - begun > INTERVAL '21 hours' AND k < 4", [3]),
        ("ended - begun < INTERVAL '1 day'", [1, 2, 3, 4]),
        ("ended > begun + INTERVAL '22 hours'", [4]),
        ("c = TIME '12:30:00'", [2]),
        ("TIME '12:00' < c", [2, 4]),
        ("n BETWEEN TIME '01:00:00' AND TIME '12:30:00'", [1, 2]),
        ("c IN (TIME '01:00:00')", [1]),
        ("c > '12:00'::time", [2, 4]),
        ("'12:30'::time without time zone = n", [2]),
        ("c >= CAST('12:30:00' AS time)", [2, 4]),
        ("n BETWEEN '01:00'::time AND CAST('12:30' AS TIME WITHOUT TIME ZONE)", [1, 2]),
        ("c IN ('01:00'::time, '23:59:59'::time)", [1, 4]),
        ("c > '12:00'", [2, 4]),
        ("n = '12:30'", [2]),
    ],
)
def test_spans_are_compared_by_their_lengths(db: nyala.Database, condition: str, keys: list[int]) -> None:
    found = db.sql(f"SELECT k FROM t WHERE {condition} ORDER BY k").to_pylist()
    assert [row["k"] for row in found] == keys
    negated = db.sql(f"SELECT k FROM t WHERE NOT ({condition}) ORDER BY k").to_pylist()
    assert not {row["k"] for row in negated} & set(keys)


def test_statements_compare_them_alike(db: nyala.Database) -> None:
    db.sql("CREATE TABLE u (PRIMARY KEY (k)) AS SELECT k, d FROM t")
    assert db.sql("DELETE FROM u WHERE d >= INTERVAL '1 day'").changed == 2
    assert db.sql("SELECT count(*) AS n FROM u").to_pylist() == [{"n": 2}]


def test_intervals_of_months_stay_as_they_are(db: nyala.Database) -> None:
    """Of a column of intervals a day is no 24 hours, as it says itself."""
    assert db.sql("SELECT k FROM i WHERE span = INTERVAL '1 day'").to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT INTERVAL '1 day' FROM t",
        "SELECT k FROM t WHERE begun > now() - INTERVAL '1 day'",
        "SELECT k FROM t WHERE begun < ended AND INTERVAL '1 day' + begun < ended",
        "SELECT k FROM t WHERE d = INTERVAL '1 month'",
        "SELECT k FROM t WHERE d = INTERVAL '01:00:00'",
        "SELECT interval, time FROM t",
        "SELECT 'x = INTERVAL ''1 day''' FROM t",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert exact_spans(text, {"t": pa.schema([("d", pa.duration("us")), ("c", pa.time64("us"))])}) == text

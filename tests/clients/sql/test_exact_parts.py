"""Parts of differences of timestamps, and truncated moments of all years."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import InvalidArgumentError


@pytest.fixture
def db(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE t (id bigint PRIMARY KEY, at timestamp, ts timestamp, day date)")
    embedded.sql(
        "INSERT INTO t VALUES (1, '2024-01-31 10:15:30.123456', '2024-01-01', '2024-01-31'), "
        "(2, '1969-07-20 20:17:40.25', '1970-01-01', '1969-07-20'), "
        "(3, '9000-10-11 12:13:14.000001', '9000-10-11 12:13:14', '9000-10-11'), (4, NULL, '2024-01-01', NULL), "
        "(5, '0900-03-04 05:06:07.5', '0900-03-01', '0900-03-04')"
    )
    return embedded


def cells(db: Database, expression: str) -> list[Any]:
    rows = db.sql(f"SELECT {expression} AS x FROM t ORDER BY id").to_arrow()
    return rows["x"].to_pylist()


SECONDS = [2628930.123456, -14182939.75, 0.000001, None, 277567.5]


@pytest.mark.parametrize(
    "expression",
    [
        "extract(epoch FROM at - ts)",
        "EXTRACT(EPOCH FROM (at - ts))",
        "date_part('epoch', at - ts)",
        "-extract('epoch' FROM ts - at)",
        "extract(epoch FROM CASE WHEN id > 0 THEN at - ts END)",
        "extract(epoch FROM max(at) OVER (PARTITION BY id) - ts)",
        "extract(epoch FROM (at - ts) + (ts - ts))",
        "extract(epoch FROM sum(at - ts) OVER (PARTITION BY id))",
        "extract(epoch FROM at) - extract(epoch FROM ts)",
        "sum(extract(epoch FROM at - ts)) OVER (PARTITION BY id)",
    ],
)
def test_seconds_of_a_difference_have_fractions(db: Database, expression: str) -> None:
    assert cells(db, expression) == pytest.approx(SECONDS, abs=1e-5)


def test_seconds_of_a_difference_in_a_query_of_from(db: Database) -> None:
    rows = db.sql("SELECT extract(epoch FROM d) AS x FROM (SELECT id, at - ts AS d FROM t) AS q ORDER BY id").to_arrow()
    assert rows["x"].to_pylist() == pytest.approx(SECONDS)
    means = db.sql("SELECT extract(epoch FROM avg(at - ts)) AS x FROM t WHERE id IN (1, 5)").to_arrow()
    assert means["x"].to_pylist() == pytest.approx([(SECONDS[0] + SECONDS[4]) / 2])
    days = db.sql("SELECT extract(epoch FROM at - day) AS x FROM t WHERE id = 2").to_arrow()
    assert days["x"].to_pylist() == [73060.25]


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("day", [30, -164, 0, None, 3]),
        ("hour", [10, -3, 0, None, 5]),
        ("minute", [15, -42, 0, None, 6]),
        ("second", [30, -19, 0, None, 7]),
        ("milliseconds", [30123, -19750, 0, None, 7500]),
        ("microseconds", [30123456, -19750000, 1, None, 7500000]),
    ],
)
def test_parts_of_a_difference(db: Database, part: str, values: list[Any]) -> None:
    assert cells(db, f"extract({part} FROM at - ts)") == values
    assert cells(db, f"date_part('{part}', at - ts)") == values


def test_the_column_keeps_its_name_and_type(db: Database) -> None:
    column = db.sql("SELECT extract(hour FROM at - ts), extract(epoch FROM at - ts) FROM t").to_arrow()
    assert [str(field.type) for field in column.schema] == ["int32", "double"]
    assert [name.partition("(")[0] for name in column.column_names] == ["date_part", "date_part"]


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [
        ("year", dt.datetime(900, 1, 1), dt.datetime(9000, 1, 1)),
        ("quarter", dt.datetime(900, 1, 1), dt.datetime(9000, 10, 1)),
        ("month", dt.datetime(900, 3, 1), dt.datetime(9000, 10, 1)),
        ("week", dt.datetime(900, 3, 1), dt.datetime(9000, 10, 6)),
        ("day", dt.datetime(900, 3, 4), dt.datetime(9000, 10, 11)),
        ("hour", dt.datetime(900, 3, 4, 5), dt.datetime(9000, 10, 11, 12)),
        ("milliseconds", dt.datetime(900, 3, 4, 5, 6, 7, 500000), dt.datetime(9000, 10, 11, 12, 13, 14)),
        ("MONTH", dt.datetime(900, 3, 1), dt.datetime(9000, 10, 1)),
    ],
)
def test_truncated_moments_of_all_years(db: Database, part: str, first: dt.datetime, last: dt.datetime) -> None:
    rows = cells(db, f"date_trunc('{part}', at)")
    assert [rows[4], rows[2], rows[3]] == [first, last, None]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT date_trunc('month', day) AS x FROM t WHERE id = 3", [dt.datetime(9000, 10, 1)]),
        ("SELECT date_trunc('hour', day::date) AS x FROM t WHERE id = 3", [dt.datetime(9000, 10, 11)]),
        ("SELECT date_trunc('week', TIMESTAMP '9000-10-11 12:00:00') AS x", [dt.datetime(9000, 10, 6)]),
        (
            "SELECT date_trunc('month', at) AS x FROM t WHERE id > 2 GROUP BY date_trunc('month', at) ORDER BY 1",
            [dt.datetime(900, 3, 1), dt.datetime(9000, 10, 1), None],
        ),
        (
            "SELECT at AS x FROM t WHERE date_trunc('year', at) = '0900-01-01'",
            [dt.datetime(900, 3, 4, 5, 6, 7, 500000)],
        ),
        (
            "SELECT date_trunc('month', max(at) OVER (ORDER BY id)) + INTERVAL '1 month' AS x FROM t WHERE id = 3",
            [dt.datetime(9000, 11, 1)],
        ),
        ("SELECT date_trunc('year', x) AS x FROM (SELECT at AS x FROM t WHERE id = 2) AS q", [dt.datetime(1969, 1, 1)]),
    ],
)
def test_truncated_moments(db: Database, text: str, values: list[Any]) -> None:
    column = db.sql(text).to_arrow()["x"]
    assert column.type == pa.timestamp("us")
    assert column.to_pylist() == values


@pytest.mark.parametrize(
    "expression",
    ["date_trunc('day', at)", "date_trunc('day', day)", "extract(epoch FROM at - ts)", "date_trunc('month', at)"],
)
def test_a_mistake_elsewhere_is_named(db: Database, expression: str) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no column 'none'"):
        db.sql(f"SELECT {expression}, none FROM t")

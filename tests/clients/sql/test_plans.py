"""Plans of queries that are kept: the next run means the same, at its own time."""

from __future__ import annotations

import pytest

from nyala.clients.api.database import Database

LAST_HOUR = {
    "now": "at BETWEEN now() - INTERVAL '1 hour' AND now()",
    "current_timestamp": "at BETWEEN CURRENT_TIMESTAMP - INTERVAL '1 hour' AND current_timestamp",
    "as it was": "at <= now() AND at > now() - INTERVAL '1 hour' AND id IN (SELECT id FROM e WHERE at <= now())",
}


@pytest.fixture
def e(embedded: Database) -> Database:
    embedded.sql("CREATE TABLE e (id bigint PRIMARY KEY, at timestamp)")
    return embedded


@pytest.mark.parametrize("name", LAST_HOUR)
def test_now_is_that_of_each_run(e: Database, name: str) -> None:
    for count in (1, 2, 3):
        e.sql(f"INSERT INTO e VALUES ({count}, now())")
        rows = e.sql(f"SELECT count(*) AS n FROM e WHERE {LAST_HOUR[name]}").to_pylist()
        assert rows == [{"n": count}]


def test_now_of_a_change_is_that_of_each_run(e: Database) -> None:
    e.sql("CREATE TABLE log (id bigint PRIMARY KEY)")
    e.sql("INSERT INTO log VALUES (1), (2)")
    for number in (1, 2):
        e.sql(f"INSERT INTO e VALUES ({number}, now())")
        assert e.sql("DELETE FROM e USING log WHERE e.id = log.id AND e.at < now()").changed == 1

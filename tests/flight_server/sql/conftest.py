from __future__ import annotations

from collections.abc import Iterator

import pytest

import nyala
from tests.flight_server.sql.served_sql import SqlServer


@pytest.fixture(scope="module")
def served() -> Iterator[SqlServer]:
    server = SqlServer(sql_timeout_seconds=60.0)
    yield server
    server.close()


@pytest.fixture
def homes(served: SqlServer) -> Iterator[nyala.Table]:
    data = {"id": [1, 2, 3], "city": ["Oslo", "Bergen", None], "price": [1.5, None, float("nan")]}
    table = served.db.create_table("homes", primary_key="id", data=data)
    yield table
    for name in served.db.list_tables():
        served.db.drop_table(name)

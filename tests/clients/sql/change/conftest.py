"""A store with a small SQL, and tables to change."""

from __future__ import annotations

import pytest

from nyala.engine.store import Store

from .small_reader import SmallSql


@pytest.fixture
def sql(store: Store) -> SmallSql:
    return SmallSql(store)


@pytest.fixture
def homes(sql: SmallSql) -> SmallSql:
    """Three homes and two offers."""
    sql.run(
        "CREATE TABLE homes (id bigint PRIMARY KEY, city text, price double precision, n int NOT NULL DEFAULT 7, "
        "cents numeric(6,2), day date, at timestamp, ok boolean, raw bytea);"
        "INSERT INTO homes (id, city, price, n, cents) VALUES (1, 'Oslo', 10.0, 1, 1.25), (2, 'Oslo', NULL, 2, NULL), "
        "(3, 'Hamar', 'NaN', 3, 3);"
        "CREATE TABLE offers (id bigint PRIMARY KEY, home bigint, n int);"
        "INSERT INTO offers VALUES (1, 1, 10), (2, 2, 20), (3, 2, 21), (4, 9, 90)"
    )
    return sql

"""A PostgreSQL for the tests of its source, and stores that mirror it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nyala.clients.api.database import Database
from nyala.sources import Position, Progress
from nyala.sources.postgres import mirror

from .postgres_server import PostgresServer, has_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of a process."""
    if not has_postgres():
        pytest.skip("there is no PostgreSQL: .ci/postgres.sh installs it on Debian")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def source(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, with an empty schema ``public`` and no slots."""
    postgres.clear()
    yield postgres
    postgres.clear()


@pytest.fixture
def catch_up(source: PostgresServer) -> Callable[..., Position]:
    """Mirrors tables until everything is applied."""

    def run(database: Database, *tables: str, again: bool = False, reports: list[Progress] | None = None) -> Position:
        report = (lambda progress: None) if reports is None else reports.append
        return mirror(database, source.url, tables, until_caught_up=True, again=again, report=report)

    return run

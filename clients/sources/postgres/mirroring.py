"""The public call that mirrors PostgreSQL tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...api.database import Database
from ..positions import Position
from ..runner import Report, Runner
from ..source import BatchLimits
from .postgres_source import PostgresSource


def mirror(
    database: Database,
    dsn: str,
    tables: Mapping[str, str] | Sequence[str],
    *,
    source: str = "",
    until_caught_up: bool = False,
    again: bool = False,
    workers: int = 2,
    limits: BatchLimits | None = None,
    report: Report = lambda progress: None,
) -> Position:
    """Mirror tables of a PostgreSQL database into tables of ``database``, and keep them up to date.

    The first call copies the rows. Then the changes of the tables are applied, in the transactions in which they were
    committed, until the process ends; with ``until_caught_up`` until all of them are applied that were committed when
    the call began. A later call continues where the store is, so every change is applied exactly once.

    ``dsn`` is a URL ``postgresql://user@host/database``, or words as libpq takes them. ``tables`` are names such as
    ``public.orders``, or a mapping of these to the names of the tables in ``database``. ``source`` names the mirror in
    the table ``nyala_sources``; by default it is the name of the PostgreSQL database. ``again`` copies the tables anew.
    ``workers`` read at the same time during the copy. ``report`` is called with each news. Return the position that was
    reached. See docs/mirror.md.

    Raises:
        InvalidArgumentError: the address, a table or one of its types cannot be mirrored.
        NotFoundError: a table, the replication slot or the publication does not exist.
        AlreadyPresentError: a table of ``database`` has rows already.
        ConflictError: a table of the source changed in a way that cannot be followed, changes are lost, or another
            process runs this mirror.
        UnavailableError: PostgreSQL or the store could not be reached for five minutes.
    """
    origin = PostgresSource(dsn, tables, source, workers)
    try:
        return Runner(database, origin, report, limits, workers).run(until_caught_up, again)
    finally:
        origin.close()

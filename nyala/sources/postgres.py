"""Mirrors tables of PostgreSQL: `mirror`. It needs `nyala[postgres]`."""

from nyala.clients.sources.postgres.mirroring import mirror
from nyala.clients.sources.postgres.postgres_source import PostgresSource

__all__ = ["PostgresSource", "mirror"]

"""PostgreSQL behind the interface of a source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ....schemas.errors import InvalidArgumentError, UnavailableError
from ..source import BatchLimits, Snapshot, Source, SourceBatch, SourceTable
from . import slot
from .catalog import CatalogTable, read_table, source_table
from .connection import Dsn
from .copying import SnapshotReader
from .messages import lsn_of
from .relations import Relations
from .stream import ChangeStream

_LAST_NAME = re.compile(r'(?:^|\.)(?:"((?:[^"]|"")+)"|([^".]+))$')


class PostgresSource(Source):
    """Tables of one PostgreSQL database."""

    kind = "postgresql"

    def __init__(self, dsn: str, tables: Mapping[str, str] | Sequence[str], name: str = "", workers: int = 2) -> None:
        """Mirror ``tables``, with the names of their targets if they are a mapping.

        Raises:
            InvalidArgumentError: no table is named, or two have one target.
        """
        if isinstance(tables, str) or not tables:
            raise InvalidArgumentError("name at least one table, as in --table public.orders")
        self.chosen = dict(tables) if isinstance(tables, Mapping) else {each: target_of(each) for each in tables}
        self._dsn = Dsn(dsn)
        self._workers = workers
        self._control: Any = None
        self._stream: ChangeStream | None = None
        self._lock = ""
        self.name = name or f"{self._dsn.database}"

    def tables(self) -> list[SourceTable]:
        """Return the tables as the catalog has them now."""
        return [table for table, _ in self._described()]

    def _described(self) -> list[tuple[SourceTable, CatalogTable]]:
        described = []
        with self._dsn.errors(), self._cursor() as cursor:
            slot.check_server(cursor)
            for name, target in self.chosen.items():
                there = read_table(cursor, name)
                described.append((source_table(name, target, there), there))
        oids = [there.oid for _, there in described]
        if len(set(oids)) < len(oids):
            raise InvalidArgumentError("two of the names mean the same table of PostgreSQL: name each table once")
        return described

    def new_memo(self) -> str:
        """Return the names of a new slot and publication."""
        with self._dsn.errors(), self._cursor() as cursor:
            return slot.Memo.new(self.name, cursor).model_dump_json()

    def abandon(self, memo: str) -> None:
        """Drop slot and publication."""
        kept = slot.Memo.model_validate_json(memo)
        with self._dsn.errors(), self._cursor() as cursor:
            self._take_lock(cursor, kept)
            slot.drop(cursor, kept)

    @contextmanager
    def snapshot(self, memo: str, tables: Sequence[SourceTable]) -> Iterator[Snapshot]:
        """Create publication and slot, and give the rows of its snapshot."""
        kept = slot.Memo.model_validate_json(memo)
        with self._dsn.errors(), self._cursor() as cursor:
            self._take_lock(cursor, kept)
            before = self._described()
            quoted = [there.quoted for _, there in before]
            slot.create_publication(cursor, kept, quoted)
        reader = SnapshotReader(self._dsn, kept, self._workers, quoted)
        try:
            described = self._described()
            if described != before or [table for table, _ in described] != list(tables):
                raise UnavailableError("a table was changed while its copy began: the copy begins again")
            yield reader.snapshot(described)
        finally:
            reader.close()

    def changes(
        self, memo: str, tables: Sequence[SourceTable], after: str, limits: BatchLimits
    ) -> Iterator[SourceBatch]:
        """Yield the transactions of the slot after a position."""
        kept = slot.Memo.model_validate_json(memo)
        oids = {table.detail["oid"]: table.name for table in tables}
        with self._dsn.errors(), self._cursor() as cursor:
            self._take_lock(cursor, kept)
            slot.check_slot(cursor, kept, after)
            slot.check_publication(cursor, kept, oids)
            cursor.execute("SELECT pg_current_wal_lsn()::text")
            end = lsn_of(cursor.fetchone()[0])
        self._stream = ChangeStream(self._dsn, kept, Relations(list(tables)), after, limits)

        def check() -> None:
            with self._dsn.errors(), self._cursor() as cursor:
                slot.check_publication(cursor, kept, oids)

        with self._cursor() as catalog:
            yield from self._stream.batches(end, catalog, check)

    def confirm(self, position: str) -> None:
        """Let PostgreSQL free its WAL up to a position."""
        if self._stream is not None:
            self._stream.confirm(position)

    def close(self) -> None:
        """Close all connections, and with them the lock."""
        if self._stream is not None:
            self._stream.close()
        if self._control is not None:
            with suppress(Exception):
                self._control.close()
        self._stream = self._control = None
        self._lock = ""

    def _cursor(self) -> Any:
        if self._control is None or self._control.closed:
            self._lock = ""
            self._control = self._dsn.connect()
        return self._control.cursor()

    def _take_lock(self, cursor: Any, memo: slot.Memo) -> None:
        """Lock a mirror, unless this connection has done so."""
        if self._lock != memo.slot:
            slot.take_lock(cursor, memo)
            self._lock = memo.slot


def target_of(table: str) -> str:
    """Return the name of the table that mirrors PostgreSQL's ``schema.table``: the last part, as it is without quotes.

    Raises:
        InvalidArgumentError: it is no name.
    """
    match = _LAST_NAME.search(table.strip())
    if match is None:
        raise InvalidArgumentError(f"{table!r} is not the name of a table: give schema.table, as in public.orders")
    quoted, plain = match.groups()
    return quoted.replace('""', '"') if quoted is not None else plain.lower()

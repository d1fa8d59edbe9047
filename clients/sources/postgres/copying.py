"""The copy of a snapshot: ranges of blocks of the tables, each by a COPY that ADBC's driver reads as Arrow."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pyarrow as pa

from ....schemas.errors import UnavailableError
from ..source import Snapshot, SnapshotPart, SourceTable
from .catalog import CatalogTable, part_ranges
from .connection import Dsn
from .slot import Memo
from .types import cells_of_sent, sent_as

PART_BYTES = 16 << 20
"""The rows of a part, as large as they are on average in the table."""
LOCK_SECONDS = 10
"""How long a copy waits for its locks before it begins again."""


class SnapshotReader:
    """The snapshot of a new slot, for as long as its connections are open.

    They lock the tables as pg_dump does: a table that is truncated or rewritten looks empty to an older snapshot. The
    locks follow the slot, whose creation waits for open transactions, which could wait for the locks. So the caller
    compares the tables from before the slot with those that are locked. Each connection has locks of its own, because
    a later lock would wait behind a statement that waits for the others.
    """

    def __init__(self, dsn: Dsn, memo: Memo, workers: int, quoted: Sequence[str]) -> None:
        """Create the slot, and the connections of its snapshot, with locks on the tables that are named as SQL writes
        them."""
        self._dsn = dsn
        self._connections: queue.Queue[Any] = queue.Queue()
        self._opened: list[Any] = [dsn.connect_for_replication()]
        self._has_failed = False
        """Whether a part could not be read: its connection may have lost the snapshot."""
        try:
            self._open(memo, workers, f"LOCK TABLE ONLY {', ONLY '.join(quoted)} IN ACCESS SHARE MODE")
        except BaseException:
            self.close()
            raise

    def _open(self, memo: Memo, workers: int, lock: str) -> None:
        with self._dsn.errors():
            cursor = self._opened[0].cursor()
            cursor.create_replication_slot(memo.slot, output_plugin="pgoutput")
            _, self.position, snapshot, _ = cursor.fetchone()
            for _ in range(workers):
                connection = self._dsn.connect_for_rows()
                self._opened.append(connection)
                with closing(connection.cursor()) as each:
                    each.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    each.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                    each.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
                    each.execute(lock)
                self._connections.put(connection)

    def close(self) -> None:
        """End the snapshot."""
        for connection in self._opened:
            with suppress(Exception):
                connection.close()

    def snapshot(self, tables: Sequence[tuple[SourceTable, CatalogTable]]) -> Snapshot:
        """Return the rows of tables in parts, large tables first."""
        parts: list[tuple[int, SnapshotPart]] = []
        with self._dsn.errors(), closing(self._opened[-1].cursor()) as cursor:  # one that has the locks
            for table, there in tables:
                ranges = part_ranges(cursor, there.oid, PART_BYTES)
                for blocks in ranges:
                    read = partial(self._read, table, _statement(table, there, blocks))
                    parts.append((len(ranges), SnapshotPart(table.name, read)))
        parts.sort(key=lambda each: -each[0])
        return Snapshot(self.position, [part for _, part in parts])

    def _read(self, table: SourceTable, statement: str) -> Iterator[pa.RecordBatch]:
        connection = self._connections.get()
        try:
            if self._has_failed:
                raise UnavailableError("another part of the copy could not be read: the copy begins again")
            with self._dsn.errors(), closing(connection.cursor()) as cursor:
                cursor.execute(statement)
                rows = cursor.fetch_arrow_table()
        except BaseException:
            self._has_failed = True
            raise
        finally:
            self._connections.put(connection)
        columns = [
            cells_of_sent(cells, column.detail["oid"], column.type, table.name, column.name)
            for column, cells in zip(table.columns, rows.columns, strict=True)
        ]
        yield from pa.table(columns, names=[column.name for column in table.columns]).to_batches()


def _statement(table: SourceTable, there: CatalogTable, blocks: tuple[int, int | None]) -> str:
    columns = ", ".join(
        sent_as(column.detail["oid"], '"' + column.name.replace('"', '""') + '"') for column in table.columns
    )
    start, stop = blocks
    where = f"ctid >= '({start},0)'::tid" + (f" AND ctid < '({stop},0)'::tid" if stop is not None else "")
    return f"SELECT {columns} FROM ONLY {there.quoted} WHERE {where}"

"""The copy of a snapshot: ranges of blocks of the tables, each by a COPY whose text pyarrow parses."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import csv

from ....schemas.cells.types import LogicalType
from ....schemas.errors import UnavailableError
from ..source import Snapshot, SnapshotPart, SourceTable
from .catalog import CatalogTable, part_ranges
from .connection import Dsn
from .slot import Memo
from .types import cells_of_text

PART_BYTES = 16 << 20
"""The rows of a part, as large as they are on average in the table."""
_PARSED = frozenset({"int16", "int32", "int64", "float", "double", "string", "date"})
"""Types that the parser reads as they are written."""


class _Chunks:
    """What psycopg2 writes the rows of a COPY to: one call for each, in C."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.write = self.rows.append


class SnapshotReader:
    """The snapshot of a new slot, for as long as its connections are open."""

    def __init__(self, dsn: Dsn, memo: Memo, workers: int) -> None:
        """Create the slot, and the connections of its snapshot."""
        self._dsn = dsn
        self._connections: queue.Queue[Any] = queue.Queue()
        self._opened: list[Any] = [dsn.connect_for_replication()]
        with dsn.errors():
            cursor = self._opened[0].cursor()
            cursor.create_replication_slot(memo.slot, output_plugin="pgoutput")
            _, self.position, snapshot, _ = cursor.fetchone()
            for _ in range(workers):
                connection = dsn.connect()
                self._opened.append(connection)
                with connection.cursor() as each:
                    each.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    each.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
                self._connections.put(connection)

    def close(self) -> None:
        """End the snapshot."""
        for connection in self._opened:
            with suppress(Exception):
                connection.close()

    def snapshot(self, tables: Sequence[tuple[SourceTable, CatalogTable]]) -> Snapshot:
        """Return the rows of tables in parts, large tables first."""
        connection = self._opened[1]
        parts: list[tuple[int, SnapshotPart]] = []
        with self._dsn.errors(), connection.cursor() as cursor:
            for table, there in tables:
                ranges = part_ranges(cursor, there.oid, PART_BYTES)
                for blocks in ranges:
                    read = partial(self._read, table, _copy_statement(table, there, blocks))
                    parts.append((len(ranges), SnapshotPart(table.name, read)))
        parts.sort(key=lambda each: -each[0])
        return Snapshot(self.position, [part for _, part in parts])

    def _read(self, table: SourceTable, statement: str) -> Iterator[pa.RecordBatch]:
        chunks = _Chunks()
        connection = self._connections.get()
        try:
            if connection.closed:
                raise UnavailableError("PostgreSQL ended the snapshot of the copy: the copy begins again")
            with self._dsn.errors(), connection.cursor() as cursor:
                cursor.copy_expert(statement, chunks)
        finally:
            self._connections.put(connection)
        if chunks.rows:
            yield from parse(table, b"".join(chunks.rows)).to_batches()


def _copy_statement(table: SourceTable, there: CatalogTable, blocks: tuple[int, int | None]) -> str:
    names = ", ".join('"' + column.name.replace('"', '""') + '"' for column in table.columns)
    start, stop = blocks
    where = f"ctid >= '({start},0)'::tid" + (f" AND ctid < '({stop},0)'::tid" if stop is not None else "")
    return f"COPY (SELECT {names} FROM ONLY {there.quoted} WHERE {where}) TO STDOUT (FORMAT csv)"


def parse(table: SourceTable, text: bytes) -> pa.Table:
    """Return rows of a COPY in CSV: an empty field is NULL, and empty quotes are an empty text.

    Raises:
        ConflictError: a value has no place in the type of its column.
    """
    try:
        rows = _read_csv(table, text, _PARSED)
    except pa.ArrowInvalid:  # a value that the parser does not read: the casts below say which, and why
        rows = _read_csv(table, text, frozenset({"string"}))
    columns = []
    for column in table.columns:
        cells = rows.column(column.name)
        kind = LogicalType.parse(column.type).arrow
        if pa.types.is_string(cells.type):
            parts = [
                cells_of_text(each, column.detail["oid"], column.type, table.name, column.name) for each in cells.chunks
            ]
            cells = pa.chunked_array(parts, kind)
        columns.append(cells)
    return pa.table(columns, names=[column.name for column in table.columns])


def _read_csv(table: SourceTable, text: bytes, parsed: frozenset[str]) -> pa.Table:
    names = [column.name for column in table.columns]
    types = {
        column.name: LogicalType.parse(column.type).arrow if column.type in parsed else pa.string()
        for column in table.columns
    }
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(text), 1 << 20)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )

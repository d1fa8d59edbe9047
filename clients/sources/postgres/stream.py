"""The stream of a replication slot, as batches of whole transactions."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg2

from ....schemas.errors import InternalError
from ..source import BatchLimits, SourceBatch, Step, Truncation
from .connection import Dsn
from .messages import Begin, Commit, Relation, lsn_of, lsn_text, truncated
from .relations import Relations, StreamTable
from .slot import Memo

_ROWS = frozenset(b"IUD")
_BEGIN, _COMMIT, _RELATION, _TRUNCATE = b"BCRT"
_OVERLOOKED = frozenset(b"YOM")
"""Names of types, origins of transactions, and messages of other programs."""
_WAIT_SECONDS = 0.05
_STATUS_SECONDS = 10


class ChangeStream:
    """The changes of a slot of PostgreSQL after a position. One thread uses it."""

    def __init__(self, dsn: Dsn, memo: Memo, relations: Relations, after: str, limits: BatchLimits) -> None:
        self._dsn = dsn
        self._relations = relations
        self._limits = limits
        self._after = lsn_of(after)
        self._confirmed = self._last_start = self._commit_lsn = self._xid = 0
        self._ahead = 0
        """Up to where psycopg2 may confirm by itself."""
        self._connection: Any = dsn.connect_for_replication()
        self._cursor: Any = self._connection.cursor()
        options = {"proto_version": "1", "publication_names": f'"{memo.slot}"'}
        with dsn.errors():
            self._cursor.start_replication(
                slot_name=memo.slot,
                start_lsn=lsn_text(self._after),
                options=options,
                status_interval=_STATUS_SECONDS,
                decode=False,
            )
        self._tables: dict[int, StreamTable | None] = {}
        self._pending: dict[int, list[bytes]] = {}
        self._steps: list[Step] = []
        self._rows = self._bytes = 0
        self._transactions = 0
        self._is_open = self._is_skipped = False
        self._ended: Commit | None = None
        self._begun_at = 0.0

    def close(self) -> None:
        """Close the connection."""
        with suppress(Exception):
            self._connection.close()

    def confirm(self, position: str) -> None:
        """Tell the server up to where the store has everything, durably; not if psycopg2 might tell it more.

        For psycopg2 a keepalive confirms all before it, if everything that it brought is confirmed. The store must have
        that position first: else it could not tell a slot that lost changes from one that is ahead of it.
        """
        lsn = lsn_of(position)
        if lsn < self._ahead:
            return
        self._confirmed = max(self._confirmed, lsn)
        with self._dsn.errors():
            self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, force=True)

    def batches(self, end: int, catalog: Any, check: Callable[[], None]) -> Iterator[SourceBatch]:
        """Yield batches; caught up are those that reach the position ``end``. ``catalog`` is a cursor for questions
        about tables; ``check`` is called now and then, and raises an error if the stream cannot tell all."""
        read, limits = self._cursor.read_message, self._limits
        pending, checked_at = self._pending, time.monotonic()
        while True:
            is_confirmed = self._confirmed >= self._last_start
            try:
                message = read()
            except psycopg2.Error as error:
                raise self._dsn.translated(error) from None
            if message is None:
                now = time.monotonic()
                if is_confirmed:
                    self._ahead = max(self._ahead, self._cursor.wal_end)
                if self._is_due(now):
                    yield self._cut(end)
                elif not self._is_open and self._ended is None:
                    yield self._idle(end)
                else:
                    yield SourceBatch()
                if now - checked_at > _STATUS_SECONDS:
                    checked_at = now
                    check()
                self._wait(now)
                continue
            payload = message.payload
            kind = payload[0]
            self._last_start = message.data_start
            if kind == _BEGIN:
                self._take_begin(Begin.read(payload))
            if is_confirmed:
                self._ahead = max(self._ahead, self._commit_lsn)
            if kind in _ROWS:
                if not self._is_skipped:
                    pending[int.from_bytes(payload[1:5], "big")].append(payload)
                    self._rows += 1
                    self._bytes += len(payload)
                    if self._rows >= limits.rows or self._bytes >= limits.bytes:
                        yield self._cut(end)
            elif kind != _BEGIN:
                self._take(kind, payload, catalog)
                if kind == _COMMIT and self._ended and self._is_due(time.monotonic()):
                    yield self._cut(end)

    def _take_begin(self, begin: Begin) -> None:
        self._commit_lsn, self._xid = begin.commit_lsn, begin.xid
        self._is_skipped = begin.commit_lsn < self._after  # the store has it
        self._is_open = True

    def _take(self, kind: int, payload: bytes, catalog: Any) -> None:
        """Take a message that is no row."""
        if kind == _COMMIT:
            self._is_open = False
            if not self._is_skipped:
                if self._ended is None:
                    self._begun_at = time.monotonic()
                self._ended = Commit.read(payload)
                self._transactions += 1
        elif kind == _RELATION:
            self._take_relation(Relation.read(payload), catalog)
        elif kind == _TRUNCATE:
            for oid in truncated(payload):
                table = self._tables.get(oid)
                if table is not None and not self._is_skipped:
                    self._pending[oid].clear()
                    self._steps.append(Truncation(table.table.name))
        elif kind not in _OVERLOOKED:
            raise InternalError(f"the stream has a message of the unknown kind {chr(kind)!r}")

    def _take_relation(self, relation: Relation, catalog: Any) -> None:
        with self._dsn.errors():
            table, news = self._relations.read(relation, self._xid, catalog)
        self._pending.setdefault(relation.oid, [])
        if table == self._tables.get(relation.oid):  # a vacuum is enough for PostgreSQL to describe a table again
            return
        self._flush(relation.oid)
        self._tables[relation.oid] = table
        if news is not None:
            self._steps.append(news)

    def _flush(self, oid: int) -> None:
        """Read the pending rows of a table."""
        messages = self._pending.get(oid)
        table = self._tables.get(oid)
        if messages and table is not None:
            self._steps.append(table.read(messages))
        if messages:
            messages.clear()

    def _is_due(self, now: float) -> bool:
        """Whether the transactions that have ended are to be handed on, and none is open."""
        if self._ended is None or self._is_open:
            return False
        # From the half of the limits on: so only a large transaction is handed on in parts.
        is_large = 2 * self._rows >= self._limits.rows or 2 * self._bytes >= self._limits.bytes
        return is_large or now - self._begun_at >= self._limits.seconds

    def _cut(self, end: int) -> SourceBatch:
        """Return what has come; it ends within a transaction if one is open."""
        for oid in self._pending:
            self._flush(oid)
        steps, self._steps = self._steps, []
        ended = None if self._is_open else self._ended
        transactions = self._transactions
        self._rows = self._bytes = 0
        if ended is None:
            return SourceBatch(steps)
        self._ended, self._transactions = None, 0
        behind = max(self._cursor.wal_end - ended.end_lsn, 0)
        is_caught_up = ended.end_lsn >= end
        return SourceBatch(steps, lsn_text(ended.end_lsn), ended.time, transactions, behind, is_caught_up)

    def _idle(self, end: int) -> SourceBatch:
        """Return that nothing has come, and up to where."""
        reached = max(self._cursor.wal_end, self._after)
        return SourceBatch(position=lsn_text(reached), behind_bytes=0, is_caught_up=reached >= end)

    def _wait(self, now: float) -> None:
        """Wait for more, but not longer than an ended transaction may wait."""
        seconds = _WAIT_SECONDS
        if self._ended is not None:
            seconds = min(seconds, max(self._limits.seconds - (now - self._begun_at), 0.0))
        select.select([self._connection], [], [], seconds)

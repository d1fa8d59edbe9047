"""Mistakes in the store that histories must show: each breaks a level, and is named by the anomaly that it brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import nyala
from nyala.engine.mvcc.mvcc import MvccManager
from nyala.engine.table.key_reads import KeyReads
from nyala.engine.table.table_version import TableVersion
from nyala.schemas.rows.write import WriteCommand, WriteResult
from tests.campaigns.isolation.checker import STRICT
from tests.campaigns.isolation.ways import LISTS, REGISTERS, TRANSACTIONS, Promise
from tests.simulation.store.planted import (
    conditions_that_always_hold,
    statements_that_read_once,
)

_STALE_MICROSECONDS = 30_000
_BETWEEN_SECONDS = 0.002
_FEW_ROWS = 10


@contextmanager
def snapshots_of_a_moment_ago() -> Iterator[None]:
    """Reads of now are late."""
    snapshot = MvccManager.snapshot

    def late(self: MvccManager) -> int:
        return snapshot(self) - (_STALE_MICROSECONDS << 12)

    with patch.object(MvccManager, "snapshot", late):
        yield


@contextmanager
def a_snapshot_for_each_key() -> Iterator[None]:
    """``get_many`` reads one key after the other."""
    begin, read = KeyReads.__init__, KeyReads._read

    def begin_with_one(self: KeyReads, *given: Any) -> None:
        begin(self, *given)
        self._count = self._count_max = 1

    def read_one(self: KeyReads, version: TableVersion) -> Any:
        time.sleep(_BETWEEN_SECONDS)
        self._moment = self._snapshot()
        return read(self, version)

    with patch.object(KeyReads, "__init__", begin_with_one), patch.object(KeyReads, "_read", read_one):
        yield


@contextmanager
def a_commit_for_each_row() -> Iterator[None]:
    """A small batch is written row by row."""
    write_all = nyala.Table._write_all

    def write_each(self: nyala.Table, command: WriteCommand, data: list[Any]) -> WriteResult:
        if len(data) > _FEW_ROWS:  # that fill a new table
            return write_all(self, command, data)
        for row in data[:-1]:
            write_all(self, command, [row])
            time.sleep(_BETWEEN_SECONDS)
        return write_all(self, command, data[-1:])

    with patch.object(nyala.Table, "_write_all", write_each):
        yield


@dataclass(frozen=True)
class Mistake:
    """A planted mistake."""

    plant: Callable[[], AbstractContextManager[object]]
    promise: Promise
    """What it breaks."""
    anomalies: frozenset[str]
    """One of these must be seen."""


_BATCHES = replace(REGISTERS, writes=("batch",), reads=("scan",))
_TRANSACTIONS = replace(TRANSACTIONS, writes=("transaction",), reads=("get_many everywhere",))
PLANTED = {
    "lost update": Mistake(conditions_that_always_hold, Promise(LISTS, STRICT), frozenset({"lost update"})),
    "lost update of a statement": Mistake(
        statements_that_read_once, Promise(LISTS, STRICT), frozenset({"incompatible order"})
    ),
    "write skew": Mistake(nullcontext, Promise(TRANSACTIONS, STRICT), frozenset({"write skew", "G2-item"})),
    "stale read": Mistake(snapshots_of_a_moment_ago, Promise(REGISTERS, STRICT), frozenset({"stale read"})),
    "torn batch": Mistake(a_commit_for_each_row, Promise(_BATCHES, STRICT), frozenset({"torn batch"})),
    "fractured read": Mistake(a_snapshot_for_each_key, Promise(_TRANSACTIONS, STRICT), frozenset({"fractured read"})),
}
"""The write skew is one of client code: transactions that do not write what they read, under a level for those that do.
"""

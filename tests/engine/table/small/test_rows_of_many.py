"""Rows of many callers that are written together: each is a commit of its own, or left to its caller."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table.small.row_commit import RowWrite
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import Durability, WriteCommand, WriteResult
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.table.small.test_row_queue import SCHEMA, OneRow, Row, opened


@pytest.fixture
def store() -> Iterator[Store]:
    with opened(MemoryFileSystem()) as store:
        yield store


def planned(store: Store, *rows: Row, table: str = "t", op: str = "upsert", first: int = 0) -> list[RowWrite]:
    """Rows numbered from ``first`` on, planned for ``write_each``."""
    command = WriteCommand(table=table, op=Operation(op), writer="together")
    found = [
        store.planned_row(command, dict(zip(SCHEMA.names, row, strict=True)), first + i) for i, row in enumerate(rows)
    ]
    assert all(isinstance(row, RowWrite) for row in found)
    return [row for row in found if row is not None]


def row_of(store: Store, key: int, table: str = "t") -> dict[str, Any] | None:
    return store.get_row(store.describe_table(table), [key])


def test_rows_of_many_are_written_with_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    store = opened(fs, buckets=3)
    for name in ("t", "u"):  # the first row of a tablet makes its columns
        for key in range(20):
            OneRow("upsert", (key, 0, "before"), name).run(store)
    syncs: list[int] = []
    sync = MemoryWritableFile.sync
    monkeypatch.setattr(MemoryWritableFile, "sync", lambda self: (syncs.append(1), sync(self))[1])
    rows = [*planned(store, *((key, key, "t") for key in range(20))), *planned(store, (7, 7, "u"), table="u")]
    results = store.gatherer().write_each(rows)
    assert all(isinstance(each, WriteResult) and each.applied == 1 for each in results), results
    assert len({each.timestamp for each in results if isinstance(each, WriteResult)}) == 21
    assert len(syncs) == 1
    del store  # as a crash leaves it
    with Store.open(fs.crash_image(Random(1)), StoreOptions(maintenance="off")) as later:
        assert [row_of(later, key) for key in range(20)] == [{"k": key, "n": key, "s": "t"} for key in range(20)]
        assert row_of(later, 7, "u") == {"k": 7, "n": 7, "s": "u"}


def test_rows_that_are_not_plain_are_left(store: Store) -> None:
    gatherer = store.gatherer()
    rows = planned(store, (1, 1, "a"), (1, 2, "b"), (2, 3, "c"))
    refused = planned(store, (-1, 1, "x"), op="insert", first=10)
    answers = gatherer.write_each([*rows, *refused])
    assert [answer is None for answer in answers] == [False, False, False, True]
    assert row_of(store, 1) == {"k": 1, "n": 2, "s": "b"}, "in the order of the rows"
    assert row_of(store, -1) == {"k": -1, "n": 0, "s": "first"}
    assert gatherer.write_each(refused) == [None], "nobody makes it any more"


def test_rows_whose_tablet_is_taken_are_left(store: Store) -> None:
    (tablet,) = store._catalog.table("t").tablets
    rows = planned(store, (1, 1, "a"))
    others = planned(store, (1, 1, "a"), table="u")
    done: list[Any] = []
    with tablet.write_lock:
        thread = threading.Thread(target=lambda: done.append(store.gatherer().write_each([*rows, *others])))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
    assert done[0][0] is None and done[0][1].applied == 1
    assert row_of(store, 1) is None


def test_a_number_that_is_used_is_left(store: Store) -> None:
    first, again = planned(store, (1, 1, "a")), planned(store, (1, 1, "b"))
    answers = store.gatherer().write_each([*first, *again])
    assert isinstance(answers[0], WriteResult) and answers[1] is None
    assert store.gatherer().write_each(again) == [None]
    assert row_of(store, 1) == {"k": 1, "n": 1, "s": "a"}
    command = WriteCommand(table="t", op=Operation.UPSERT, writer="together")
    assert store.write_row(command, {"k": 1, "n": 1, "s": "b"}, 0) == answers[0]


def test_rows_that_cannot_wait_for_each_other_are_not_planned(store: Store) -> None:
    row = {"k": 1, "n": 1, "s": "a"}
    assert store.planned_row(WriteCommand(table="t"), row, 1) is None
    assert store.planned_row(WriteCommand(table="t", writer="w"), row, None) is None
    assert store.planned_row(WriteCommand(table="t", writer="w", durability=Durability.OS), row, 1) is None
    assert store.planned_row(WriteCommand(table="t", writer="w", count_replaced=True), row, 1) is None


def test_rows_in_a_log_that_fails_have_its_error() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    store = opened(fs)
    rows = planned(store, (1, 1, "a"), (2, 2, "b"))
    fs.rules.append(FaultRule(calls=frozenset({"sync"}), path="wal/*", error=errno.EIO, sticky=True))
    fs._matched.append(0)
    answers = store.gatherer().write_each(rows)
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    later = planned(store, (3, 3, "c"), first=5)
    assert [answer for answer in store.gatherer().write_each(later) if isinstance(answer, WriteResult)] == []

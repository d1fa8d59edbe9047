"""A MemRowSet with many rows makes way for another before its row numbers end: here after a few."""

from __future__ import annotations

from random import Random

import pytest

from nyala.clients.api.database import Database
from nyala.engine.tablet import tablet as tablets
from nyala.engine.tablet import tablet_change
from nyala.schemas.errors import InvalidArgumentError
from tests.engine.subject import Subject

FULL = 8


@pytest.mark.parametrize("seed", range(4))
def test_a_full_memrowset_makes_way(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tablets, "FULL_ROWS", FULL)
    subject, random = Subject(), Random(seed)
    for turn in range(12):
        subject.some_writes(random, range(turn * 4, turn * 4 + 12))
        subject.upsert(turn * 5, v=turn)
        if turn == 8:
            subject.flush()
            subject.upsert(*range(100, 100 + FULL))
        subject.check()
    version = subject.tablet.version
    assert len(version.frozen) > 1 and all(FULL <= len(rowset) < FULL + 12 for rowset in version.frozen)
    subject.crash(random)
    subject.check()
    subject.upsert(1, 200)
    assert subject.tablet.version.frozen
    subject.check()
    subject.flush()
    subject.crash(random)
    subject.store.maintain("t", "compact")
    subject.close()


def test_single_rows_fill_memrowsets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablets, "FULL_ROWS", FULL)
    subject = Subject()
    for key in range(3 * FULL):
        subject.upsert(key, v=key)
        subject.upsert(key // 2, v=-key)
    assert [len(rowset) for rowset in subject.tablet.version.in_memory] == [FULL, FULL, FULL]
    subject.check()
    subject.crash(Random(0))
    subject.flush()
    subject.close()


@pytest.mark.parametrize("how", ["write", "transaction"])
def test_a_commit_of_more_new_rows_than_have_numbers_is_refused(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(tablets, "FULL_ROWS", FULL)
    monkeypatch.setattr(tablet_change, "NEW_ROWS_MAX", 999)
    subject = Subject()
    subject.upsert(*range(FULL - 1))  # as many rows as there may be before the last commit
    before, logged = subject.scan(), subject.store._wal.writer.last_lsn
    table = Database(subject.store).table("t")

    def commit(count: int) -> None:
        rows = [{"k": key, "v": 1, "s": "s"} for key in range(count)]
        if how == "write":
            table.upsert(rows)
        else:
            with Database(subject.store).transaction() as transaction:
                for half in (rows[::2], rows[1::2]):
                    transaction.upsert("t", half)

    with pytest.raises(InvalidArgumentError, match="a commit of 1,000 new rows of one tablet"):
        commit(FULL + 999)
    assert subject.scan() == before
    assert subject.store._wal.writer.last_lsn == logged
    commit(FULL + 998)
    assert len(subject.scan()) == FULL + 998
    subject.store.close()

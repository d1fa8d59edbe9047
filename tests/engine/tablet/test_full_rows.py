"""A MemRowSet with many rows makes way for another before its row numbers end: here after a few."""

from __future__ import annotations

from random import Random

import pytest

from nyala.engine.tablet import tablet as tablets
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

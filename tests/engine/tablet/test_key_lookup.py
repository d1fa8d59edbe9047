"""Keys are found the same whether all rowsets are indexed, some or none, while rowsets move and the budget changes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.key_budget import KeyIndexBudget
from nyala.engine.rowset import key_index
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.table.direct_load import DirectLoad
from nyala.engine.tablet import key_lookup
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.schemas.errors import CorruptionError
from tests.dose import by_night
from tests.engine.phases import at
from tests.engine.subject import Subject

KEYS = range(40)
BYTES_OF_30 = 12 * 46


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_FIRST_CAPACITY", 2)
    monkeypatch.setattr(key_lookup, "KEYS_AT_ONCE", 4)


class Searching(Subject):
    """A subject whose point reads are checked beside its scans."""

    @property
    def mode(self) -> str:
        return self.store.table_stats("t").tablets[0].key_index.mode

    def check(self, *args: Any) -> None:
        super().check(*args)
        asked = [*range(-1, KEYS.stop + 1), 3, 3]
        found = self.store.get("t", pa.record_batch({"k": pa.array(asked, pa.int64())}))
        assert found.column("k").to_pylist() == [key for key in asked if key in self.state]
        lookup = self.tablet.key_lookup
        assert lookup.nbytes <= self.options.key_index_bytes
        assert lookup._budget.free_bytes == self.options.key_index_bytes - lookup.nbytes


@pytest.mark.parametrize("limit", [0, BYTES_OF_30, 1 << 20], ids=["search", "partial", "index"])
@pytest.mark.parametrize("seed", by_night(range(6), range(2)))
def test_reads_and_writes_find_the_same_rows(limit: int, seed: int) -> None:
    random = Random(seed)
    subject = Searching(key_index_bytes=limit, fs=MemoryFileSystem())
    modes = set()
    for _ in range(12):
        subject.some_writes(random, KEYS, commits=2)
        subject.store.maintain("t", random.choice(["flush", "flush", "flush_deltas", "compact"]))
        subject.check()
        modes.add(subject.mode)
        if random.random() < 0.2:
            subject.restart()
            subject.check()
    assert modes == {"index"} if limit == 1 << 20 else "search" in modes or "partial" in modes
    subject.close()


def test_the_newest_rowsets_come_first_and_the_rest_when_there_is_room() -> None:
    subject = Searching(key_index_bytes=BYTES_OF_30)
    for first in range(0, 60, 20):
        subject.upsert(*range(first, first + 20))
        subject.flush()
    subject.restart()
    subject.check()
    newest = subject.tablet.version.disk[-1]
    assert subject.tablet.key_lookup._indexed == {newest.slot}
    assert subject.mode == "partial"
    subject.tablet.key_lookup._budget.limit_bytes = 1 << 20
    assert subject.tablet.key_lookup.build(subject.tablet.version, subject.tablet.write_lock) == 40
    assert subject.mode == "index"
    Subject.check(subject)
    subject.store.close()


def test_rows_attached_while_the_index_follows_a_merge_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rowsets are indexed and become one, a second comes: as many as are indexed, but not the same."""
    subject = Searching(key_index_bytes=1 << 20)
    for keys in ((1, 2), (3, 4)):
        subject.upsert(*keys)
        subject.flush()
        subject.check()
    assert subject.mode == "index"
    follow, met = KeyLookup.follow, []

    def attach_first(lookup: KeyLookup, *moved: Any) -> None:
        subject.store._writes.direct_load = DirectLoad(subject.environment, 1, 1)
        subject.upsert(5, 6)
        met.append(len(subject.tablet.version.attached))
        subject.check()
        subject.upsert(5, v=7)
        follow(lookup, *moved)

    monkeypatch.setattr(KeyLookup, "follow", attach_first)
    subject.store.maintain("t", "compact")
    assert met == [1]
    subject.close()


def test_an_index_that_is_built_before_it_follows_a_merge_has_each_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look-up of all comes when the rowsets are merged, and builds the index of the new one at once."""
    subject = Searching(key_index_bytes=1 << 20)
    for keys in ((1, 2), (3, 4)):
        subject.upsert(*keys)
        subject.flush()
    subject.restart()
    at(monkeypatch, (KeyLookup, "follow"), True, subject.check)
    subject.store.maintain("t", "compact")
    assert subject.mode == "index" and subject.tablet.key_lookup.key_count == 4
    subject.upsert(5)
    subject.flush()
    subject.store.maintain("t", "compact")
    assert subject.tablet.key_lookup.key_count == 5
    subject.close()


def test_a_rowset_that_cannot_be_read_to_its_end_leaves_no_keys_in_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Searching(key_index_bytes=1 << 20)
    for first in (0, 20):
        subject.upsert(*range(first, first + 20))
        subject.flush()
    subject.restart()
    lookup, hashes_of = subject.tablet.key_lookup, key_lookup.hashes_of
    bad = subject.tablet.version.disk[-1]

    def corrupt(rowset: RowSet) -> Iterator[tuple[int, np.ndarray]]:
        for first, hashes in hashes_of(rowset):
            if rowset is bad and first >= 8:
                raise CorruptionError("a.base", 8, "checksum of the page")
            yield first, hashes

    monkeypatch.setattr(key_lookup, "hashes_of", corrupt)
    with pytest.raises(CorruptionError):
        lookup.build(subject.tablet.version, subject.tablet.write_lock)
    assert lookup.key_count == 0 and not lookup._indexed
    subject.check()
    assert lookup.build(subject.tablet.version, subject.tablet.write_lock) in (0, 20), (
        "the other rowset, unless it is in"
    )
    assert subject.mode == "partial" and lookup.key_count == 20
    monkeypatch.setattr(key_lookup, "hashes_of", hashes_of)
    subject.store.maintain("t", "compact")
    subject.upsert(*range(50, 70))  # in a slot that was given back
    subject.check()
    subject.flush()
    assert subject.mode == "index" and lookup.key_count == 60
    subject.close()


def test_a_dropped_table_gives_its_memory_back() -> None:
    subject = Subject()
    subject.upsert(*KEYS)
    subject.flush()
    budget = subject.environment.key_index
    assert budget.free_bytes < budget.limit_bytes
    subject.store.drop_table("t")
    assert budget.free_bytes == budget.limit_bytes
    subject.store.close()


def test_the_index_is_built_beside_writers_after_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Searching()
    for first in range(0, 40, 10):
        subject.upsert(*range(first, first + 10))
        subject.flush()
    for _ in range(4):
        subject.upsert(*range(40), v=1)  # in no file
    monkeypatch.setattr(
        "nyala.engine.recovery.recovered.KeyIndexBudget", lambda limit, on_demand: KeyIndexBudget(limit, False)
    )
    subject.restart()
    assert subject.mode == "index", "the replay had so many keys to look for that it built one"
    monkeypatch.setattr(key_lookup.KeyLookup.build_for_searches, "__defaults__", (0,))
    subject.restart()
    lookup = subject.tablet.key_lookup
    assert subject.mode == "search"
    lock, meanwhile = subject.tablet.write_lock, []
    hashes_of = key_lookup.hashes_of

    def with_writes(rowset: RowSet) -> Iterator[tuple[int, np.ndarray]]:
        for run in hashes_of(rowset):
            assert not lock.locked() and len(run[1]) <= key_lookup.KEYS_AT_ONCE
            yield run
            meanwhile.append(subject.mode)
            subject.upsert(len(meanwhile), 100 + len(meanwhile), v=7)
            Subject.check(subject)

    monkeypatch.setattr(key_lookup, "hashes_of", with_writes)
    assert lookup.build(subject.tablet.version, lock) == 40
    assert subject.mode == "index"
    assert {"search", "partial"} <= set(meanwhile)
    Subject.check(subject)
    subject.store.close()


def test_a_budget_is_kept_by_many_threads() -> None:
    budget = KeyIndexBudget(1000)
    taken: list[int] = []

    def take() -> None:
        for _ in range(200):
            if budget.take(7):
                taken.append(7)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 994 and budget.free_bytes == 6
    assert not budget.take(7) and budget.take(6) and budget.take(-1000)
    assert budget.free_bytes == 1000


def test_an_index_that_is_released_during_a_look_up_stays_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Searching(fs=MemoryFileSystem())
    subject.some_writes(Random(0), KEYS, commits=8)
    subject.store.maintain("t", "flush")
    lookup, real = subject.tablet.key_lookup, key_lookup.locate_keys
    index = weakref.ref(lookup._entries)

    def released(*search: int) -> int:
        lookup.release()
        assert lookup._index is None and index() is not None, "the kernel has its address"
        return real(*search)

    monkeypatch.setattr(key_lookup, "locate_keys", released)
    lookup.locate_all(subject.tablet.version, np.zeros(3, np.uint64))
    assert lookup._index is None and index() is None


def test_a_released_index_takes_no_memory_any_more() -> None:
    subject = Subject()
    subject.upsert(*range(100))
    subject.flush()
    tablet, budget = subject.tablet, subject.environment.key_index
    subject.store.drop_table("t")
    assert tablet.key_lookup.build(tablet.version, tablet.write_lock) == 0
    assert budget.used_bytes == 0
    subject.store.close()

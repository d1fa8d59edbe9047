"""The space of rows that expired before the history returns, and with it no row that somebody may still read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.compaction import merge
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance.upkeep import candidate
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.store import Store
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.vectors.vector import Vector
from nyala.schemas.table.column import ColumnSchema
from tests.doubles.clock import ManualClock
from tests.engine.phases import at

SECOND = 1_000_000
BEGIN = 1_700_000_000
HISTORY, LIFE = 10, 60
SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), pa.field("v", pa.string()), pa.field("at", pa.timestamp("us"), False)]
)


class Aging:
    """A table whose clock belongs to the test, without maintenance of its own."""

    def __init__(self, **options: Any) -> None:
        self.fs = MemoryFileSystem()
        self.clock = ManualClock(BEGIN * SECOND)
        self.store = Store.open(self.fs, StoreOptions(maintenance="off"), self.clock)
        self.database = Database(self.store)
        chosen = {"history_max_age_seconds": HISTORY, "ttl": ("at", f"{LIFE}s")} | options
        self.table: Table = self.database.create_table("t", SCHEMA, "k", **chosen)

    @property
    def now(self) -> datetime:
        return datetime(1970, 1, 1) + timedelta(microseconds=self.clock.physical_microseconds())

    @property
    def tablet(self) -> Tablet:
        return self.store._catalog.table("t").tablets[0]

    @property
    def rowsets(self) -> tuple[DiskRowSet, ...]:
        return self.tablet.version.disk

    @property
    def mark(self) -> int:
        return (self.clock.physical_microseconds() - HISTORY * SECOND) << 12

    def age(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)

    def insert(self, first: int, last: int) -> None:
        count = last - first
        self.table.insert({"k": [*range(first, last)], "v": ["x" * 100] * count, "at": [self.now] * count})

    def flush(self) -> None:
        self.table.maintain("flush")

    @property
    def dead_share(self) -> float:
        return max(candidate(rowset, self.mark, self.tablet.schema).dead_share for rowset in self.rowsets)

    @property
    def stored(self) -> int:
        return sum(map(len, self.tablet.version.rowsets()))


@pytest.fixture
def aging() -> Iterator[Aging]:
    aging = Aging()
    yield aging
    aging.store.close()


def test_of_a_file_of_expired_rows_only_the_keys_are_read(aging: Aging, monkeypatch: pytest.MonkeyPatch) -> None:
    aging.insert(0, 5_000)
    aging.flush()
    aging.age(LIFE)
    assert aging.table.count() == 0 and aging.stored == 5_000
    aging.table.maintain("gc")
    assert aging.stored == 5_000, "the history still shows the rows"
    aging.age(HISTORY + 1)
    base = DiskRowSet.base

    def keys_alone(rowset: DiskRowSet, column: ColumnSchema, first: int, last: int) -> Vector:
        assert column.name == "k"
        return base(rowset, column, first, last)

    monkeypatch.setattr(DiskRowSet, "base", keys_alone)
    aging.table.maintain("gc")
    assert aging.stored == 0 and not aging.rowsets
    aging.insert(0, 10)
    assert aging.table.count() == 10


def test_a_merge_drops_what_expired_and_maintenance_sees_the_gain(aging: Aging) -> None:
    aging.insert(0, 3 << 16)
    aging.flush()
    aging.age(LIFE + HISTORY + 1)
    aging.insert(3 << 16, (3 << 16) + 100)
    aging.flush()
    aging.table.maintain("compact")
    assert aging.stored == 100
    assert aging.dead_share == 0


def test_the_gain_is_known_before_a_merge(aging: Aging) -> None:
    aging.insert(0, 2 << 16)
    aging.age(LIFE + HISTORY + 1)
    aging.insert(2 << 16, 3 << 16)
    aging.flush()
    assert 0.6 < aging.dead_share < 0.7
    aging.table.maintain("compact")
    assert aging.stored == 1 << 16


def test_what_expired_by_one_column_is_not_taken_for_what_expires_by_another(aging: Aging) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("a", SCHEMA.field("at").type)])
    schema = schema.append(pa.field("b", SCHEMA.field("at").type))
    aging.database.drop_table("t")
    table = aging.table = aging.database.create_table(
        "t", schema, "k", history_max_age_seconds=HISTORY, ttl=("a", f"{LIFE}s")
    )
    table.insert({"k": [*range(1_000)], "a": [aging.now] * 1_000, "b": [None] * 1_000})
    aging.flush()
    aging.age(LIFE + 2 * HISTORY)
    assert aging.dead_share > 0.9
    table.alter().set_option("ttl", ["b", f"{LIFE}s"]).apply()
    assert table.count() == 1_000 and aging.dead_share == 0
    table.maintain("gc")
    assert table.count() == 1_000


def test_rows_that_live_longer_by_an_update_stay(aging: Aging) -> None:
    aging.insert(0, 1_000)
    aging.flush()
    aging.age(LIFE - 1)
    aging.table.update({"k": [7], "at": [aging.now]})
    aging.age(HISTORY + 2)
    assert aging.table.scan().to_arrow()["k"].to_pylist() == [7]
    aging.table.maintain("gc")
    aging.table.maintain("compact")
    assert aging.stored == 1 and aging.table.get((7,)) is not None


def test_the_history_shows_what_had_not_expired(aging: Aging) -> None:
    aging.insert(0, 1_000)
    aging.flush()
    aging.age(LIFE - 2)
    before = aging.store.now()
    aging.age(5)
    aging.table.maintain("compact")
    aging.table.maintain("gc")
    assert aging.table.count() == 0
    assert aging.table.scan(as_of=before).count() == 1_000
    feed = aging.table.changes(before).to_arrow()
    assert set(feed["_op"].to_pylist()) == {"expire"} and feed.num_rows == 1_000
    assert set(feed["_timestamp"].to_pylist()) == {(BEGIN + LIFE) * SECOND << 12}


def test_a_key_that_comes_back_during_the_merge_that_drops_it_is_kept(
    aging: Aging, monkeypatch: pytest.MonkeyPatch
) -> None:
    aging.insert(0, 100)
    aging.flush()
    aging.age(LIFE + HISTORY + 1)

    def write() -> None:
        aging.insert(3, 5)
        aging.table.delete({"k": [4]})

    at(monkeypatch, (merge, "install_outputs"), True, write)
    aging.table.maintain("compact")
    assert aging.table.scan().to_arrow()["k"].to_pylist() == [3]
    assert aging.table.insert({"k": [4], "v": [None], "at": [aging.now]}).applied == 1


def test_what_a_delete_leaves_behind_during_the_merge_that_drops_the_row_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = SCHEMA.append(pa.field("order", pa.int64()))
    aging = Aging(ttl=None)
    aging.database.drop_table("t")
    aging.table = aging.database.create_table(
        "t", schema, "k", history_max_age_seconds=HISTORY, ttl=("at", f"{LIFE}s"), order_by="order"
    )
    aging.table.insert({"k": [1, 2], "v": ["a", "a"], "at": [aging.now] * 2, "order": [1, 1]})
    aging.flush()
    aging.age(LIFE + HISTORY + 1)

    def leave() -> None:
        aging.table.delete({"k": [1], "order": [5]})

    at(monkeypatch, (merge, "install_outputs"), True, leave)
    aging.table.maintain("compact")
    late = aging.table.upsert({"k": [1, 2], "v": ["b", "b"], "at": [aging.now] * 2, "order": [4, 4]})
    assert (late.applied, late.stale) == (1, 1)
    assert aging.table.scan().to_arrow()["k"].to_pylist() == [2]
    aging.store.close()


def test_another_time_waits_for_merges_which_may_drop_rows_that_would_live_again(aging: Aging) -> None:
    aging.insert(0, 100)
    with aging.tablet.maintenance_lock:
        aging.table.alter().set_option("comment", "is no reason to wait").apply()
        waiting = threading.Thread(target=aging.table.alter().set_option("ttl", "at + 30d").apply)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join()
    aging.age(LIFE)
    assert aging.table.count() == 100

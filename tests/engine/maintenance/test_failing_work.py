"""A tablet whose flushes always fail: it is seen in health, and it holds up neither other work nor other tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.maintenance import rests
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.table.partition import HashLevel
from tests.doubles.faulty import FaultRule, FaultyFileSystem

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string())])
KIB = 1 << 10
OPTIONS: dict[str, Any] = {
    "memory_bytes": 1024 * KIB,
    "flush_bytes": 64 * KIB,
    "flush_deltas_bytes": 64 * KIB,
    "direct_load_bytes": 1 << 40,
    "direct_load_unsorted_bytes": 1 << 40,
    "memory_patience_seconds": 0,
    "wal_segment_bytes": 1 << 20,
}


class Shop:
    """A store with the tables ``good`` and ``bad``; flushes of tablets of ``bad`` fail from ``break_tablets`` on."""

    def __init__(self, buckets: int = 1, **options: Any) -> None:
        self.fs = FaultyFileSystem(MemoryFileSystem())
        self.store = Store.open(self.fs, StoreOptions(**{**OPTIONS, "maintenance": "off", **options}))
        self.db = Database(self.store)
        hashed = [HashLevel(hash=["k"], buckets=buckets)] if buckets > 1 else []
        self.good, self.bad = (
            self.db.create_table(name, SCHEMA, ["k"], partition_by=hashed) for name in ("good", "bad")
        )
        self.numbers: dict[str, int] = {"good": 0, "bad": 0}

    def break_tablets(self, count: int = 1) -> None:
        ids = [each.tablet_id for each in self.store._catalog.table("bad").tablets[:count]]
        self.fs.rules = [FaultRule(frozenset({"create"}), f"tablets/{number}/*", sticky=True) for number in ids]
        self.fs._matched = [0] * len(ids)

    def mend(self) -> None:
        self.fs.rules.clear()

    def write(self, table: Table, size: int) -> None:
        """Insert rows with so many bytes in all."""
        first = self.numbers[table.name]
        keys = list(range(first, first + size // KIB))
        self.numbers[table.name] = keys[-1] + 1
        table.insert(pa.table({"k": keys, "s": ["x" * KIB] * len(keys)}, schema=SCHEMA))

    def fill(self, table: Table) -> UnavailableError:
        """Write until that is refused; return the error."""
        for _ in range(100):
            try:
                self.write(table, 32 * KIB)
            except UnavailableError as error:
                return error
            with suppress(StoreError):
                self.store.run_maintenance_once()
        raise AssertionError("never refused")


@contextmanager
def shop(**options: Any) -> Iterator[Shop]:
    opened = Shop(**options)
    with opened.store:
        yield opened


def test_tables_whose_flushes_work_are_written_while_those_of_another_fail() -> None:
    with shop() as it:
        it.break_tablets()
        refused = it.fill(it.bad)
        tablet = it.store._catalog.table("bad").tablets[0]
        assert f"tablet {tablet.tablet_id} of this table has no memory for more rows" in refused.message
        assert "UNAVAILABLE" in refused.message and refused.retry_after_seconds == 10
        assert 512 * KIB <= tablet.memory_bytes < 768 * KIB
        for _ in range(64):  # four times the memory that all have
            it.write(it.good, 64 * KIB)
            while it.store.run_maintenance_once():
                pass
        assert it.good.count() == 64 * 64 and it.bad.count() == it.numbers["bad"] - 32
        with pytest.raises(UnavailableError, match="cannot be flushed"):
            it.bad.insert([{"k": -1, "s": "one row"}])
        it.mend()
        it.bad.maintain("flush")
        it.write(it.bad, 64 * KIB)
        assert tablet.memory_bytes < 256 * KIB and not tablet.flush_failures


def test_writers_of_other_tables_go_on_beside_the_thread_that_meets_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rests, "_PASSING_SECONDS", (0.01, 0.02))
    with shop(maintenance="on", memory_patience_seconds=5, buckets=3) as it:
        it.break_tablets(2)
        with pytest.raises(UnavailableError, match="cannot be flushed"):
            for _ in range(200):
                it.write(it.bad, 32 * KIB)
        for _ in range(40):
            it.write(it.good, 64 * KIB)
        assert it.good.count() == 40 * 64
        assert {work.table for work in it.store.health().failing} == {"bad"}
        it.mend()
        it.bad.maintain("flush")
        it.write(it.bad, 64 * KIB)


def test_health_says_what_fails_until_it_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rests, "_PASSING_SECONDS", (0.0, 0.0))
    with shop() as it:
        it.break_tablets()
        it.write(it.bad, 100 * KIB)
        number = it.store._catalog.table("bad").tablets[0].tablet_id
        for _ in range(2):
            with pytest.raises(UnavailableError):
                it.store.run_maintenance_once()
        health = it.db.health()
        (work,) = health.failing
        assert (work.name, work.op, work.table, work.failures) == (f"flush tablet {number}", "flush", "bad", 2)
        assert work.error.startswith("UNAVAILABLE: ")
        assert (health.status, health.reason) == ("degraded", "maintenance fails and is tried again (1 in failing)")
        assert [work.failures for work in it.store.maintenance().failing] == [2]
        gauges = {family.name: family.samples[0].value for family in it.db.metrics().families if family.samples}
        assert gauges["nyala_maintenance_failing"] == 1
        it.mend()
        it.bad.maintain("flush")
        assert it.db.health().status == "ok" and not it.db.health().failing


@pytest.mark.parametrize("op", ["flush", "flush_deltas"])
def test_one_failing_tablet_keeps_no_other_of_its_table_from_being_flushed(op: str) -> None:
    with shop(buckets=4) as it:
        it.write(it.bad, 100 * KIB)
        if op == "flush_deltas":
            it.bad.maintain("flush")
            it.bad.update(it.bad.scan().to_arrow())
        it.break_tablets()
        with pytest.raises(UnavailableError):
            it.bad.maintain(op)
        first, *others = it.store._catalog.table("bad").tablets
        assert first.unflushed_bytes and first.flush_failures.keys() == {op}
        assert not any(tablet.unflushed_bytes or tablet.flush_failures for tablet in others)
        it.mend()
        it.store.run_maintenance_once()
        assert not first.unflushed_bytes and not first.flush_failures

"""Pinned snapshots: their files show what the store shows, whatever becomes of the store meanwhile."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

import nyala
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest import pin_note
from nyala.engine.offload.direct.reader import PinnedReader
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    StoreError,
)
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.direct import PinnedTable, PinSnapshot
from nyala.schemas.store.pins import CreatePin
from nyala.schemas.table.alter import AddColumn, Alteration
from nyala.schemas.table.table import TableDefinition
from tests.dose import by_night
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import NAMES, FaultRule, FaultyFileSystem
from tests.engine.offload.bulk.importing import bring
from tests.engine.phases import at
from tests.engine.subject import SCHEMA, Row, Subject, batch

PIN = PinSnapshot(table="t")


def rows_of(subject: Subject, pinned: PinnedTable, **spec: Any) -> list[Row]:
    """Return what a reader makes of the files."""
    reader = PinnedReader(pinned, subject.fs)
    try:
        with ThreadPoolExecutor(1) as pool:
            rows = reader.scan(ScanSpec(table="t", **spec), pool).to_reader().read_all()
    finally:
        reader.close()
    return list(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))


@pytest.mark.parametrize("seed", by_night(range(10), range(3)))
def test_files_show_what_scans_show(seed: int) -> None:
    random = Random(seed)
    subject = Subject(
        direct_load_bytes=random.choice([1, 1 << 30]), direct_load_unsorted_bytes=random.choice([1, 1 << 30])
    )
    kinds = ["flush", "flush_deltas", "minor_compact", "major_compact", "compact"]
    pins: list[tuple[PinnedTable, list[Row], list[Row]]] = []
    where = "v > 0 or s is null"
    for number in range(8):
        subject.some_writes(random, range(0, 60, 3), commits=2)
        if random.random() < 0.3:
            keys = random.sample(range(60), 9)
            bring(subject, [(key, number, "imported") for key in keys], "upsert")
        if random.random() < 0.7:
            subject.store.maintain("t", random.choice(kinds))
        as_of = random.choice([None, random.choice(subject.history)[0]])
        pinned = subject.store.pin_snapshot(PinSnapshot(table="t", as_of=as_of))
        seen = [sorted(subject.scan(as_of=pinned.snapshot, where=text)) for text in (None, where)]
        pins.append((pinned, seen[0], seen[1]))
    for work in ("compact", "gc"):
        subject.store.maintain("t", work)
    subject.upsert(*range(100))
    for pinned, rows, filtered in pins:
        assert sorted(rows_of(subject, pinned)) == rows
        assert rows_of(subject, pinned, ordered=True) == rows
        assert sorted(rows_of(subject, pinned, where=where)) == filtered
        assert rows_of(subject, pinned, aggregate={"n": ("k", "count")}) == [(len(rows),)]
        subject.store.release_pin(pinned.pin_id)
    assert not subject.fs.list("pins")
    subject.close()


def test_splits_are_the_scan(seed: int = 3) -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        parts = [nyala.hash("k", buckets=3)]
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], partition_by=parts))
        rows: list[Row] = [(key, key % 7, f"text {key}") for key in range(5_000)]
        store.write(WriteCommand(table="t", op=Operation.INSERT), batch(rows))
        pinned = store.pin_snapshot(PIN)
        store.drop_table("t")
        reader = PinnedReader(pinned, fs)
        splits = reader.plan(ScanSpec(table="t", split_bytes=10_000)).splits
        assert len(splits) > 6
        found: list[int] = []
        with ThreadPoolExecutor(1) as pool:
            for each in splits:
                spec = ScanSpec(
                    table="t", columns=["k"], tablet=each.tablet, key_lower=each.key_lower, key_upper=each.key_upper
                )
                one = PinnedReader(pinned, fs, [each.tablet])
                found += one.scan(spec, pool).to_reader().read_all()["k"].to_pylist()
                one.close()
        assert sorted(found) == list(range(5_000))
        reader.close()


def test_the_schema_is_that_of_the_pin() -> None:
    subject = Subject()
    subject.upsert(1, 2)
    before = subject.store.pin_snapshot(PIN)
    subject.store.alter_table(
        Alteration(table="t", steps=[AddColumn(op="add_column", name="w", type="int32", read_default=7)])
    )
    after = subject.store.pin_snapshot(PIN)
    assert rows_of(subject, before, ordered=True) == [(1, 0, "s"), (2, 0, "s")]
    assert rows_of(subject, after, ordered=True) == [(1, 0, "s", 7), (2, 0, "s", 7)]
    subject.store.close()


def test_what_cannot_be_read_is_said() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock, table_options={"history_max_age_seconds": 100})
    first = subject.upsert(1).timestamp
    pinned = subject.store.pin_snapshot(PinSnapshot(table="t", ttl_seconds=1_000))
    for spec in ({"as_of": first - 1}, {"changes": ChangeSpec(since=first)}):
        with pytest.raises(InvalidArgumentError, match="pinned for the snapshot"):
            rows_of(subject, pinned, **spec)
    with pytest.raises(InvalidArgumentError, match="no column 'x'"):
        rows_of(subject, pinned, columns=["x"])
    with pytest.raises(NotFoundError, match="there is no table"):
        subject.store.pin_snapshot(PinSnapshot(table="other"))
    clock.advance(500_000_000)
    with pytest.raises(SnapshotTooOldError):
        subject.store.pin_snapshot(PinSnapshot(table="t", as_of=first))
    subject.store.maintain("t", "compact")
    assert rows_of(subject, pinned) == [(1, 0, "s")]  # the pin keeps what history does not
    file = next(iter(subject.fs.list(f"{pinned.directory}/tablets/2")))
    subject.fs.unlink(f"{pinned.directory}/tablets/2/{file}")
    with pytest.raises(CorruptionError, match="is missing"):
        rows_of(subject, pinned)
    subject.store.close()


def test_a_pin_has_a_time_to_live_and_does_not_survive_the_process() -> None:
    clock = ManualClock(1_700_000_000_000_000)
    subject = Subject(clock=clock)
    subject.upsert(1)
    short, long = (subject.store.pin_snapshot(PinSnapshot(table="t", ttl_seconds=seconds)) for seconds in (10, 15))
    clock.advance(9_000_000)
    subject.store.renew_pin(long.pin_id)
    clock.advance(9_000_000)
    while subject.store.run_maintenance_once():
        pass
    with pytest.raises(NotFoundError, match="it expired"):
        subject.store.renew_pin(short.pin_id)
    with pytest.raises(NotFoundError, match="pin the table again"):
        rows_of(subject, short)
    assert rows_of(subject, long) == [(1, 0, "s")] and subject.fs.list("pins") == [long.pin_id]
    reader = PinnedReader(long, subject.fs)
    subject.restart()
    assert not subject.fs.exists("pins")
    with pytest.raises(NotFoundError):
        subject.store.renew_pin(long.pin_id)
    with ThreadPoolExecutor(1) as pool:  # who has opened the files reads on
        assert reader.scan(ScanSpec(table="t"), pool).to_reader().read_all().num_rows == 1
    with pytest.raises(NotFoundError, match="pin the table again"):
        rows_of(subject, long)
    with pytest.raises(NotFoundError, match="no pin"):
        subject.store.release_pin(long.pin_id)
    subject.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EPERM], ids=["full", "no links"])
def test_a_pin_that_fails_leaves_nothing(error: int) -> None:
    for nth in range(1, 8):
        fs = FaultyFileSystem(MemoryFileSystem())
        subject = Subject(fs)
        subject.upsert(1, 2, 3)
        subject.flush()
        fs.rules.append(FaultRule(calls=NAMES, path="pins*", nth=nth, error=error))
        fs._matched.append(0)
        try:
            subject.store.pin_snapshot(PIN)
        except StoreError:
            assert not fs.exists("pins") or not fs.list("pins")
            subject.store.pin_snapshot(PIN)
        else:
            assert nth > 1
        subject.close()


def test_an_interrupted_pin_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    subject.upsert(1, 2, 3)
    subject.flush()

    def interrupt() -> None:
        raise KeyboardInterrupt

    for work in (
        lambda: subject.store.pin_snapshot(PIN),
        lambda: subject.store.create_pin(CreatePin(name="p", table="t")),
    ):
        at(monkeypatch, (MemoryFileSystem, "link"), False, interrupt)
        with pytest.raises(KeyboardInterrupt):
            work()
        assert not subject.fs.list("pins")
    at(monkeypatch, (pin_note, "keep"), False, interrupt)
    with pytest.raises(KeyboardInterrupt):
        subject.store.create_pin(CreatePin(name="p", table="t"))
    assert not subject.fs.list("pins")
    subject.store.create_pin(CreatePin(name="p", table="t"))
    subject.close()

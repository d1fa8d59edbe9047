"""Pins of a store in a bucket: what they hold stays the same, whoever has the store, until they end."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.home import pinned as holding
from nyala.engine.manifest.manifest import Manifest, ManifestFile
from nyala.engine.mvcc.clock import Clock
from nyala.engine.offload.direct import reader as reading
from nyala.engine.offload.direct.reader import PinnedReader, files_in_bucket
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import CorruptionError, NotFoundError, SnapshotTooOldError, StoreError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.direct import PinnedTable, PinSnapshot
from nyala.schemas.store.pins import CreatePin, OpenPin
from nyala.schemas.table.partition import hash as hash_by
from tests.dose import dose
from tests.doubles.clock import ManualClock
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.failing_calls import FAULTS, FailingCalls, check_sound

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SECOND = 1_000_000
Rows = dict[int, int]


def opened(machine: Machine, clock: Clock | None = None, **options: Any) -> Store:
    return Store.open(machine.home(), OPTIONS.model_copy(update=options), clock)


def made(machine: Machine, clock: Clock | None = None) -> Store:
    store = opened(machine, clock)
    Database(store).create_table("t", SCHEMA, ["id"])
    put(store, range(100), 1)
    store.maintain("t", "flush")
    put(store, range(0, 100, 3), 2)
    return store


def put(store: Store, ids: range, v: int) -> None:
    Database(store).table("t").upsert([{"id": each, "v": v} for each in ids])


def pinned(store: Store, seconds: int = 3600) -> PinnedTable:
    return store.pin_snapshot(PinSnapshot(table="t", ttl_seconds=seconds))


def rows_of(machine: Machine, pin: PinnedTable) -> Rows:
    """Return what a reader on another machine makes of the objects."""
    assert pin.bucket is not None
    there = files_in_bucket(pin.bucket, machine.other().bucket)
    try:
        reader = PinnedReader(pin, there)
        try:
            with ThreadPoolExecutor(1) as pool:
                found = reader.scan(ScanSpec(table="t"), pool).to_reader().read_all().to_pylist()
        finally:
            reader.close()
    finally:
        there.close()
    return {row["id"]: row["v"] for row in found}


BEFORE = {each: 2 if each % 3 == 0 else 1 for each in range(100)}


def churn(store: Store) -> None:
    """Replace every file that the table has, and let the log say so."""
    put(store, range(0, 100, 2), 3)
    Database(store).table("t").delete_ignore([{"id": each} for each in range(1, 50, 2)])
    for kind in ("flush_deltas", "major_compact", "compact", "gc"):
        store.maintain("t", kind)
    settle(store)


def settle(store: Store) -> None:
    """Let what was dropped be deleted."""
    for _ in range(2):
        store.run_maintenance_once()
        for _ in range(3):
            put(store, range(200, 201), 3)
    while store.run_maintenance_once():
        pass


def objects(machine: Machine) -> set[str]:
    return {name for name, _ in machine.bucket.list("stores/a/") if "/log/" not in name}


def files(machine: Machine) -> set[str]:
    return {name for name in objects(machine) if "/tablets/" in name}


def test_what_a_pin_holds_outlives_all_that_becomes_of_the_table() -> None:
    machine = Machine()
    with made(machine) as store:
        pin = pinned(store)
        assert rows_of(machine, pin) == BEFORE
        for end in (churn, lambda store: store.drop_table("t"), settle_without_a_table):
            end(store)
            assert rows_of(machine, pin) == BEFORE
        store.release_pin(pin.pin_id)
        settle_without_a_table(store)
        assert pin.bucket is not None
        held = {pin.bucket.manifest, *pin.bucket.sizes}
        assert len(held) > 2 and not objects(machine).intersection(f"stores/a/{name}" for name in held)
        with pytest.raises(NotFoundError, match="pin the table again"):
            rows_of(machine, pin)


def settle_without_a_table(store: Store) -> None:
    Database(store).create_table("other", SCHEMA, ["id"], if_not_exists=True)
    for each in range(4):
        Database(store).table("other").upsert([{"id": each, "v": 1}])
        while store.run_maintenance_once():
            pass
    store.drop_table("other")


@pytest.mark.parametrize("end", ["stop", "death"])
def test_a_pin_outlives_its_holder(end: str) -> None:
    machine = Machine()
    store = made(machine)
    pin = pinned(store)
    if end == "stop":
        churn(store)
    else:
        machine.objects.is_away = True
    with suppress(StoreError):
        store.close()
    machine = machine.other()
    with opened(machine) as again:
        churn(again)
        assert rows_of(machine, pin) == BEFORE
        again.renew_pin(pin.pin_id)
        sweep(machine.other().home())
        assert rows_of(machine, pin) == BEFORE
    home = machine.other().home()
    assert not leftovers(home), "what a pin holds is no garbage"
    report = verify_bucket(home)
    assert report.is_sound and not report.notes, (report.problems, report.notes)
    sweep(home)
    assert rows_of(machine, pin) == BEFORE
    with opened(machine.other()) as again:
        assert rows_of(machine, pin) == BEFORE
        again.release_pin(pin.pin_id)
        settle(again)
        assert f"stores/a/manifests/{manifest_of(pin)}" not in objects(machine)
    assert not leftovers(home)


def manifest_of(pin: PinnedTable) -> str:
    assert pin.bucket is not None
    return pin.bucket.manifest.removeprefix("manifests/")


def test_a_holder_that_was_fenced_neither_makes_nor_ends_a_pin() -> None:
    machine = Machine()
    old = made(machine)
    pin = pinned(old)
    churn(old)
    machine.objects.is_away = True
    with opened(machine.other()) as new:
        machine.objects.is_away = False
        for refused in (lambda: pinned(old), lambda: old.release_pin(pin.pin_id), lambda: old.renew_pin(pin.pin_id)):
            with pytest.raises(UnavailableError):
                refused()
        old.run_maintenance_once()
        old.close()
        churn(new)
        assert rows_of(machine, pin) == BEFORE
        new.renew_pin(pin.pin_id)


def test_a_pin_ends_with_its_time() -> None:
    machine, clock = Machine(), ManualClock(1_700_000_000 * SECOND)
    with made(machine, clock) as store:
        short, long = pinned(store, 10), pinned(store, 15)
        clock.advance(9 * SECOND)
        store.renew_pin(long.pin_id)
        clock.advance(9 * SECOND)
        with pytest.raises(NotFoundError, match="it expired"):
            store.renew_pin(short.pin_id)
        churn(store)
        assert len(store._pins) == 1
        assert rows_of(machine, long) == BEFORE
    clock.advance(20 * SECOND)
    with opened(machine.other(), clock) as store:
        settle(store)
        assert len(store._pins) == 0
        with pytest.raises(NotFoundError, match="pin the table again"):
            rows_of(machine, long)
        with pytest.raises(NotFoundError, match="no pin"):
            store.release_pin(long.pin_id)


def test_a_time_of_day_that_jumps_ends_no_pin() -> None:
    machine, clock = Machine(), ManualClock(1_700_000_000 * SECOND)
    with made(machine, clock) as store:
        pin = pinned(store, 10)
        settle(store)
        clock.jump(3_600 * SECOND)
        clock.advance(9 * SECOND)
        settle(store)
        churn(store)
        assert rows_of(machine, pin) == BEFORE
        clock.jump(-3_600 * SECOND)
        store.renew_pin(pin.pin_id)
        clock.advance(10 * SECOND)
        settle(store)
        assert len(store._pins) == 0


def test_a_renewal_that_is_on_its_way_when_the_time_is_over_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(), ManualClock(1_700_000_000 * SECOND)
    with made(machine, clock) as store:
        pin = pinned(store, 10)
        commit = ManifestFile.commit
        clock.advance(12 * SECOND)

        def late(manifest: ManifestFile, edit: Callable[[Manifest], Manifest]) -> Manifest:
            """The removal waits for the commit of a renewal, which came in time."""
            monkeypatch.setattr(ManifestFile, "commit", commit)
            clock.advance(-3 * SECOND)
            store.renew_pin(pin.pin_id)
            clock.advance(3 * SECOND)
            return manifest.commit(edit)

        monkeypatch.setattr(ManifestFile, "commit", late)
        (removal,) = store._pins.removals()
        removal.perform()
        assert len(store._pins) == 1
        churn(store)
        assert rows_of(machine, pin) == BEFORE
        store.release_pin(pin.pin_id)
        assert len(store._pins) == 0


def test_a_reader_whose_pin_ends_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CACHE_BYTES", 0)
    machine = Machine()
    with made(machine) as store:
        pin = pinned(store)
        assert pin.bucket is not None
        there = files_in_bucket(pin.bucket, machine.other().bucket)
        reader = PinnedReader(pin, there)
        store.release_pin(pin.pin_id)
        churn(store)
        with ThreadPoolExecutor(1) as pool, pytest.raises(NotFoundError, match="pin the table again"):
            reader.scan(ScanSpec(table="t"), pool).to_reader().read_all()
        reader.close()
        there.close()


def test_a_reader_keeps_no_more_than_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it reads: a task of Spark may read many times its memory."""
    machine = Machine()
    store = opened(machine)
    table = Database(store).create_table("t", pa.schema([("id", pa.int64()), ("cell", pa.binary())]), ["id"])
    noise = Random(1)
    for first in range(0, 400, 40):
        table.upsert([{"id": each, "cell": noise.randbytes(50_000)} for each in range(first, first + 40)])
        store.maintain("t", "flush")
    pin = pinned(store)
    assert pin.bucket is not None
    monkeypatch.setattr(reading, "_CACHE_BYTES", 4_000_000)
    there = files_in_bucket(pin.bucket, machine.other().bucket)
    reader, pool = PinnedReader(pin, there), ThreadPoolExecutor(1)
    tracemalloc.start()
    try:
        cells = sum(len(batch) for batch in reader.scan(ScanSpec(table="t"), pool).to_reader())
        assert cells == 400 and tracemalloc.get_traced_memory()[0] < 8_000_000
    finally:
        tracemalloc.stop()
        reader.close()
        there.close()
        pool.shutdown()
        store.close()


def test_what_cannot_be_pinned_is_said() -> None:
    machine, clock = Machine(), ManualClock(1_700_000_000 * SECOND)
    with opened(machine, clock, unfinished_max=2) as store:
        Database(store).create_table("t", SCHEMA, ["id"], history_max_age_seconds=10)
        put(store, range(3), 1)
        moment = store.now()
        clock.advance(100 * SECOND)
        with pytest.raises(SnapshotTooOldError):
            store.pin_snapshot(PinSnapshot(table="t", as_of=moment))
        with pytest.raises(NotFoundError):
            store.pin_snapshot(PinSnapshot(table="other"))
        pins = [pinned(store, 1000) for _ in range(2)]
        with pytest.raises(UnavailableError, match="unfinished_max"):
            pinned(store)
        store.release_pin(pins[0].pin_id)
        pinned(store)


def test_a_lost_manifest_of_a_pin_lets_nothing_be_deleted() -> None:
    machine = Machine()
    with made(machine) as store:
        pin = pinned(store)
        put(store, range(300, 305), 5)
        store.maintain("t", "flush")  # another manifest counts
    machine.bucket.delete([f"stores/a/manifests/{manifest_of(pin)}"])
    report = verify_bucket(machine.other().home())
    (problem,) = report.problems
    assert manifest_of(pin) in problem and report.rows == 105 and not report.notes, "all else was checked"
    with pytest.raises(CorruptionError, match=manifest_of(pin)):
        leftovers(machine.other().home())
    with opened(machine.other()) as store:
        assert [each for each in store.damage.found() if manifest_of(pin) in str(each)]
        before = files(machine)
        churn(store)
        assert before <= files(machine)
        store.release_pin(pin.pin_id)
        settle(store)
        assert not before <= files(machine)


def test_what_pins_hold_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, together = Machine(), Barrier(4, timeout=20)
    with opened(machine) as store:
        Database(store).create_table("t", SCHEMA, ["id"], partition_by=[hash_by("id", buckets=4)])
        put(store, range(100), 1)
        pins = [store.create_pin(CreatePin(name=f"{number}")) for number in range(4)]
        listed = machine.bucket.list

        def listing(prefix: str) -> list[tuple[str, int]]:
            together.wait()
            return list(listed(prefix))

        with monkeypatch.context() as patch:
            patch.setattr(machine.bucket, "list", listing)
            opening = store.open_pin(OpenPin(pin_id=pins[0].pin_id)).pinned
    assert opening.bucket and len(opening.bucket.sizes) >= 4
    read = holding.read_pinned

    def reading(*asked: Any) -> Manifest:
        together.wait()
        return read(*asked)

    monkeypatch.setattr(holding, "read_pinned", reading)
    with opened(machine.other()) as store:
        assert store.pins() == pins


@pytest.mark.parametrize("planted", ["files", "manifest"])
def test_a_deletion_that_ignores_pins_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ignores: Callable[[object, str], bool] = lambda self, name: False  # noqa: E731
    monkeypatch.setattr(holding.PinnedObjects, "holds" if planted == "files" else "holds_manifest", ignores)
    machine = Machine()
    with made(machine) as store:
        pin = pinned(store)
        churn(store)
        with pytest.raises(StoreError):
            rows_of(machine, pin)


@dataclass(frozen=True)
class Told:
    """The answers of a workload: its pins, and which of them it ended."""

    pins: list[PinnedTable] = field(default_factory=list[PinnedTable])
    ended: list[str] = field(default_factory=list[str])


def work(machine: Machine, told: Told) -> None:
    """Pin, change everything, restart, renew, end one of two pins, and change everything again."""
    with made(machine) as store:
        told.pins.append(pinned(store))
        churn(store)
    with opened(machine) as store:
        store.renew_pin(told.pins[0].pin_id)
        told.pins.append(pinned(store))
        told.ended.append(told.pins[0].pin_id)
        store.release_pin(told.pins[0].pin_id)
        churn(store)


def check(machine: Machine, told: Told) -> None:
    """What was answered and not ended reads as before, with the next holder too; nothing named is missing."""
    for turn in range(2):
        for number, pin in enumerate(told.pins):
            if pin.pin_id not in told.ended:
                found = rows_of(machine, pin)
                assert found == BEFORE if number == 0 else found[0] == 3 and len(found) > 70
        if turn == 0:
            with opened(machine.other()) as store:
                if "t" in store.tables():
                    churn(store)
    check_sound(machine)


CALLS = FailingCalls(Told, work, check, step=dose(37, 13))


@pytest.mark.parametrize("fault", FAULTS)
def test_any_one_call_may_fail(fault: Fault) -> None:
    CALLS.one_fails(fault)


def test_any_call_may_be_the_last() -> None:
    CALLS.one_is_the_last()

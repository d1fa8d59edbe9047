"""What two processes do at once, of which only one has the store, harms nothing that the other one did."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from nyala.engine.home.bucket import BucketHome
from nyala.engine.home.where import read_where, write_where
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.engine.wal.slots.claim import Claimant
from nyala.engine.wal.slots.slot_sink import SlotSink
from nyala.engine.wal.slots.standby import Standby
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.store.whereabouts import Whereabouts
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.home.bucket_workloads import History, Life, check, have_small_chunks


def opened(machine: Machine) -> Store:
    return Store.open(machine.home(), OPTIONS)


def filled(machine: Machine, history: History) -> Store:
    store = opened(machine)
    life = Life(store, history)
    life.create("t")
    life.upsert("t", 1, 2)
    assert not history.errors
    return store


def test_the_hint_where_the_store_is_is_written_if_it_differs() -> None:
    machine = Machine()
    home = machine.home().by(Standby(), ["grpc://m1:1"])
    with Store.open(home, OPTIONS):
        held = home.held
        assert held is not None
        held.note_where()
        calls: Any = machine.objects
        before = len(calls.calls)
        held.note_where()
        assert [call.verb for call in calls.calls[before:]] == ["get"]
        write_where(home.bucket, home.name, Whereabouts(name=home.name, state="holder"))  # late, by a former holder
        held.note_where()
        assert read_where(home.bucket, home.name) == held.whereabouts()


def last_put_is_late(machine: Machine, place: str = "/tablets/") -> None:
    """Let the next object that is put at a place land when ``land_late_ones`` is called, and nothing after it."""
    objects: Any = machine.objects
    put = objects.put

    def late(name: str, content: Any) -> None:
        if place in name and objects.away_from is None:
            objects.away_from = len(objects.calls) + 1
            objects.late_by = 1 << 40
            objects.faults[len(objects.calls) + 1] = Fault.LATE
        put(name, content)

    objects.put = late


def test_a_file_of_a_former_holder_that_lands_late_overwrites_none() -> None:
    machine, history = Machine(), History()
    old = filled(machine, history)
    last_put_is_late(machine)
    with pytest.raises(UnavailableError):
        old.maintain("t", "flush")
    with opened(machine.other()) as new:
        life = Life(new, history)
        life.upsert("t", *range(10, 30))
        life.maintain("t", "flush")
        assert not history.errors
        machine.objects.land_late_ones()
    with suppress(StoreError):
        old.close()
    check(machine, history)


def test_a_claim_in_the_place_of_a_freed_slot_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever claims stands still between its look and its claim, while the holder writes, flushes and frees."""
    machine, history = Machine(), History()
    holder = filled(machine, history)
    log: Any = holder._wal
    log._options = replace(log._options, free_slots=1)
    claim, claims = Claimant.claim, []

    def after_a_pause(self: Claimant, *given: Any) -> Any:
        if not claims:
            life = Life(holder, history)
            for each in range(20, 26):
                life.upsert("t", each)
            life.maintain("t", "flush")
            life.upsert("t", 30)
            life.maintain("t", "flush")
            claims.append(given[0].header.number + 1)
            assert claims[0] not in machine.home().slots.numbers(), "its place is free again"
        return claim(self, *given)

    monkeypatch.setattr(Claimant, "claim", after_a_pause)
    store: Store | None = None
    with suppress(UnavailableError):  # the holder may be found alive
        store = opened(machine.other())
    assert claims[0] in machine.home().slots.numbers(), "the claim stays where it is"
    if store:
        history.check(store)
        store.close()
    with suppress(StoreError):
        holder.close()
    assert not history.errors
    check(machine, history)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sweep_takes_nothing_of_a_flush_that_is_under_way(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """The files are put, and the manifest; the slot that names it has not landed, or just now."""
    machine, history = Machine(), History()
    store = filled(machine, history)
    place: Any = store._environment.manifest._place
    install = place.install

    def swept(log_needed_from: int) -> None:
        if moment == "after":
            install(log_needed_from)
        sweep(machine.other().home())
        if moment == "before":
            install(log_needed_from)

    monkeypatch.setattr(place, "install", swept)
    Life(store, history).maintain("t", "flush", "compact")
    assert not history.errors
    machine.objects.is_away = True
    with suppress(StoreError):
        store.close()
    check(machine, history)


def test_a_former_holder_deletes_no_file_any_more() -> None:
    """It has files to delete, and learns that somebody else has the store before it comes to that."""
    machine, history = Machine(), History()
    old = filled(machine, history)
    life = Life(old, history)
    for each in range(3):
        life.maintain("t", "flush")
        life.upsert("t", each)
    life.maintain("t", "flush", "compact")
    fs: Any = old._fs
    assert fs.deletions.has_due(), "it has something to delete"
    machine.boot.pass_by(OPTIONS.lease_seconds)
    with opened(machine.other()) as new:
        Life(new, history).upsert("t", 50)
        before = len(machine.objects.effects)
        for _ in range(5):
            with suppress(StoreError):
                old.run_maintenance_once()
        with suppress(StoreError):
            old.close()
        deleted = " ".join(name for verb, name in machine.objects.effects[before:] if verb == "delete")
        assert "/tablets/" not in deleted, "slots and manifests may go that its last slot had replaced"
        history.check(new)
    home: BucketHome = machine.other().home()
    assert verify_bucket(home).is_sound
    check(machine, history)


def test_a_sweep_takes_no_chunks_that_are_about_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    have_small_chunks(monkeypatch)
    machine, history = Machine(), History()
    store = filled(machine, history)
    encode, swept = SlotSink._encode, []

    def after_a_sweep(self: SlotSink, group: Any) -> Any:
        if group.upload is not None:
            swept.append(sweep(machine.other().home()))
        return encode(self, group)

    monkeypatch.setattr(SlotSink, "_encode", after_a_sweep)
    Life(store, history).upsert("t", 3, 4)
    store.close()
    assert swept == [[]] and not history.errors
    check(machine, history)


def test_a_chunk_of_a_former_holder_that_lands_late_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    have_small_chunks(monkeypatch)
    machine, history = Machine(), History()
    old = filled(machine, history)
    last_put_is_late(machine, "/chunks/")
    Life(old, history).upsert("t", 1, 3)
    assert history.errors
    with opened(machine.other()) as new:
        life = Life(new, history)
        life.upsert("t", 1, 2)
        machine.objects.land_late_ones()
        history.check(new)
        assert leftovers(machine.other().home()), "it is of the former reign"
    with suppress(StoreError):
        old.close()
    check(machine, history)

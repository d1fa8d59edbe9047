"""Copies of a store in a bucket: at any moment the target is absent, the former copy, or whole."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.checkpoint import bucket_copy
from nyala.engine.checkpoint.bucket_copy import BucketCopy, SameService
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home import bucket as home_in_bucket
from nyala.engine.home.bucket import BucketHome
from nyala.engine.home.copy_mark import read_copy_mark
from nyala.engine.recovery import bucket_state
from nyala.engine.recovery.bucket_state import BucketState
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.engine.wal.slots import pace
from nyala.schemas.errors import ConflictError, CorruptionError, InvalidArgumentError, StoreError, UnavailableError
from nyala.schemas.store.pins import CreatePin, OpenPin
from tests.dose import dose
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.failing_calls import FAULTS, FailingCalls

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
Rows = dict[int, int]


def put(store: Store, ids: range, v: int) -> None:
    Database(store).table("t").upsert([{"id": each, "v": v} for each in ids])


def rows_of(store: Store) -> Rows:
    return {row["id"]: row["v"] for row in Database(store).table("t").scan().to_arrow().to_pylist()}


def made(machine: Machine) -> Store:
    store = Store.open(machine.home(), OPTIONS)
    Database(store).create_table("t", SCHEMA, ["id"])
    put(store, range(100), 1)
    store.maintain("t", "flush")
    put(store, range(0, 100, 3), 2)
    return store


def churn(store: Store, v: int) -> None:
    """Replace every file that the table has, and let the log say so."""
    put(store, range(0, 100, 2), v)
    store.maintain("t", "flush")
    store.maintain("t", "compact")
    for _ in range(4):
        put(store, range(200, 201), v)
        while store.run_maintenance_once():
            pass


def copied(store: Store, machine: Machine, streamed: bool = False, late: range = range(0)) -> int:
    """Copy the store ``a`` to ``b``; return how many files were. ``late`` are rows that are written after the pin."""
    pin = store.create_pin(CreatePin(name=f"copy-{uuid4().hex[:8]}"))
    try:
        if late:
            put(store, late, 9)
        via = MemoryFileSystem() if streamed else SameService(machine.bucket, "", "")
        run = BucketCopy(machine.home("a"), machine.home("b"), via, uuid4())
        missing = run.begin(pin.pin_id)
        assert missing is not None
        for file in missing:
            assert run.bring(file) == file.size
        run.end()
        return len(missing)
    finally:
        with suppress(StoreError):
            store.drop_pin(pin.pin_id)


def opened(machine: Machine) -> Store:
    return Store.open(machine.other().home("b"), OPTIONS)


def check_clean(home: BucketHome) -> None:
    report = verify_bucket(home)
    assert report.is_sound, report.problems
    sweep(home)
    assert not leftovers(home)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_copy_is_a_store_of_its_own_and_is_brought_up_to_date(streamed: bool) -> None:
    machine = Machine()
    with made(machine) as store:
        before = rows_of(store)
        assert copied(store, machine, streamed) > 0
        home = machine.other().home("b")
        assert verify_bucket(home).is_sound and not leftovers(home)
        assert copied(store, machine, streamed) == 0
        put(store, range(300, 310), 4)
        assert copied(store, machine, streamed) == 2, "what a flush wrote"
        first = {name for name, _ in machine.bucket.list("stores/b/tablets/")}
        churn(store, 5)
        assert copied(store, machine, streamed, late=range(400, 405)) > 0, "rows that only the log has"
        assert verify_bucket(home).is_sound and not leftovers(home)
        assert not first & {name for name, _ in machine.bucket.list("stores/b/tablets/")}, "they belong no more"
        at_copy = rows_of(store)
        churn(store, 6)
    with opened(machine) as copy:
        assert rows_of(copy) == at_copy != before
        churn(copy, 7)
        after = rows_of(copy)
    with Store.open(machine.other().home(), OPTIONS) as again, pytest.raises(ConflictError, match="opened since"):
        copied(again, machine, streamed)
    with opened(machine) as copy:
        assert rows_of(copy) == after
    check_clean(machine.other().home("b"))


def chunks_of(machine: Machine) -> set[str]:
    return {name for name, _ in machine.bucket.list("stores/b/chunks/")}


def test_many_bytes_of_records_are_copied_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_copy, "_SLOT_BYTES", 100)
    monkeypatch.setattr(pace, "BYTES_MIN", 100)
    monkeypatch.setattr(pace, "BYTES_MAX", 100)
    machine = Machine()
    with made(machine) as store:
        copied(store, machine, late=range(400, 430))
        first, home = chunks_of(machine), machine.other().home("b")
        assert len(first) > 3 and verify_bucket(home).is_sound and not leftovers(home)
    with Store.open(machine.home(), OPTIONS) as store:
        run = begun(store, machine)
        repeated = chunks_of(machine) - first
        assert repeated, "the former copy, in the reign of the source"
        assert verify_bucket(home).is_sound
        run.end()
        put(store, range(500, 530), 8)
    with Store.open(machine.home(), OPTIONS) as store:
        copied(store, machine, late=range(600, 630))
        assert chunks_of(machine) and not chunks_of(machine) & (first | repeated)
        at_copy = rows_of(store)
        begun(store, machine)  # and killed
    assert verify_bucket(home).is_sound
    with opened(machine) as copy:
        assert rows_of(copy) == at_copy
        churn(copy, 7)
    check_clean(home)


def test_names_of_files_stay_apart_however_often_the_source_was_opened() -> None:
    machine = Machine()
    made(machine).close()
    for _ in range(3):
        Store.open(machine.home(), OPTIONS).close()
    with Store.open(machine.home(), OPTIONS) as store:
        churn(store, 3)
        copied(store, machine)
    there = {name for name, _ in machine.bucket.list("stores/b/tablets/")}
    reigns = {int(name.rpartition("/")[2].partition(".")[0]) >> 40 for name in there}
    with opened(machine) as copy:
        churn(copy, 4)
        new = {name for name, _ in machine.bucket.list("stores/b/tablets/")} - there
        assert new and all(int(name.rpartition("/")[2].partition(".")[0]) >> 40 > max(reigns) for name in new)


def test_what_is_at_the_target_stays() -> None:
    machine = Machine()
    other = Store.open(machine.home("b"), OPTIONS)
    Database(other).create_table("t", SCHEMA, ["id"])
    other.close()
    with made(machine) as store:
        with pytest.raises(ConflictError, match="another store"):
            copied(store, machine)
        with pytest.raises(InvalidArgumentError, match="to itself"):
            BucketCopy(machine.home(), machine.home(), SameService(machine.bucket, "", ""), uuid4())
        machine.bucket.put("stores/c/some", b"thing")
        run = BucketCopy(machine.home(), machine.home("c"), MemoryFileSystem(), uuid4())
        with pytest.raises(ConflictError, match="other objects"):
            run.begin("1-1")


def test_a_copy_that_is_not_finished_is_no_store_and_goes_on() -> None:
    machine = Machine()
    with made(machine) as store:
        pin = store.create_pin(CreatePin(name="p"))
        run = BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4())
        missing = run.begin(pin.pin_id)
        assert missing
        run.bring(missing[0])
        with pytest.raises(UnavailableError, match="not finished"):
            opened(machine)
        with pytest.raises(CorruptionError, match=r"has none of the [0-9]+ bytes copied"):
            run.end()
        assert copied(store, machine) == len(missing) - 1
        other = made_by(machine, "c")
        with pytest.raises(ConflictError, match="another store"):
            BucketCopy(machine.home("c"), machine.home("b"), MemoryFileSystem(), uuid4()).begin("1-1")
        other.close()


def test_an_opening_that_meets_a_first_copy_says_what_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, answers = Machine(), iter([None])
    with made(machine) as store:
        pin = store.create_pin(CreatePin(name="p"))
        BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4()).begin(pin.pin_id)
        monkeypatch.setattr(home_in_bucket, "read_copy_mark", lambda *at: next(answers, read_copy_mark(*at)))
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"began: delete the objects below stores/b/$"):
                opened(machine)
        with pytest.raises(ConflictError, match="delete the objects below"):
            copied(store, machine)


def made_by(machine: Machine, name: str) -> Store:
    store = Store.open(machine.other().home(name), OPTIONS)
    Database(store).create_table("t", SCHEMA, ["id"])
    return store


def test_of_two_runs_and_an_opening_one_wins() -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine)
        for rival in (lambda: copied(store, machine), lambda: opened(machine).close()):
            put(store, range(500, 510), 8)
            pin = store.create_pin(CreatePin(name="p"))
            run = BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4())
            for file in run.begin(pin.pin_id) or []:
                run.bring(file)
            rival()
            with pytest.raises(ConflictError, match="meanwhile"):
                run.end()
            store.drop_pin(pin.pin_id)
            assert verify_bucket(machine.other().home("b")).is_sound


@pytest.mark.parametrize("late", [range(0), range(400, 405)])
def test_who_opens_a_copy_while_files_of_the_sources_next_reign_come_keeps_its_rows(late: range) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine, late=late)
        at_copy = rows_of(store)
    with Store.open(machine.home(), OPTIONS) as store:
        churn(store, 3)
        run = BucketCopy(machine.home(), machine.home("b"), SameService(machine.bucket, "", ""), uuid4())
        missing = run.begin(store.create_pin(CreatePin(name="p")).pin_id)
        assert missing
        with opened(machine) as copy:
            assert rows_of(copy) == at_copy
            churn(copy, 7)
            after = rows_of(copy)
        for file in missing:
            run.bring(file)
        before = dict(machine.bucket.list("stores/b/manifests/"))
        with pytest.raises(ConflictError, match="meanwhile"):
            run.end()
        assert dict(machine.bucket.list("stores/b/manifests/")) == before
    with opened(machine) as copy:
        assert rows_of(copy) == after
    check_clean(machine.other().home("b"))


@pytest.mark.parametrize("late", [range(0), range(400, 405)])
def test_a_run_of_the_sources_next_reign_that_is_killed_leaves_the_former_copy(late: range) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine, late=late)
        at_copy = rows_of(store)
    with Store.open(machine.home(), OPTIONS) as store:
        churn(store, 3)
        pin = store.create_pin(CreatePin(name="p"))
        run = BucketCopy(machine.home(), machine.home("b"), SameService(machine.bucket, "", ""), uuid4())
        for file in run.begin(pin.pin_id) or []:
            run.bring(file)
        store.drop_pin(pin.pin_id)
        assert verify_bucket(machine.other().home("b")).is_sound
        copied(store, machine)
        home = machine.other().home("b")
        assert verify_bucket(home).is_sound and not leftovers(home)
        put(store, range(500, 510), 8)
    with Store.open(machine.home(), OPTIONS) as store:
        assert BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4()).begin(
            store.create_pin(CreatePin(name="q")).pin_id
        )
    with opened(machine) as copy:
        assert rows_of(copy) == {**at_copy, **dict.fromkeys(range(0, 100, 2), 3), 200: 3}
    check_clean(machine.other().home("b"))


def test_an_opening_before_a_run_of_the_sources_next_reign_writes_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine)
    there: list[tuple[str, int]] = []

    def state_of(home: BucketHome) -> BucketState:
        found = bucket_state.state_of(home)
        opened(machine).close()
        there.extend(machine.bucket.list("stores/b/"))
        return found

    with Store.open(machine.home(), OPTIONS) as store:
        pin = store.create_pin(CreatePin(name="p"))
        monkeypatch.setattr(bucket_copy, "state_of", state_of)
        with pytest.raises(ConflictError, match="meanwhile"):
            BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4()).begin(pin.pin_id)
        assert list(machine.bucket.list("stores/b/")) == there != []


@pytest.mark.parametrize("ends_within", [False, True])
def test_a_sweep_takes_nothing_from_a_run_of_the_sources_next_reign(
    ends_within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine)
        churn(store, 3)
    with Store.open(machine.home(), OPTIONS) as store:
        at_cut = rows_of(store)
        run = begun(store, machine)
        home = machine.other().home("b")
        delete = home.bucket.delete

        def late(names: list[str]) -> None:
            if ends_within:
                run.end()
            delete(names)

        monkeypatch.setattr(home.bucket, "delete", late)
        assert all(each.in_use for each in sweep(home))
        if not ends_within:
            run.end()
    home = machine.other().home("b")
    assert verify_bucket(home).is_sound and not leftovers(home)
    with opened(machine) as copy:
        assert rows_of(copy) == at_cut


def begun(store: Store, machine: Machine, target: BucketHome | None = None) -> BucketCopy:
    """Return a run that has brought its files."""
    run = BucketCopy(machine.home("a"), target or machine.home("b"), SameService(machine.bucket, "", ""), uuid4())
    missing = run.begin(store.create_pin(CreatePin(name=f"copy-{uuid4().hex[:8]}")).pin_id)
    assert missing
    for file in missing:
        run.bring(file)
    return run


def test_a_run_that_stalled_until_the_log_was_far_ahead_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine)
        put(store, range(50), 5)
        store.maintain("t", "flush")
        other = begun(store, machine)
        churn(store, 6)
        run = begun(store, machine, home := machine.home("b"))
    create = home.slots.create
    rows: Rows = {}

    def late(number: int, content: bytes) -> bool:
        monkeypatch.undo()
        other.end()
        with opened(machine) as copy:
            for v in range(300):  # they are deleted many at once
                put(copy, range(1000, 1010), v)
            copy.maintain("t", "flush")
            rows.update(rows_of(copy))
        assert min(home.slots.numbers()) > number, "it is free again"
        return create(number, content)

    monkeypatch.setattr(home.slots, "create", late)
    with pytest.raises(ConflictError, match="meanwhile"):
        run.end()
    assert verify_bucket(machine.other().home("b")).is_sound
    with opened(machine) as copy:
        assert rows_of(copy) == rows
    check_clean(machine.other().home("b"))


def test_a_damaged_file_is_not_copied() -> None:
    machine = Machine()
    with made(machine) as store:
        store.maintain("t", "flush")
        name = next(name for name, _ in machine.bucket.list("stores/a/tablets/") if name.endswith(".base"))
        content = bytearray(machine.bucket.get(name))
        content[len(content) // 3] ^= 1
        machine.bucket.put(name, bytes(content))
        with pytest.raises(CorruptionError):
            copied(store, machine, streamed=True)
    assert not machine.home("b").has_store()


def test_a_pin_that_cannot_be_read_hinders_no_copy() -> None:
    machine = Machine()
    with made(machine) as store:
        pin = store.create_pin(CreatePin(name="old"))
        place = store.open_pin(OpenPin(pin_id=pin.pin_id)).pinned.bucket
        churn(store, 5)
        assert place and copied(store, machine)
        machine.bucket.delete([f"stores/a/{place.manifest}"])
        churn(store, 6)
        assert copied(store, machine)
        at_copy = rows_of(store)
    with opened(machine) as copy:
        assert rows_of(copy) == at_copy


def test_another_manifest_asks_for_another_pin() -> None:
    machine = Machine()
    with made(machine) as store:
        pin = store.create_pin(CreatePin(name="p"))
        churn(store, 3)
        assert BucketCopy(machine.home(), machine.home("b"), MemoryFileSystem(), uuid4()).begin(pin.pin_id) is None


def test_a_run_whose_pin_came_too_late_begins_again_without_listing_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with made(machine) as store:
        copied(store, machine)
    with Store.open(machine.home(), OPTIONS) as store:
        target = machine.other().home("b")
        run = BucketCopy(machine.home(), target, SameService(machine.bucket, "", ""), uuid4())
        listed, names = target.bucket.list, list[str]()

        def slow(prefix: str) -> list[tuple[str, int]]:
            names.append(prefix)
            if prefix == target.prefix:
                churn(store, len(names))
            return listed(prefix)

        monkeypatch.setattr(target.bucket, "list", slow)
        for number in range(2):
            pins = [store.create_pin(CreatePin(name=f"{number}-{each}")) for each in range(2)]
            assert run.begin(pins[0].pin_id) is None, "it is not of the newest manifest"
            missing = run.begin(store.create_pin(CreatePin(name=f"{number}")).pin_id)
            assert missing
            for file in missing:
                run.bring(file)
            for pin in store.pins():
                store.drop_pin(pin.pin_id)
            if not number:
                churn(store, 9)
        at_cut = rows_of(store)
        run.end()
        assert names.count(target.prefix) == 1
        assert verify_bucket(target).is_sound and not leftovers(target), "what it brought first is deleted"
    with opened(machine) as copy:
        assert rows_of(copy) == at_cut


@dataclass
class Told:
    """What the source had at each copy, and how many of them were told to be there."""

    states: list[Rows] = field(default_factory=list[Rows])
    done: int = 0


def work(machine: Machine, told: Told) -> None:
    with made(machine) as store:
        for number in range(2):
            told.states.append(rows_of(store))
            copied(store, machine, streamed=number == 0)
            told.done += 1
            churn(store, 5)
    with Store.open(machine.home(), OPTIONS) as store:
        told.states.append(rows_of(store))
        copied(store, machine)
        told.done += 1


def check(machine: Machine, told: Told) -> None:
    home = machine.other().home("b")
    if not home.has_store():
        assert not told.done
        return
    assert verify_bucket(home).is_sound
    with opened(machine) as copy:
        assert rows_of(copy) in told.states[max(told.done - 1, 0) :]
        churn(copy, 7)
    check_clean(home)


CALLS = FailingCalls(Told, work, check, step=dose(61, 29))


@pytest.mark.parametrize("fault", FAULTS)
def test_any_one_call_may_fail(fault: Fault) -> None:
    CALLS.one_fails(fault)


def test_any_call_may_be_the_last() -> None:
    CALLS.one_is_the_last()

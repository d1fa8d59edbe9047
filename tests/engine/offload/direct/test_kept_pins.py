"""Pins that are kept: what they keep stays the same, also through restarts, until they are dropped."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.manifest import pin_note
from nyala.engine.manifest.manifest import Manifest, ManifestFile, PinEntry
from nyala.engine.offload.direct.bucket_pins import BucketPins
from nyala.engine.offload.direct.reader import PinnedReader, files_in_bucket
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.sweep_bucket import leftovers
from nyala.engine.recovery.verify import verify_store
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.scan.plan.snapshots import Snapshots
from nyala.engine.store import Store
from nyala.schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.direct import PinnedTable, PinSnapshot
from nyala.schemas.store.pins import CreatePin, OpenPin
from tests.dose import dose
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.failing_calls import FAULTS, FailingCalls, check_sound
from tests.engine.phases import at

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
BEFORE = {each: 2 if each % 3 == 0 else 1 for each in range(100)}
Rows = dict[int, int]


def put(store: Store, ids: range, v: int, table: str = "t") -> None:
    Database(store).table(table).upsert([{"id": each, "v": v} for each in ids])


def made(store: Store) -> Store:
    Database(store).create_table("t", SCHEMA, ["id"])
    put(store, range(100), 1)
    store.maintain("t", "flush")
    put(store, range(0, 100, 3), 2)
    return store


def churn(store: Store) -> None:
    """Replace every file that the table has, and let the log say so."""
    put(store, range(0, 100, 2), 3)
    Database(store).table("t").delete_ignore([{"id": each} for each in range(1, 50, 2)])
    for kind in ("flush_deltas", "major_compact", "compact", "gc"):
        store.maintain("t", kind)
    for _ in range(2):
        store.run_maintenance_once()
        for _ in range(3):
            put(store, range(200, 201), 3)
    while store.run_maintenance_once():
        pass


def rows_in(reader: PinnedReader, table: str) -> Rows:
    with ThreadPoolExecutor(1) as pool:
        found = reader.scan(ScanSpec(table=table), pool).to_reader().read_all().to_pylist()
    reader.close()
    return {row["id"]: row["v"] for row in found}


class Subject:
    """A store, in a bucket or a directory, that is opened one time after the other."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000_000_000)

    def open(self, **options: int) -> Store:
        raise NotImplementedError

    def read(self, pinned: PinnedTable) -> Rows:
        raise NotImplementedError

    def rows(self, store: Store, pin_id: str, table: str | None = None) -> Rows:
        return self.read(store.open_pin(OpenPin(pin_id=pin_id, table=table)).pinned)


class InBucket(Subject):
    def __init__(self, machine: Machine | None = None) -> None:
        super().__init__()
        self.machine = machine or Machine()

    def open(self, **options: int) -> Store:
        self.machine = self.machine.other()
        return Store.open(self.machine.home(), OPTIONS.model_copy(update=options), self.clock)

    def read(self, pinned: PinnedTable) -> Rows:
        assert pinned.bucket is not None
        there = files_in_bucket(pinned.bucket, self.machine.other().bucket)
        try:
            return rows_in(PinnedReader(pinned, there), pinned.table)
        finally:
            there.close()


class InDirectory(Subject):
    def __init__(self, fs: FileSystem | None = None) -> None:
        super().__init__()
        self.fs: Any = fs or MemoryFileSystem()

    def open(self, **options: int) -> Store:
        return Store.open(self.fs, StoreOptions(maintenance="off").model_copy(update=options), self.clock)

    def read(self, pinned: PinnedTable) -> Rows:
        return rows_in(PinnedReader(pinned, self.fs), pinned.table)


@pytest.fixture(params=[InBucket, InDirectory])
def subject(request: pytest.FixtureRequest) -> Subject:
    return request.param()


def test_a_kept_pin_shows_the_same_until_it_is_dropped(subject: Subject) -> None:
    with made(subject.open()) as store:
        pin = store.create_pin(CreatePin(name="before", table="t"))
        assert subject.rows(store, pin.pin_id) == BEFORE
        churn(store)
        assert subject.rows(store, pin.pin_id) == BEFORE
    subject.clock.advance(400 * 86_400_000_000)
    with subject.open() as store:
        churn(store)
        store.drop_table("t")
        while store.run_maintenance_once():
            pass
    with subject.open() as store:
        assert [each.name for each in store.pins()] == ["before"] and store.pins()[0] == pin
        assert subject.rows(store, pin.pin_id) == BEFORE
        for end in (store.renew_pin, store.release_pin):
            with pytest.raises(NotFoundError):
                end(pin.pin_id)
        store.drop_pin(pin.pin_id)
        assert store.pins() == []
        for gone in (store.drop_pin, lambda pin_id: store.open_pin(OpenPin(pin_id=pin_id))):
            with pytest.raises(NotFoundError, match="no pin"):
                gone(pin.pin_id)
    if isinstance(subject, InDirectory):
        assert not subject.fs.exists(f"pins/{pin.pin_id}")
    with subject.open() as store:
        assert store.pins() == []


def test_names_of_pins_are_used_once_at_a_time(subject: Subject) -> None:
    with made(subject.open()) as store:
        pin = store.create_pin(CreatePin(name="a", table="t"))
        with pytest.raises(AlreadyPresentError, match="pin 'a' already exists"):
            store.create_pin(CreatePin(name="a", table="t"))
        with pytest.raises(NotFoundError):
            store.create_pin(CreatePin(name="b", table="none"))
        with pytest.raises(NotFoundError, match="does not keep table 'u'"):
            store.open_pin(OpenPin(pin_id=pin.pin_id, table="u"))
        store.drop_pin(pin.pin_id)
        store.create_pin(CreatePin(name="a", table="t"))
        for wrong in ("", "a/b", "\xe4", "x" * 65):
            with pytest.raises(InvalidArgumentError):
                Database(store).create_pin(wrong, "t")


def test_a_store_in_a_bucket_keeps_all_its_tables() -> None:
    subject = InBucket()
    with made(subject.open()) as store:
        Database(store).create_table("u", SCHEMA, ["id"])
        put(store, range(7), 5, "u")
        pin = store.create_pin(CreatePin(name="all"))
        assert (pin.table, pin.table_id) == (None, None)
        churn(store)
        store.drop_table("u")
        churn(store)
    with subject.open() as store:
        assert store.pins() == [pin]
        assert subject.rows(store, pin.pin_id, "t") == BEFORE
        assert subject.rows(store, pin.pin_id, "u") == dict.fromkeys(range(7), 5)
        with pytest.raises(InvalidArgumentError, match="keeps 2 tables: give the name of the table"):
            store.open_pin(OpenPin(pin_id=pin.pin_id))
    home = subject.machine.other().home()
    assert not leftovers(home) and verify_bucket(home).is_sound
    with subject.open() as store:
        store.drop_pin(pin.pin_id)
        churn(store)
    assert not leftovers(home)


def test_all_tables_are_kept_as_of_now_only() -> None:
    with made(InBucket().open()) as store:
        moment = store.create_pin(CreatePin(name="one", table="t")).snapshot
        with pytest.raises(InvalidArgumentError, match="leave out as_of, or name a table"):
            store.create_pin(CreatePin(name="all", as_of=moment))
        assert [pin.name for pin in store.pins()] == ["one"]


@pytest.mark.parametrize("is_held", [True, False])
def test_all_tables_read_though_their_flush_takes_longer_than_their_history(
    is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, rows = InBucket(), dict.fromkeys(range(7), 5)
    with subject.open() as store:
        for name in ("t", "u"):
            Database(store).create_table(name, SCHEMA, ["id"], history_max_age_seconds=5)
            put(store, range(7), 5, name)
        store.drop_table("u", keep_seconds=3600)
        committed, later = BucketPins._committed, iter([5])

        def long_after(*arguments: Any) -> PinEntry:
            for v in later:
                subject.clock.advance(20_000_000)
                put(store, range(7), v)
                subject.clock.advance(20_000_000)
                for kind in ("flush", "compact", "gc"):
                    store.maintain("t", kind)
            return committed(*arguments)

        monkeypatch.setattr(BucketPins, "_committed", long_after)
        if not is_held:
            monkeypatch.setattr(Snapshots, "holding", lambda *_: nullcontext())
        pin = store.create_pin(CreatePin(name="all"))
        assert subject.rows(store, pin.pin_id, "t") == rows


def test_a_pin_that_is_not_made_does_not_end_the_one_with_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    with made(InBucket().open()) as store:
        flushed = BucketPins._flushed

        def dropped(manifest: ManifestFile, edit: Callable[[Manifest], Manifest]) -> Manifest:
            monkeypatch.undo()
            try:
                return edit(manifest.current.model_copy(update={"tables": ()}))
            finally:
                store.create_pin(CreatePin(name="other", table="t"))

        def late(*arguments: Any) -> Any:
            found = flushed(*arguments)
            monkeypatch.setattr(ManifestFile, "commit", dropped)
            return found

        monkeypatch.setattr(BucketPins, "_flushed", late)
        with pytest.raises(NotFoundError, match="dropped"):
            store.create_pin(CreatePin(name="mine", table="t"))
        assert [(pin.name, pin.table) for pin in store.pins()] == [("other", "t")], "it knows what this one holds"


def test_pins_of_one_table_leave_room_for_others(subject: Subject) -> None:
    with subject.open(unfinished_max=16) as store:
        for name in "tuvwxyz0123456789":
            Database(store).create_table(name, SCHEMA, ["id"])
        for number in range(2):
            store.create_pin(CreatePin(name=f"t{number}", table="t"))
        with pytest.raises(UnavailableError, match=r"too many pins of this table \(2, .* drop some pins$"):
            store.create_pin(CreatePin(name="t2", table="t"))
        for name in "uvwxyz01234567":
            store.create_pin(CreatePin(name=name, table=name))
        with pytest.raises(UnavailableError, match=r"too many pins of single tables \(16, .* drop some pins$"):
            store.create_pin(CreatePin(name="8", table="8"))
        if isinstance(subject, InBucket):
            for number in range(16):
                store.create_pin(CreatePin(name=f"all{number}"))
            with pytest.raises(UnavailableError, match=r"too many pins of all tables \(16, .* drop some pins$"):
                store.create_pin(CreatePin(name="all"))
        store.drop_pin(store.pins()[0].pin_id)
        store.create_pin(CreatePin(name="8", table="8"))


def test_a_directory_keeps_one_table_by_a_pin() -> None:
    with made(InDirectory().open()) as store, pytest.raises(InvalidArgumentError, match="or name a table"):
        store.create_pin(CreatePin(name="all"))


def test_a_pin_in_a_directory_outlives_a_power_failure_once_it_was_made() -> None:
    subject = InDirectory()
    store = made(subject.open())
    pin = store.create_pin(CreatePin(name="a", table="t"))
    other = store.pin_snapshot(PinSnapshot(table="t"))
    subject.fs = subject.fs.crash_image(Random(1))
    with subject.open() as again:
        churn(again)
        assert again.pins() == [pin] and subject.rows(again, pin.pin_id) == BEFORE
        assert subject.fs.list("pins") == [pin.pin_id] != [other.pin_id]


def flip(subject: InDirectory, path: str, at: int) -> None:
    """Damage one byte of a file, not of others that share its bytes."""
    file = subject.fs.open(path)
    content = bytearray(file.pread(0, file.size))
    content[at] ^= 1
    subject.fs.unlink(path)
    new = subject.fs.create(path)
    new.append(bytes(content))
    new.sync()
    new.close()


def test_a_damaged_note_of_a_pin_is_told_and_nothing_is_deleted() -> None:
    subject = InDirectory()
    with made(subject.open()) as store:
        pin = store.create_pin(CreatePin(name="a", table="t"))
    path = f"pins/{pin.pin_id}/pin"
    flip(subject, path, 40)
    assert [each for each in verify_store(subject.fs).problems if path in each]
    with subject.open() as store:
        assert store.pins() == [] and path in str(store.damage.found())
        assert subject.fs.exists(f"pins/{pin.pin_id}/tablets")


def test_a_pin_whose_note_is_damaged_can_be_dropped_by_its_id() -> None:
    subject = InDirectory()
    with made(subject.open()) as store:
        pin, other = (store.create_pin(CreatePin(name=name, table="t")) for name in "ab")
    flip(subject, f"pins/{pin.pin_id}/pin", 40)
    with subject.open() as store:
        assert f"`nyala pin drop {pin.pin_id}`" in store.damage.found()[0].why
        for wrong in ("a", "", "..", f"{other.pin_id}/tablets"):
            with pytest.raises(NotFoundError):
                store.drop_pin(wrong)
        Database(store).drop_pin(pin.pin_id)
        with pytest.raises(NotFoundError):
            store.drop_pin(pin.pin_id)
        assert subject.fs.list("pins") == [other.pin_id]
    with subject.open() as store:
        assert store.pins() == [other] and not store.damage.found()


def is_broken(monkeypatch: pytest.MonkeyPatch, subject: InDirectory, path: str) -> None:
    read = pin_note.read

    def broken(fs: FileSystem, asked: str) -> bytes:
        if asked == path:
            raise OSError(errno.EIO, "Input/output error", path)
        return read(fs, asked)

    monkeypatch.setattr(pin_note, "read", broken)


def is_of_a_later_version(monkeypatch: pytest.MonkeyPatch, subject: InDirectory, path: str) -> None:
    monkeypatch.setattr(pin_note, "_VERSION", 0)


def is_damaged(monkeypatch: pytest.MonkeyPatch, subject: InDirectory, path: str) -> None:
    flip(subject, path, 40)


@pytest.mark.parametrize("fault", [is_broken, is_of_a_later_version, is_damaged])
def test_a_store_opens_though_the_note_of_a_pin_cannot_be_read(
    fault: Callable[[pytest.MonkeyPatch, InDirectory, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = InDirectory()
    with made(subject.open()) as store:
        pin = store.create_pin(CreatePin(name="a", table="t"))
    path = f"pins/{pin.pin_id}/pin"
    with monkeypatch.context() as patch:
        fault(patch, subject, path)
        with subject.open() as store:
            assert store.pins() == [] and [each.path for each in store.damage.found()] == [path]
            churn(store)
    if fault is not is_damaged:
        with subject.open() as store:
            assert store.pins() == [pin] and subject.rows(store, pin.pin_id) == BEFORE


def test_the_files_of_a_kept_pin_are_verified() -> None:
    subject = InDirectory()
    with made(subject.open()) as store:
        pin = store.create_pin(CreatePin(name="a", table="t"))
        churn(store)
    report = verify_store(subject.fs)
    assert report.is_sound and not report.notes, (report.problems, report.notes)
    (home,) = subject.fs.list(f"pins/{pin.pin_id}/tablets")
    name = next(each for each in subject.fs.list(f"pins/{pin.pin_id}/tablets/{home}") if each.endswith(".base"))
    flip(subject, f"pins/{pin.pin_id}/tablets/{home}/{name}", 100)
    (problem,) = verify_store(subject.fs).problems
    assert problem.startswith(f"pins/{pin.pin_id}: CORRUPTION") and name in problem


@dataclass(frozen=True)
class Told:
    """The ids of the pins that a workload made, and of those that it dropped."""

    pins: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])


def work(machine: Machine, told: Told) -> None:
    with made(Store.open(machine.home(), OPTIONS)) as store:
        told.pins.append(store.create_pin(CreatePin(name="one", table="t")).pin_id)
        churn(store)
    with Store.open(machine.home(), OPTIONS) as store:
        told.pins.append(store.create_pin(CreatePin(name="two")).pin_id)
        told.dropped.append(told.pins[0])
        store.drop_pin(told.pins[0])
        churn(store)


def check(machine: Machine, told: Told) -> None:
    """What was answered and not dropped reads as before, with the next holder too; nothing named is missing."""
    subject = InBucket(machine)
    with subject.open() as store:
        if "t" in store.tables():
            churn(store)
        for number, pin_id in enumerate(told.pins):
            if pin_id not in told.dropped:
                found = subject.rows(store, pin_id)
                assert found == BEFORE if number == 0 else found[0] == 3 and len(found) > 70
    check_sound(machine)


CALLS = FailingCalls(Told, work, check, step=dose(61, 29))


@pytest.mark.parametrize("fault", FAULTS)
def test_any_one_call_may_fail(fault: Fault) -> None:
    CALLS.one_fails(fault)


def test_any_call_may_be_the_last() -> None:
    CALLS.one_is_the_last()


def fail_sync(fs: FaultyFileSystem, sticky: bool = False) -> None:
    """Let the next sync of a pin's directory fail, and with ``sticky`` all later ones."""
    fs.rules.append(FaultRule(calls=frozenset({"sync_directory"}), path="pins/*", sticky=sticky))
    fs._matched.append(0)


def test_a_drop_that_failed_can_be_repeated() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    subject = InDirectory(fs)
    with subject.open() as store:
        made(store)
        pin = store.create_pin(CreatePin(name="monday", table="t"))
        fail_sync(fs)
        with pytest.raises(UnavailableError, match="could not be dropped"):
            store.drop_pin(pin.pin_id)
        assert [each.name for each in store.pins()] == ["monday"]
        store.drop_pin(pin.pin_id)
        assert not store.pins() and not disk.list("pins")
        again = store.create_pin(CreatePin(name="monday", table="t"))
        assert subject.rows(store, again.pin_id) == BEFORE


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "for good"])
def test_a_pin_that_was_not_made_is_whole_or_gone_after_a_power_failure(
    monkeypatch: pytest.MonkeyPatch, is_lasting: bool
) -> None:
    """The sync that makes the note last fails, and then the power: the note may be on the disk nevertheless."""
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    with made(InDirectory(fs).open()) as store:
        store.create_pin(CreatePin(name="first", table="t"))
        at(monkeypatch, (pin_note, "write"), False, lambda: fail_sync(fs, is_lasting))
        with pytest.raises(UnavailableError, match="could not be made"):
            store.create_pin(CreatePin(name="monday", table="t"))
        assert [pin.name for pin in store.pins()] == ["first"]
        images = [disk.crash_image(Random(seed)) for seed in range(100)]
    doubtful = [image for image in images if len(pin_note.kept(image)) > 1]
    assert is_lasting or not doubtful, "its end became durable before its files went"
    for image in [images[0], *doubtful[:4]]:
        after = InDirectory(image)
        with after.open() as store:
            assert all(after.rows(store, pin.pin_id) == BEFORE for pin in store.pins())
            assert not store.health().damaged

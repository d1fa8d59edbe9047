"""A store in a bucket: what is acknowledged is there for the next holder, and the former one says no more."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket import MemoryBucket, MemoryObjects, Patience, PatientBucket
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.mvcc.clock import elapsed_seconds
from nyala.engine.recovery.sweep_bucket import leftovers
from nyala.engine.store import Store
from nyala.engine.wal.silence import OnSilence
from nyala.engine.wal.slots import check_slots
from nyala.engine.wal.slots.slot_sink import SlotRequest
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StoreError, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.checkpoint import MakeCheckpoint
from tests.doubles.clock import ManualClock
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SECOND = 1_000_000


def opened(machine: Machine, **options: Any) -> Store:
    return Store.open(machine.home(), OPTIONS.model_copy(update=options))


def made(machine: Machine) -> Store:
    store = opened(machine)
    Database(store).create_table("t", SCHEMA, ["id"])
    return store


def put(store: Store, *ids: int, v: str = "x") -> None:
    Database(store).table("t").upsert([{"id": each, "v": v} for each in ids])


def rows(store: Store, **scan: Any) -> dict[int, str]:
    return {row["id"]: row["v"] for row in Database(store).table("t").scan(**scan).to_arrow().to_pylist()}


def dead(machine: Machine, store: Store) -> None:
    """Let a machine die: nothing of it reaches the bucket any more."""
    machine.objects.is_away = True
    with suppress(StoreError):
        store.close()


def beat(store: Store) -> None:
    log: Any = store._wal
    log._inner.wait_for(log._sink.ask(SlotRequest()), OnSilence.LASTS)


def deleted(machine: Machine, since: int) -> list[str]:
    """Return the names in the deletions of files of tablets since a number of effects."""
    return [name for verb, name in machine.objects.effects[since:] if verb == "delete" and "/tablets/" in name]


def test_rows_survive_the_loss_of_the_machine() -> None:
    first = Machine()
    store = made(first)
    put(store, *range(100))
    store.maintain("t", "flush")
    put(store, 7, v="in the log")
    dead(first, store)
    with opened(first.other()) as again:
        assert rows(again) == dict.fromkeys(range(100), "x") | {7: "in the log"}
        put(again, 8, v="later")
        again.maintain("t", "flush")
    with opened(first.other()) as again:
        assert rows(again)[8] == "later"
        assert Database(again).table("t").get(7) == {"id": 7, "v": "in the log"}


def test_a_store_that_was_closed_is_opened_at_once() -> None:
    machine = Machine()
    made(machine).close()
    before = machine.boot.now()
    opened(machine).close()
    assert machine.boot.now() - before < OPTIONS.lease_seconds


def test_an_opening_asks_for_each_thing_once_and_sees_later_what_others_put() -> None:
    first = Machine()
    with made(first) as store:
        put(store, 1)
        store.maintain("t", "flush")
    again = first.other()
    with opened(again) as store:
        calls = again.objects.calls
        assert [each.name for each in calls if each.verb == "size"] == []
        listed = [each.name for each in calls if each.verb == "list"]
        assert sorted(listed) == ["stores/a/", "stores/a/log/", "stores/a/log/", "stores/a/manifests/"]
        again.objects.put("stores/a/imports/1/x", b"")
        assert store.directory.list("imports/1") == ["x"]


def test_nobody_opens_a_store_whose_holder_lives() -> None:
    first = Machine()
    first.boot.pause = lambda seconds: None  # nobody leaps over the beats
    with opened(first, lease_seconds=1) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        second = first.other()
        second.boot.pause = lambda seconds: put(store, 1)
        with pytest.raises(UnavailableError, match="another process has the store"):
            options = OPTIONS.model_copy(update={"lease_seconds": 1})
            Store.open(second.home(), options)
        assert rows(store) == {1: "x"}


def test_a_holder_that_was_fenced_neither_writes_nor_reads_now() -> None:
    first = Machine()
    old = made(first)
    put(old, 1)
    moment = old.now()
    put(old, 2)
    first.objects.is_away = True
    with opened(first.other()) as new:
        put(new, 3)
        first.objects.is_away = False
        with pytest.raises(UnavailableError, match="another process has the store"):
            put(old, 4)
        for read in (lambda: rows(old), lambda: old.last_change("t"), old.now, old.grants, old.grants_version):
            with pytest.raises(UnavailableError, match="another process has the store"):
                read()
        assert rows(old, as_of=moment) == {1: "x"}, "the past does not change"
        old.close()
        assert sorted(rows(new)) == [1, 2, 3]
        put(new, 5)
    with opened(first.other()) as again:
        assert sorted(rows(again)) == [1, 2, 3, 5]


def test_a_former_holder_reads_the_past_until_the_next_one_replaces_files() -> None:
    first = Machine()
    old = opened(first, bucket_cache_bytes=0, page_cache_bytes=0)
    Database(old).create_table("t", SCHEMA, ["id"])
    put(old, *range(100))
    old.maintain("t", "flush")
    moment = old.now()
    put(old, 1, v="later")
    first.boot.pass_by(OPTIONS.lease_seconds)
    with opened(first.other()) as new:
        assert rows(old, as_of=moment) == dict.fromkeys(range(100), "x")
        put(new, *range(0, 100, 2), v="new")
        new.maintain("t", "flush_deltas")
        new.maintain("t", "compact")
        new.run_maintenance_once()  # takes note of what was replaced
        for _ in range(3):
            put(new, 2)
        while new.run_maintenance_once():
            pass
        assert not any(name.endswith(f"/{(1 << 40) + 1}.base") for name, _ in first.bucket.list("stores/a/tablets/"))
        with pytest.raises(UnavailableError, match="another process has the store"):
            rows(old, as_of=moment)
        assert not old.damage.found(), "nothing is damaged"
        with pytest.raises(UnavailableError, match="another process has the store"):
            put(old, 3)
        old.close()


def test_who_loses_the_store_while_opening_it_reports_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process claims the store and stands still; a third one replaces the manifest that the second names."""
    first, others = Machine(), []
    with made(first) as old:
        put(old, 1)
        old.maintain("t", "flush")
    second = first.other()
    get = second.objects.get

    def slow_get(name: str) -> bytes:
        if "/manifests/" in name and not others:
            second.objects.is_away = True
            others.append(opened(first.other()))
            put(others[0], 2)
            others[0].maintain("t", "flush")
            while others[0].run_maintenance_once():
                beat(others[0])
            others[0].close()
            second.objects.is_away = False
        return get(name)

    monkeypatch.setattr(second.objects, "get", slow_get)
    with pytest.raises(UnavailableError, match="another process has the store"):
        opened(second)
    with opened(first.other()) as again:
        assert rows(again) == {1: "x", 2: "x"}


def test_a_silent_holder_does_not_answer_about_now() -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        machine.objects.is_away = True
        machine.boot.pass_by(OPTIONS.lease_seconds)
        with pytest.raises(UnavailableError, match="the log has not answered"):
            rows(store)
        machine.objects.is_away = False
        put(store, 2)
        assert sorted(rows(store)) == [1, 2], "nobody took it over meanwhile"


def test_a_writer_waits_no_longer_than_its_own_patience() -> None:
    machine = Machine()
    machine.bucket = PatientBucket(machine.objects, Patience(20.0, 0.001, 0.01))
    with made(machine) as store:
        machine.objects.is_away = True
        began = elapsed_seconds()
        with pytest.raises(UnavailableError, match="not known yet"):
            put(store, 1)
        assert elapsed_seconds() - began < 10, "that of the bucket is another"
        machine.objects.is_away = False


def test_a_snapshot_stays_what_it_is_though_the_next_clock_is_behind() -> None:
    first = Machine()
    late = ManualClock(1_700_000_000 * SECOND)
    old = Store.open(first.home(), OPTIONS, late)
    Database(old).create_table("t", SCHEMA, ["id"])
    put(old, 1)
    moment = old.now()
    first.objects.is_away = True
    early = ManualClock(1_700_000_000 * SECOND - 3_600 * SECOND)
    with Store.open(first.other().home(), OPTIONS, early) as new:
        put(new, 2)
        assert rows(new, as_of=moment) == {1: "x"}
        assert sorted(rows(new)) == [1, 2]
    with suppress(StoreError):
        old.close()


def test_numbers_of_files_say_the_reign() -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        store.maintain("t", "flush")
    with opened(machine) as store:
        put(store, 2)
        store.maintain("t", "flush")
    names = [name for name, _ in machine.bucket.list("stores/a/tablets/") if name.endswith(".base")]
    assert sorted(int(name.rsplit("/", 1)[1].removesuffix(".base")) >> 40 for name in names) == [1, 2]


def test_what_nobody_names_goes_with_the_next_holder() -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        store.maintain("t", "flush")
    tablet = next(name for name, _ in machine.bucket.list("stores/a/tablets/")).rsplit("/", 1)[0]
    left = [f"{tablet}/{(1 << 40) + 99}.base", "stores/a/manifests/1-99"]
    for name in left:
        machine.bucket.put(name, b"left")
    with opened(machine) as store:
        put(store, 2)
        store.maintain("t", "flush")
        assert rows(store) == {1: "x", 2: "x"}
    assert not {name for name, _ in machine.bucket.list("stores/a/")}.intersection(left)


def test_no_file_goes_before_the_slot_that_drops_it() -> None:
    machine = Machine()
    with made(machine) as store:
        for each in range(4):
            put(store, each)
            store.maintain("t", "flush")
        before = len(machine.objects.effects)
        store.maintain("t", "compact")
        store.run_maintenance_once()
        assert not deleted(machine, before), "no slot has landed since"
        for _ in range(3):
            put(store, 1)
        while store.run_maintenance_once():
            pass
    effects = machine.objects.effects[before:]
    gone = effects.index(("delete", deleted(machine, before)[0]))
    names = [name for _, name in effects[:gone]]
    manifest = max(place for place, name in enumerate(names) if "/manifests/" in name)
    assert sum("/log/" in name for name in names[manifest:]) >= 3, "its own slot, and one that was sent later"


def test_the_files_of_a_flush_are_put_at_once() -> None:
    class Meeting(MemoryObjects):
        base_and_undo = threading.Barrier(2)

        def put(self, name: str, content: Any) -> None:
            if "/tablets/" in name:
                self.base_and_undo.wait(10)
            super().put(name, content)

    home = BucketHome(MemoryBucket(Meeting()), "a", "memory://test", MemoryFileSystem(), probes=False)
    with Store.open(home, OPTIONS) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        put(store, *range(100))
        store.maintain("t", "flush")
        assert rows(store) == dict.fromkeys(range(100), "x")


def test_a_flush_deletes_nothing_while_others_wait_for_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with made(machine) as store:
        place: Any = store._environment.manifest._place
        install, during = place.install, []

        def noticed(log_needed_from: int) -> None:
            before = len(machine.objects.calls)
            install(log_needed_from)
            during.extend(call.verb for call in machine.objects.calls[before:])

        monkeypatch.setattr(place, "install", noticed)
        for each in range(3):
            put(store, each)
            store.maintain("t", "flush")
        store.maintain("t", "compact")
        assert "put_if_absent" in during and "delete" not in during
        assert len(machine.bucket.list("stores/a/manifests/")) == 1
    named = {name for name, _ in machine.bucket.list("stores/a/tablets/")}
    assert len(named) < 4 and not leftovers(machine.other().home()), "a clean stop leaves nothing"
    with opened(machine.other()) as again:
        assert rows(again) == {0: "x", 1: "x", 2: "x"}
        assert named == {name for name, _ in machine.bucket.list("stores/a/tablets/")}


def test_without_maintenance_a_flush_by_hand_frees_the_log() -> None:
    with made(machine := Machine()) as store:
        put(store, 1)
        for _ in range(600):
            beat(store)
        assert len(machine.bucket.list("stores/a/log/")) > 600
        store.maintain("t", "flush")
        assert len(machine.bucket.list("stores/a/log/")) < 10


def test_a_manifest_that_cannot_be_put_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        place: Any = store._environment.manifest._place

        def unanswered(document: bytes) -> None:
            raise UnavailableError("the bucket does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(place, "write", unanswered)
            with pytest.raises(UnavailableError, match="the bucket does not answer"):
                store.maintain("t", "flush")
        tablet = f"tablets/{store._catalog.table('t').tablets[0].tablet_id}"
        uploaded = {f"stores/a/{tablet}/{(1 << 40) + each}" for each in (1, 2)}
        assert store._environment.fs.list(tablet) == [], "what was uploaded goes again"
        put(store, 2)
        store.maintain("t", "flush")
        assert rows(store) == {1: "x", 2: "x"}
    assert not uploaded.intersection(name.rsplit(".", 1)[0] for name, _ in machine.bucket.list("stores/a/tablets/"))
    with opened(machine.other()) as again:
        assert rows(again) == {1: "x", 2: "x"}


def test_a_flush_that_a_bucket_does_not_answer_blames_no_disk() -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        machine.objects.is_away = True
        with pytest.raises(UnavailableError, match="the bucket") as raised:
            store.maintain("t", "flush")
        assert "disk" not in raised.value.message
        machine.objects.is_away = False
        store.maintain("t", "flush")


def test_an_idle_store_keeps_few_slots() -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        store.maintain("t", "flush")
        for _ in range(600):
            beat(store)
        assert len(machine.bucket.list("stores/a/log/")) > 600
        while store.run_maintenance_once():
            pass
        assert len(machine.bucket.list("stores/a/log/")) < 10
        put(store, 2)
    with opened(machine.other()) as again:
        assert rows(again) == {1: "x", 2: "x"}


@pytest.mark.parametrize("flushed", ["rows", "changes"])
def test_one_old_row_does_not_keep_every_beat(flushed: str) -> None:
    machine = Machine()
    with made(machine) as store:
        put(store, 1)
        if flushed == "changes":
            store.maintain("t", "flush")
            put(store, 1, v="changed")
        log: Any = store._wal
        log._options = replace(log._options, free_slots=16, flush_slots=64)
        for _ in range(50):
            beat(store)
        assert store.run_maintenance_once() is None, "a few do no harm"
        for _ in range(20):
            beat(store)
        while store.run_maintenance_once():
            pass
        assert len(machine.bucket.list("stores/a/log/")) < 10
        put(store, 2)
        assert store.run_maintenance_once() is None, "what is new in memory keeps few slots"
        expected = rows(store)
    with opened(machine.other()) as again:
        assert rows(again) == expected


def test_a_transaction_outlives_its_holder() -> None:
    first = Machine()
    store = made(first)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "v": "staged"}], SCHEMA)
    store.stage(WriteCommand(table="t", stage=Stage(transaction="x", part="1")), [StagedBatch(batch, Operation.UPSERT)])
    dead(first, store)
    with opened(first.other()) as again:
        again.commit_transaction(TransactionCommit(transaction="x", parts=["1"]))
        assert rows(again) == {1: "staged"}


def test_what_needs_a_directory_is_refused() -> None:
    with made(Machine()) as store, pytest.raises(InvalidArgumentError, match="not possible for a store in a bucket"):
        store.checkpoint(MakeCheckpoint(directory="/copy"))
    with pytest.raises(InvalidArgumentError, match="cannot be encrypted"):
        opened(Machine(), key_command="echo")
    with pytest.raises(InvalidArgumentError, match="cannot name a store"):
        BucketHome(Machine().bucket, "a/b", "memory://x")


def test_a_new_store_in_a_bucket_is_not_left_plain_where_the_environment_names_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    with monkeypatch.context() as named:
        named.setenv("NYALA_KEY_FILE", "/etc/nyala/key")
        with pytest.raises(InvalidArgumentError, match="cannot be encrypted"):
            opened(machine)
    opened(machine).close()
    monkeypatch.setenv("NYALA_KEY_FILE", "/etc/nyala/key")
    opened(machine.other()).close()


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    home = BucketHome(Machine().bucket, "a", "memory://test", probes=False)
    with pytest.raises(
        InvalidArgumentError, match=r"other users can write to .*/shared/.*; set bucket_cache to a local"
    ):
        Store.open(home, OPTIONS)
    with Store.open(home, OPTIONS.model_copy(update={"bucket_cache": str(tmp_path / "mine")})) as store:
        assert store.tables() == []
    (tmp_path / "shared").chmod(0o700)
    with Store.open(home, OPTIONS):
        assert len(list((tmp_path / "shared/nyala/buckets").iterdir())) == 1


@pytest.mark.parametrize("damage", ["gone", "other"])
def test_a_manifest_that_is_not_the_one_named_is_an_error(damage: str) -> None:
    machine = Machine()
    made(machine).close()
    ((name, _),) = machine.bucket.list("stores/a/manifests/")
    if damage == "gone":
        machine.bucket.delete([name])
    else:
        machine.bucket.put(name, b"other bytes")
    with pytest.raises(CorruptionError, match="manifests/1-"):
        opened(machine)


def test_the_log_is_sound_after_all_that() -> None:
    machine = Machine()
    for each in range(3):
        with made(machine) if not each else opened(machine) as store:
            put(store, each)
            store.maintain("t", "flush")
    report = check_slots(machine.home().slots)
    assert not report.problems and len(report.claims) == 3

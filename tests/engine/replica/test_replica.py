"""A replica beside a holder that deletes what it needs, and a log that leaps."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.mvcc.clock import SystemClock
from nyala.engine.replica import slots as replica_module
from nyala.engine.replica.slots import SlotPoint, SlotReplica
from nyala.engine.replica.source import OtherHistoryError
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.claim import Claimant
from nyala.engine.wal.slots.options import SlotOptions
from nyala.engine.wal.slots.slot import SlotKind
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, SnapshotTooOldError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from tests.doubles.clock import ManualClock
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import SCHEMA, SMALL, Follower, Holder, rows


@pytest.fixture
def holder() -> Any:
    holder = Holder.of(Machine())
    holder.database.create_table("t", SCHEMA, ["id"])
    yield holder
    holder.store.close()


@pytest.fixture
def follower(holder: Holder) -> Any:
    follower = Follower(holder.machine)
    follower.catch_up()
    yield follower
    follower.replica.close()


def put(holder: Holder, *ids: int, v: int = 1) -> None:
    holder.database.table("t").upsert([{"id": each, "v": v} for each in ids])


def ids(follower: Follower, as_of: int | None = None) -> list[int]:
    spec = ScanSpec(table="t", columns=["id"], as_of=follower.replica.safe if as_of is None else as_of)
    return [row["id"] for row in rows(follower.replica.scan(spec))]


def values(follower: Follower, as_of: int | None = None) -> list[int]:
    spec = ScanSpec(table="t", as_of=follower.replica.safe if as_of is None else as_of)
    return [row["v"] for row in rows(follower.replica.scan(spec))]


def test_it_shows_nothing_before_it_has_opened_the_store(holder: Holder) -> None:
    follower = Follower(holder.machine)
    with pytest.raises(UnavailableError, match="has not opened the store yet"):
        follower.replica.tables()
    follower.catch_up()
    assert follower.replica.tables() == ["t"]
    with pytest.raises(NotFoundError, match="the tables are: t"):
        follower.replica.describe_table("u")


def test_a_clock_that_is_behind_makes_no_acknowledged_write_a_future_one(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(SystemClock().physical_microseconds() - 3_600_000_000)
    follower = Follower(holder.machine, clock=clock)
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 0.3)
    follower.catch_up()
    put(holder, 1)
    moment = holder.store.now()
    with pytest.raises(UnavailableError, match="later than what this replica has read of the log"):
        ids(follower, moment)
    holder.store.maintain("t", "flush")  # a later slot
    reading = ThreadPoolExecutor(1).submit(ids, follower, moment)
    follower.catch_up()
    assert reading.result(60) == [1]
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 1.0)
    far = ThreadPoolExecutor(1).submit(ids, follower, moment + (10_000_000_000 << 12))
    while not far.done():
        follower.catch_up()
    with pytest.raises(InvalidArgumentError, match="in the future"):
        far.result()


def test_a_moment_just_after_the_end_of_the_log_is_no_future_one_to_a_clock_that_is_behind(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that has died since named it, and wrote no slot after it."""
    clock = ManualClock(SystemClock().physical_microseconds() - 3_600_000_000)
    follower = Follower(holder.machine, clock=clock)
    put(holder, 1)
    follower.catch_up()
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 0.5)
    reading = ThreadPoolExecutor(1).submit(ids, follower, holder.store.now() + (2_000_000 << 12))
    while not reading.done():
        follower.catch_up()
    with pytest.raises(UnavailableError, match="later than what this replica has read of the log"):
        reading.result()


def test_a_replica_that_is_cut_off_from_the_log_calls_no_moment_a_future_one(
    holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the end of the log as of its last look, however often it is brought up to that."""
    clock = ManualClock(SystemClock().physical_microseconds() - 3_600_000_000)
    follower = Follower(holder.machine, clock=clock)
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 0.3)
    follower.catch_up()
    put(holder, 1)
    reading = ThreadPoolExecutor(1).submit(ids, follower, holder.store.now())
    while not reading.done():
        follower.step(0)
    with pytest.raises(UnavailableError, match="later than what this replica has read of the log"):
        reading.result()


def test_it_writes_nothing(holder: Holder, follower: Follower) -> None:
    put(holder, *range(20))
    holder.store.maintain("t", "flush")
    follower.catch_up()
    assert ids(follower) == list(range(20))
    objects: Any = follower.machine.objects
    assert {call.verb for call in objects.calls} <= {"get", "get_range", "get_ranges", "list", "size"}


def test_a_scan_whose_files_the_holder_deletes_is_repeated_at_the_same_snapshot(
    holder: Holder, follower: Follower
) -> None:
    random = Random(1)
    many = [{"id": each, "v": random.getrandbits(60)} for each in range(30_000)]  # too many to be fetched with the ends
    holder.database.table("t").insert(pa.Table.from_pylist(many, SCHEMA))
    holder.store.maintain("t", "flush")
    follower.catch_up()
    snapshot = follower.replica.safe
    put(holder, *range(0, 30_000, 2), v=7)
    for op in ("flush", "compact"):
        holder.store.maintain("t", op)
    put(holder, 50_000)
    put(holder, 50_001)
    holder.store.maintain("t", "flush")  # slots have landed since: what was replaced goes
    with pytest.raises(UnavailableError, match="has replaced this file"):
        values(follower, snapshot)
    follower.catch_up()
    assert values(follower, snapshot) == [row["v"] for row in many]
    assert values(follower)[:3] == [7, many[1]["v"], 7]


def test_a_snapshot_older_than_the_history_is_refused_as_such(holder: Holder, follower: Follower) -> None:
    put(holder, 1)
    follower.catch_up()
    with pytest.raises(SnapshotTooOldError):
        ids(follower, follower.replica.safe - (8 * 86_400 * 1_000_000 << 12))


def test_a_snapshot_that_is_not_reached_yet_is_waited_for_and_then_refused(
    holder: Holder, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(holder, 1)
    now = holder.store.now()
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 0.05)
    with pytest.raises(UnavailableError, match="later than what this replica has read of the log"):
        ids(follower, now)
    monkeypatch.setattr(follower.replica._mvcc, "_patience_seconds", 10.0)
    found: list[list[int]] = []
    reader = threading.Thread(target=lambda: found.append(ids(follower, now)))
    reader.start()
    holder.store.maintain("t", "flush")  # other tables take the place of those that the reader could find so far
    follower.catch_up()
    reader.join(10)
    assert found == [[1]]


def test_nobody_counts_on_a_slot_before_its_snapshot_is_there(
    holder: Holder, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, seen = follower.replica, []
    advance = replica._mvcc.advance
    monkeypatch.setattr(replica._mvcc, "advance", lambda *moments: (seen.append(replica.end), advance(*moments)))
    put(holder, 1)
    before = replica.end
    follower.catch_up()
    assert seen == [before] and replica.end > before


def test_slots_that_were_freed_before_they_were_seen_are_not_missed(holder: Holder, follower: Follower) -> None:
    before = follower.replica.end
    for each in range(5):
        put(holder, each)
        holder.store.maintain("t", "flush")
    assert before + 1 not in follower.slots.numbers()
    follower.catch_up()
    assert ids(follower) == list(range(5))


def test_a_void_claim_moves_no_snapshot(holder: Holder, follower: Follower) -> None:
    """Whoever claims the place of a slot that was written and freed has nothing: the commits of that slot are below
    the timestamp from which the claim says that it begins."""
    seen = follower.tail.seen
    put(holder, 1)
    holder.store.maintain("t", "flush")
    put(holder, 2)
    holder.store.maintain("t", "flush")
    assert seen is not None and seen.header.number + 1 not in follower.slots.numbers()
    machine = follower.machine
    claimant = Claimant(
        machine.home().slots, SlotOptions(), __import__("uuid").uuid4, machine.boot.now, machine.boot.pause
    )
    clock = CeilingClock(SystemClock(), seen.header.ceiling)
    assert claimant.claim(seen, clock, bytes(16), {}, machine.boot.now() + 5) is None, "it is void"
    safe = follower.replica.safe
    follower.step(1)
    assert follower.tail.seen is not None and follower.tail.seen.header.kind is SlotKind.CLAIM
    assert follower.replica.safe == safe
    follower.catch_up()
    assert ids(follower) == [1, 2]


def test_what_was_acknowledged_so_long_ago_is_visible(
    holder: Holder, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, boot = follower.replica, holder.machine.boot
    assert replica.snapshot(10.0) == replica.safe
    put(holder, 1)
    assert ids(follower, replica.snapshot(10.0)) == [], "it was acknowledged less than ten seconds ago"
    monkeypatch.setattr(replica_module, "PATIENCE_SECONDS", 0.05)
    with pytest.raises(UnavailableError, match="slots of the log behind"):
        replica.snapshot(0.0)
    boot.pass_by(5.0)
    assert replica.snapshot(10.0) == replica.safe
    boot.pass_by(6.0)
    with pytest.raises(UnavailableError):
        replica.snapshot(10.0)
    follower.catch_up()
    assert ids(follower, replica.snapshot(0.0)) == [1]


def test_an_idle_log_is_listed_once_in_so_many_seconds(holder: Holder, follower: Follower) -> None:
    replica, objects = follower.replica, follower.machine.objects
    replica.snapshot(0.0)
    calls: Any = objects
    before = len(calls.calls)
    for _ in range(20):
        replica.snapshot(10.0)
    assert len(calls.calls) == before
    holder.machine.boot.pass_by(11)
    for _ in range(20):
        replica.snapshot(10.0)
    assert [call.verb for call in calls.calls[before:]] == ["list"]


def test_a_bucket_that_is_away_makes_it_refuse_but_not_the_past(holder: Holder, follower: Follower) -> None:
    put(holder, 1)
    follower.catch_up()
    snapshot = follower.replica.snapshot(0.0)
    follower.machine.objects.is_away = True
    with pytest.raises(UnavailableError):
        follower.replica.snapshot(0.0)
    assert ids(follower, snapshot) == [1]


def test_a_damaged_file_takes_its_tablet_only(holder: Holder) -> None:
    holder.database.create_table("u", SCHEMA, ["id"]).upsert([{"id": 7}])
    put(holder, 1)
    holder.store.maintain("t", "flush")
    holder.store.maintain("u", "flush")
    objects: Any = holder.machine.shared
    tablet = holder.database.table("t").tablets()[0].tablet
    name = next(name for name, _ in holder.machine.bucket.list(f"stores/a/tablets/{tablet}/") if name.endswith(".base"))
    content = objects.get(name)
    objects.put(name, content[:-9] + bytes(9))
    follower = Follower(holder.machine)
    follower.catch_up()
    with pytest.raises(Exception, match="quarantine"):
        ids(follower)
    spec = ScanSpec(table="u", columns=["id"], as_of=follower.replica.safe)
    assert rows(follower.replica.scan(spec)) == [{"id": 7}]
    follower.replica.close()


def test_what_a_flush_does_not_touch_stays_open(holder: Holder, follower: Follower) -> None:
    holder.database.create_table("u", SCHEMA, ["id"]).upsert(pa.Table.from_pylist([{"id": 7}], SCHEMA))
    follower.catch_up()
    tablets = {name: follower.replica.table(name).tablets for name in ("t", "u")}
    put(holder, 1)
    holder.store.maintain("t", "flush")
    follower.catch_up()
    assert follower.replica.table("u").tablets == tablets["u"]
    assert follower.replica.table("t").tablets != tablets["t"]


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No memory goes but by reference counts."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def read_one(follower: Follower) -> None:
    rows(follower.replica.scan(ScanSpec(table="t", where="id = 3", as_of=follower.replica.safe)))
    follower.replica.plan(ScanSpec(table="t", as_of=follower.replica.safe, pin=True))


def rows_in_memory(follower: Follower) -> Any:
    return weakref.ref(follower.replica.table("t").tablets[0].version.active)


@pytest.mark.usefixtures("no_collection")
def test_rows_that_a_flush_wrote_leave_the_memory(holder: Holder, follower: Follower) -> None:
    put(holder, *range(20))
    follower.catch_up()
    read_one(follower)
    memrowset = rows_in_memory(follower)
    assert memrowset() is not None
    holder.store.maintain("t", "flush")
    follower.catch_up()
    assert memrowset() is None


def test_planned_scans_that_nobody_reads_are_forgotten(
    holder: Holder, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, ahead = follower.replica._planned, (SMALL.scan_lease_seconds + 1) * 1_000_000
    assert planned is not None and follower.tail.seen is not None
    follower.replica.plan(ScanSpec(table="t", as_of=follower.replica.safe, pin=True))
    follower.replica.advance_to(follower.tail.seen)
    assert len(planned) == 1
    now = planned._now
    monkeypatch.setattr(planned, "_now", lambda: now() + ahead)
    follower.replica.advance_to(follower.tail.seen)
    assert len(planned) == 0, "also while the log does not move"


@pytest.mark.usefixtures("no_collection")
def test_a_closed_replica_lets_its_memory_go(holder: Holder, follower: Follower) -> None:
    put(holder, *range(20))
    follower.catch_up()
    read_one(follower)
    memrowset, pages = rows_in_memory(follower), weakref.ref(follower.replica._open_files().page_cache)
    assert memrowset() is not None and pages() is not None
    follower.replica.close()
    assert memrowset() is None and pages() is None
    with pytest.raises(UnavailableError, match="no longer a replica"):
        follower.replica.tables()


def test_a_closed_replica_opens_nothing(holder: Holder) -> None:
    follower = Follower(holder.machine)
    follower.tail.seek()
    assert follower.tail.seen is not None
    follower.replica.close()
    with pytest.raises(UnavailableError, match="no longer a replica"):
        follower.replica.advance_to(follower.tail.seen)
    with pytest.raises(UnavailableError, match="no longer a replica"):
        follower.replica._make_files(SlotPoint(follower.tail.seen))
    assert follower.replica._files is None, "another file system may have its cache"


def test_a_replica_that_is_closed_applies_no_further_slot(
    holder: Holder, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in range(5):
        put(holder, each)
    read, asked = follower.slots.read, []

    def read_and_close(number: int) -> bytes | None:
        asked.append(number)
        follower.replica.close()
        return read(number)

    follower.tail.seek()
    assert follower.tail.seen is not None
    monkeypatch.setattr(follower.replica.source.slots, "read", read_and_close)
    with pytest.raises(UnavailableError, match="no longer a replica"):
        follower.replica.advance_to(follower.tail.seen)
    assert len(asked) == 1 and follower.replica._applied is None


def test_an_update_builds_no_index_of_all_keys(holder: Holder, follower: Follower) -> None:
    put(holder, *range(200))
    holder.store.maintain("t", "flush")
    put(holder, 5, v=7)
    follower.catch_up()
    assert follower.replica.table("t").tablets[0].key_lookup.key_count == 0
    assert values(follower)[4:7] == [1, 7, 1]


@pytest.mark.parametrize("more", [0, 2, 30])
def test_it_shows_nothing_of_a_history_after_which_the_bucket_was_put_back(more: int) -> None:
    """The log has as many slots since, or more."""
    machine = Machine()
    with Holder.of(machine).store as store:
        Holder(machine, store).database.create_table("t", SCHEMA, ["id"])
    objects: Any = machine.shared
    saved = dict(objects._contents)

    def written(v: int) -> Holder:
        found = Holder.of(machine.other())
        put(found, *range(50), v=v)
        found.store.maintain("t", "flush")
        return found

    gone = written(5)
    follower = Follower(machine)
    follower.catch_up()
    assert set(values(follower)) == {5}
    gone.machine.objects.is_away = True
    objects._contents = saved
    stays = written(7)
    for each in range(more):
        put(stays, 1000 + each, v=7)
    follower.tail.seek()
    assert follower.tail.seen is not None
    with pytest.raises(OtherHistoryError):
        follower.replica.advance_to(follower.tail.seen)
    follower.replica.close()
    again = Follower(machine)
    again.replica = SlotReplica(follower.machine.home(), again.slots, SMALL)
    again.catch_up()
    assert set(values(again)) == {7}
    for each in (again.replica, gone.store, stays.store):
        with suppress(UnavailableError):
            each.close()


def test_files_that_stay_when_the_bucket_is_put_back_are_not_taken_for_those_of_their_names() -> None:
    """It lists them before the holder makes others of the same names, and of other sizes."""
    machine = Machine()
    with Holder.of(machine).store as store:
        first = Holder(machine, store)
        first.database.create_table("t", SCHEMA, ["id"])
        put(first, *range(500), v=1)
        store.maintain("t", "flush")
    objects: Any = machine.shared
    saved = dict(objects._contents)
    Holder.of(machine.other()).store.close()
    gone = Holder.of(machine.other())
    put(gone, *range(500), v=5)
    gone.store.maintain("t", "flush_deltas")
    gone.machine.objects.is_away = True
    stay = {name: content for name, content in objects._contents.items() if "/tablets/" in name}
    objects._contents = {**stay, **saved}
    with Holder.of(machine.other()).store:
        follower = Follower(machine)
        follower.catch_up()
        assert set(values(follower)) == {1}
    stays = Holder.of(machine.other())
    put(stays, *range(20), v=7)
    stays.store.maintain("t", "flush_deltas")
    assert any(len(objects._contents[name]) != len(content) for name, content in stay.items()), "names repeat"
    follower.catch_up()
    assert values(follower) == [7] * 20 + [1] * 480
    for each in (follower.replica, gone.store, stays.store):
        with suppress(UnavailableError):
            each.close()

"""Work that was begun and not ended: limits by number and bytes, and the disk's reserve."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.mvcc.clock import SystemClock
from nyala.engine.offload.direct.directory_pins import DirectoryPins
from nyala.engine.options import MIB, StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError, StorageFullError, StoreError, UnavailableError
from nyala.schemas.protocol.request import Request, serving
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.bulk import ImportBegin
from nyala.schemas.store.compaction import CompactionBegin
from nyala.schemas.store.direct import PinSnapshot
from nyala.schemas.table.table import TableDefinition
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])


def rows(count: int, cell_bytes: int = 8) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(count), pa.int64()), pa.array([b"x" * cell_bytes] * count)], schema=SCHEMA)


def opened(fs: MemoryFileSystem | None = None, **options: int) -> Store:
    store = Store.open(fs or MemoryFileSystem(), StoreOptions(maintenance="off", **options))  # pyright: ignore[reportArgumentType]
    if "t" not in store.tables():
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
    return store


def stage(store: Store, transaction: str, batch: pa.RecordBatch, part: str = "p") -> None:
    command = WriteCommand(table="t", stage=Stage(transaction=transaction, part=part))
    store.stage(command, [StagedBatch(batch)])


def begin_import(store: Store, _: int) -> str:
    return store.import_begin(ImportBegin(table="t", ttl_seconds=100)).import_id


def begin_pin(store: Store, _: int) -> str:
    return store.pin_snapshot(PinSnapshot(table="t", ttl_seconds=100)).pin_id


def begin_transaction(store: Store, number: int) -> str:
    stage(store, str(number), rows(1))
    return str(number)


def begin_compaction(store: Store, number: int) -> str:
    """Of a table of its own: rowsets are handed out once."""
    name = f"c{number}"
    if name not in store.tables():
        store.create_table(TableDefinition.from_arrow(name, SCHEMA, ["k"]))
        for _ in range(3):
            store.write(WriteCommand(table=name), rows(100))
            store.maintain(name, "flush")
    plan = store.compaction_begin(CompactionBegin(table=name, ttl_seconds=100))
    assert plan.tasks
    return plan.compaction_id


KINDS: dict[str, tuple[Callable[[Store, int], str], Callable[[Store, str], object]]] = {
    "imports": (begin_import, lambda store, name: store.import_abort(name)),
    "pins": (begin_pin, lambda store, name: store.release_pin(name)),
    "compactions": (begin_compaction, lambda store, name: store.compaction_abort(name)),
    "transactions": (begin_transaction, lambda store, name: store.abort_transaction(name)),
}


@pytest.mark.parametrize(("begin", "end"), KINDS.values(), ids=KINDS)
def test_so_many_may_be_begun(begin: Callable[[Store, int], str], end: Callable[[Store, str], object]) -> None:
    with opened(unfinished_max=3) as store:
        names = [begin(store, number) for number in range(3)]
        with pytest.raises(UnavailableError, match="unfinished_max") as caught:
            begin(store, 3)
        assert caught.value.retry_after_seconds
        end(store, names[1])
        begin(store, 4)
        with pytest.raises(UnavailableError, match="unfinished_max"):
            begin(store, 5)


@pytest.mark.parametrize(("begin", "end"), KINDS.values(), ids=KINDS)
def test_another_machine_has_its_share(begin: Callable[[Store, int], str], end: Callable[[Store, str], object]) -> None:
    greedy, modest = (Request(peer, lambda: None) for peer in ("10.0.0.7", "10.0.0.8"))
    with opened(unfinished_max=4) as store:
        with serving(greedy):
            names = [begin(store, number) for number in range(2)]
            with pytest.raises(UnavailableError, match="peer_unfinished_share"):
                begin(store, 2)
        with serving(modest):
            begin(store, 3)
        end(store, names[0])
        with serving(greedy):
            begin(store, 4)
        begin(store, 5)  # in this process there are no shares


def of(user: str) -> serving:
    """Serve a request of a user."""
    return serving(Request("", lambda: None, user=user))


@pytest.mark.parametrize(("begin", "end"), KINDS.values(), ids=KINDS)
def test_a_user_leaves_to_another_as_much_as_he_has(
    begin: Callable[[Store, int], str], end: Callable[[Store, str], object]
) -> None:
    with opened(unfinished_max=6) as store:
        with of("greedy"):
            names = [begin(store, number) for number in range(3)]
            with pytest.raises(
                UnavailableError, match=r"of the user 'greedy' \(3; 3 of unfinished_max stay free for others"
            ) as caught:
                begin(store, 3)
            assert caught.value.retry_after_seconds
        with of("modest"):
            begin(store, 4)
        for name in names[:2]:
            end(store, name)
        with of("greedy"):
            begin(store, 5)
            with pytest.raises(UnavailableError, match="greedy"):
                begin(store, 6)
        with of("third"):
            begin(store, 7)
        for number in (8, 9):  # in this process there are no shares
            begin(store, number)
        with of("fourth"), pytest.raises(UnavailableError, match="too many unfinished"):
            begin(store, 10)


def test_staged_bytes_of_a_user_leave_as_many_to_another() -> None:
    fs = MemoryFileSystem()
    with opened(fs, staging_bytes=4 * MIB) as store:
        with of("greedy"):
            for name in "abc":
                stage(store, name, rows(1000, 600))
            with pytest.raises(UnavailableError, match=r"of the user 'greedy' and leave others .* of staging_bytes"):
                stage(store, "d", rows(1000, 600))
        with of("modest"):
            stage(store, "e", rows(1000, 600))
        store.abort_transaction("a")
        with of("greedy"):
            stage(store, "f", rows(1000, 300))
    with opened(fs, staging_bytes=4 * MIB) as store:
        with of("greedy"):  # nobody knows any more whose the others are
            stage(store, "g", rows(1000, 600))
            with pytest.raises(UnavailableError, match="greedy"):
                stage(store, "h", rows(1000, 600))
        for name in "bcef":
            store.abort_transaction(name)
        with of("greedy"):
            stage(store, "h", rows(1000, 600))


def test_what_has_expired_counts_for_no_user() -> None:
    class Clock(SystemClock):
        ahead = 0

        def physical_microseconds(self) -> int:
            return super().physical_microseconds() + self.ahead

        def steady_microseconds(self) -> int:
            return super().steady_microseconds() + self.ahead

    clock = Clock()
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", unfinished_max=2), clock)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
    with of("greedy"):
        for begin in (begin_pin, begin_import, begin_transaction):
            begin(store, 0)
            with pytest.raises(UnavailableError, match="greedy"):
                begin(store, 1)
        clock.ahead = 4_000_000_000
        store.run_maintenance_once()
        for begin in (begin_pin, begin_import, begin_transaction):
            begin(store, 2)
    store.close()


def test_staged_bytes_are_limited_and_come_back() -> None:
    fs = MemoryFileSystem()
    with opened(fs, staging_bytes=MIB) as store:
        stage(store, "a", rows(1000, 600))
        with pytest.raises(UnavailableError, match="staging_bytes"):
            stage(store, "b", rows(1000, 600))
        assert len(fs.list("staging")) == 1, "what was refused is gone"
    with opened(fs, staging_bytes=MIB) as store:
        with pytest.raises(UnavailableError, match="staging_bytes"):
            stage(store, "b", rows(1000, 600))
        store.commit_transaction(TransactionCommit(transaction="a", parts=["p"]))
        stage(store, "b", rows(1000, 600))
        with pytest.raises(UnavailableError, match="staging_bytes"):
            stage(store, "b", rows(1000, 600))  # the first is kept until the second is whole
        stage(store, "b", rows(600, 600), "q")
        store.abort_transaction("b")
        stage(store, "c", rows(1000, 900))


def rewritten(store: Store, number: int) -> None:
    """Replace all files of the table by others, of some 600 KB."""
    random = Random(number)
    cells = pa.array([random.randbytes(600) for _ in range(1000)])
    store.write(WriteCommand(table="t"), pa.record_batch([pa.array(range(1000), pa.int64()), cells], schema=SCHEMA))
    for op in ("flush", "flush_deltas", "major_compact", "compact"):
        store.maintain("t", op)


def pinned(store: Store) -> str:
    return store.pin_snapshot(PinSnapshot(table="t", ttl_seconds=7 * 86_400)).pin_id


def maintained(store: Store) -> None:
    while store.run_maintenance_once():
        pass


def kept_bytes(store: Store) -> int:
    assert isinstance(store._pins, DirectoryPins)
    return store._pins.kept_bytes


def test_the_oldest_pins_go_when_they_keep_too_much() -> None:
    with opened(pinned_bytes=2 * MIB) as store:
        names: list[str] = []
        for number in range(6):
            rewritten(store, number)
            maintained(store)
            assert kept_bytes(store) <= 2 * MIB
            names.append(pinned(store))
        for gone in names[:2]:
            with pytest.raises(NotFoundError):
                store.renew_pin(gone)
        store.renew_pin(names[-1])


def test_the_pins_go_of_the_user_whose_pins_keep_most() -> None:
    with opened(pinned_bytes=2 * MIB) as store:
        rewritten(store, 0)
        with of("modest"):
            modest = pinned(store)
        for number in range(1, 6):
            rewritten(store, number)
            maintained(store)
            assert kept_bytes(store) <= 2 * MIB
            with of("greedy"):
                pinned(store)
        store.renew_pin(modest)


def planned(store: Store) -> str:
    lease = store.plan(ScanSpec(table="t", pin=True)).lease
    assert lease is not None
    return lease


def test_the_planned_scans_go_of_the_user_with_most() -> None:
    with opened(scan_leases_count=4) as store:
        with of("modest"):
            modest = planned(store)
        with of("greedy"):
            names = [planned(store) for _ in range(10)]
        assert [*store._planned._scans] == [modest, *names[-3:]]
        with of("modest"):
            more = planned(store)
        assert [*store._planned._scans] == [modest, *names[-2:], more]


def test_the_planned_scans_go_of_the_user_whose_scans_keep_most() -> None:
    with opened(scan_lease_disk_bytes=2 * MIB) as store:
        rewritten(store, 0)
        with of("modest"):
            modest = planned(store)
        with of("greedy"):
            for number in range(1, 6):
                rewritten(store, number)
                store._planned._looked = 0
                planned(store)
        maintained(store)
        assert modest in store._planned._scans and len(store._planned) < 6
        assert store._planned.bytes_kept()[0] <= 2 * MIB


def test_a_pin_gives_way_where_the_disk_is_full() -> None:
    fs = MemoryFileSystem(64 * MIB)
    with opened(fs, disk_reserve_bytes=16 * MIB, wal_segment_bytes=4 * MIB) as store:
        rewritten(store, 0)
        name = pinned(store)
        fs.create("filler").append(bytes(fs.free_bytes("") - 15 * MIB))
        maintained(store)
        store.renew_pin(name)
        assert kept_bytes(store) == 0, "its files are the table's as well: to release it would free nothing"
        store.drop_table("t", 0)
        assert kept_bytes(store) > MIB // 2, "now the pin alone keeps them"
        maintained(store)
        assert not fs.exists(f"pins/{name}")


def test_leases_that_are_over_count_no_more() -> None:
    class Clock(SystemClock):
        ahead = 0

        def steady_microseconds(self) -> int:
            return super().steady_microseconds() + self.ahead

    clock = Clock()
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", unfinished_max=1), clock)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
    begin_pin(store, 0)
    begin_import(store, 0)
    with pytest.raises(UnavailableError):
        begin_pin(store, 1)
    clock.ahead = 101_000_000
    begin_pin(store, 2)
    begin_import(store, 2)
    store.close()


def test_a_time_of_day_that_jumps_ends_no_lease() -> None:
    clock = ManualClock()
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", unfinished_max=1), clock)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
    begin_pin(store, 0)
    begin_import(store, 0)
    clock.jump(3_600_000_000)
    assert not [each for part in (store._pins, store._imports) for each in part.removals()]
    with pytest.raises(UnavailableError):
        begin_import(store, 1)
    clock.jump(-7_200_000_000)
    clock.advance(101_000_000)
    assert len([each for part in (store._pins, store._imports) for each in part.removals()]) == 2
    store.close()


def test_the_disk_keeps_a_reserve_for_the_log_and_flushes() -> None:
    fs = MemoryFileSystem(64 * MIB)
    with opened(fs, disk_reserve_bytes=24 * MIB, wal_segment_bytes=4 * MIB) as store:
        with pytest.raises(StorageFullError, match="disk_reserve_bytes"):
            for number in range(100):
                stage(store, str(number), rows(1000, 1000))
        with pytest.raises(StorageFullError, match="disk_reserve_bytes"):
            store.stage(
                WriteCommand(table="t", stage=Stage(transaction="z", part="p")), [StagedBatch(rows(1000, 4000))] * 100
            )
        free = fs.free_bytes("")
        assert 20 * MIB <= free < 28 * MIB
        for _ in range(8):
            store.write(WriteCommand(table="t"), rows(1000, 500))
        store.maintain("t", "flush")
        with pytest.raises(StoreError):
            fill(fs, store)
        for begin in (begin_import, begin_pin):
            with pytest.raises(StorageFullError, match="disk_reserve_bytes"):
                begin(store, 1)


def fill(fs: MemoryFileSystem, store: Store) -> None:
    while True:
        stage(store, f"f{fs.free_bytes('')}", rows(100, 1000))

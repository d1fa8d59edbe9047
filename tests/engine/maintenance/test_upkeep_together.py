"""Flushes of many tablets: one commit of the manifest, and all of them or none when it fails."""

import errno
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.compaction import switch_over as swapping
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.maintenance.op import MaintenanceOp
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.options import MIB, StoreOptions
from nyala.engine.store import Store
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.engine.tablet.tablet import Tablet
from nyala.engine.transaction.stage import ExpiryOp
from nyala.schemas.errors import StorageFullError, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.partition import HashLevel
from nyala.schemas.table.table import TableDefinition
from tests.doubles.faulty import FaultRule, FaultyFileSystem

OPTIONS = StoreOptions(maintenance="off")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])
BUCKETS = 8


def opened(fs: FileSystem, options: StoreOptions = OPTIONS) -> Store:
    return Store.open(fs, options)


def filled(fs: FileSystem, options: StoreOptions = OPTIONS) -> Store:
    """A store with a table of several tablets, all of which have rows in memory."""
    store = opened(fs, options)
    levels = [HashLevel(hash=["id"], buckets=BUCKETS)]
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["id"], partition_by=levels))
    write(store, range(100), 0)
    return store


def write(store: Store, keys: Sequence[int], value: int) -> None:
    batch = pa.record_batch({"id": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.int64())})
    assert store.write(WriteCommand(table="t", op=Operation.UPSERT), batch).applied == len(keys)


def values(store: Store) -> dict[int, int]:
    rows = store.scan(ScanSpec(table="t")).to_reader().read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows
    return found


def tablets(store: Store) -> tuple[Tablet, ...]:
    return store._catalog.table("t").tablets


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was committed."""
    calls: list[Any] = []
    commit = ManifestFile.commit

    def counted(self: ManifestFile, edit: Any) -> Any:
        calls.append(edit)
        return commit(self, edit)

    monkeypatch.setattr(ManifestFile, "commit", counted)
    return calls


def test_all_tablets_are_flushed_by_one_commit(commits: list[Any]) -> None:
    fs = MemoryFileSystem()
    with filled(fs) as store:
        expected = dict.fromkeys(range(100), 0)
        for op, keys in (("flush", range(100)), ("flush_deltas", range(0, 100, 2)), ("flush_deltas", range(30))):
            if op == "flush_deltas":
                write(store, keys, len(commits))
                expected |= dict.fromkeys(keys, len(commits))
            commits.clear()
            assert store.maintain("t", op)["rows"] == len(keys)
            assert len(commits) == 1
            assert store.maintain("t", op)["rows"] == 0
            assert len(commits) == 1
            assert values(store) == expected
        assert all(len(tablet.version.disk) == 1 for tablet in tablets(store))
    with opened(fs) as store:
        assert values(store) == expected


def test_a_tablet_that_is_at_work_is_flushed_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(MemoryFileSystem()) as store:
        busy = tablets(store)[3]
        busy.maintenance_lock.acquire()
        put = swapping.SwitchOver.put

        def put_and_let_go(*args: Any) -> None:
            assert not len(busy.version.disk)
            put(*args)
            if busy.maintenance_lock.locked() and all(t.version.disk for t in tablets(store) if t is not busy):
                monkeypatch.undo()
                busy.maintenance_lock.release()

        monkeypatch.setattr(swapping.SwitchOver, "put", put_and_let_go)
        assert store.maintain("t", "flush")["rows"] == 100
        assert busy.version.disk


def test_a_full_disk_leaves_all_tablets_as_they_were_until_there_is_room() -> None:
    faulty = FaultyFileSystem(
        MemoryFileSystem(),
        [FaultRule(calls=frozenset({"create"}), path="*.base", error=errno.ENOSPC, nth=5)],
    )
    with filled(faulty) as store:
        with pytest.raises(StorageFullError):
            store.maintain("t", "flush")
        assert not any(tablet.version.disk for tablet in tablets(store))
        assert not [path for tablet in tablets(store) for path in faulty.list(f"tablets/{tablet.directory_id}")]
        write(store, range(90, 110), 7)
        assert store.maintain("t", "flush")["rows"] == 110
        assert values(store) == dict.fromkeys(range(90), 0) | dict.fromkeys(range(90, 110), 7)


def test_a_failure_between_two_tablets_halts_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest names the files of all of them, and only the first is in place."""
    fs = MemoryFileSystem()
    put, calls = swapping.SwitchOver.put, []

    def put_once(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise MemoryError
        put(*args)

    with filled(fs) as store:
        monkeypatch.setattr(swapping.SwitchOver, "put", put_once)
        with pytest.raises(MemoryError):
            store.maintain("t", "flush")
        with pytest.raises(UnavailableError, match="could not be installed"):
            write(store, [1], 1)
        assert values(store) == dict.fromkeys(range(100), 0)
    monkeypatch.undo()
    with opened(fs) as store:
        assert values(store) == dict.fromkeys(range(100), 0)
        assert all(len(tablet.version.disk) == 1 for tablet in tablets(store))


def test_the_largest_tablets_are_flushed_by_one_commit_while_writers_wait(commits: list[Any]) -> None:
    options = StoreOptions(maintenance="off", memory_bytes=32 * MIB, memory_soft_share=1e-6)
    with filled(MemoryFileSystem(), options) as store:
        write(store, range(100, 300_000), 0)  # so many that memory is measured
        assert store._gate.is_pressed()
        commits.clear()
        assert store.run_maintenance_once() == "flush of the largest tablets of t"
        assert len(commits) == 1
        assert all(len(tablet.version.disk) == 1 and not len(tablet.version.active) for tablet in tablets(store))
        for value in (2, 1):  # memory is measured before a batch
            write(store, range(0, 300_000, 2), value)
        assert "flush deltas of the largest tablets of t" in [store.run_maintenance_once() for _ in range(4)]
        assert not any(rowset.deltas.memory_bytes for tablet in tablets(store) for rowset in tablet.version.disk)
        assert values(store) == {key: 1 - key % 2 for key in range(300_000)}


def test_without_need_tablets_are_flushed_one_by_one(commits: list[Any]) -> None:
    with filled(MemoryFileSystem(), OPTIONS.model_copy(update={"flush_bytes": 1})) as store:
        commits.clear()
        assert "largest" not in (store.run_maintenance_once() or "")
        assert sum(bool(tablet.version.disk) for tablet in tablets(store)) == 1


def of_tablets(store: Store) -> list[MaintenanceOp]:
    """The work there is but for that of the store itself."""
    return [operation for operation in store._operations() if not isinstance(operation, ExpiryOp)]


def test_tablets_without_rows_have_no_work() -> None:
    options = OPTIONS.model_copy(update={"maintenance": "off"})
    with Store.open(MemoryFileSystem(), options) as store:
        levels = [HashLevel(hash=["id"], buckets=BUCKETS)]
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["id"], partition_by=levels))
        assert not of_tablets(store)
        write(store, [1], 1)
        assert len({operation.name.split()[-1] for operation in of_tablets(store)}) == 1


def test_who_is_interrupted_while_the_keys_of_one_follow_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    store = filled(disk)
    values(store)
    follow, followed = KeyLookup.follow, list[KeyLookup]()

    def interrupted(lookup: KeyLookup, *args: Any) -> None:
        followed.append(lookup)
        if len(followed) == 2:
            raise KeyboardInterrupt
        follow(lookup, *args)

    monkeypatch.setattr(KeyLookup, "follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.maintain("t", "flush")
    monkeypatch.undo()
    assert len(followed) == BUCKETS and store.health().status == "ok"
    write(store, range(50, 150), 1)
    store.maintain("t", "flush")
    expected = {**dict.fromkeys(range(50), 0), **dict.fromkeys(range(50, 150), 1)}
    assert values(store) == expected
    store.close()
    again = opened(disk)
    assert values(again) == expected
    again.close()

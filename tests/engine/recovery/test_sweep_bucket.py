"""The sweep of a bucket deletes what nobody can need, and nothing that the process which has the store still reads."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.recovery import bucket_state
from nyala.engine.recovery.sweep_bucket import Leftover, leftovers, sweep
from nyala.engine.store import Store
from nyala.engine.wal.slots.reader import newest_slot
from nyala.engine.wal.slots.slot import Slot
from nyala.engine.wal.slots.slot_store import SlotStore
from nyala.schemas.errors import CorruptionError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.bulk import ImportBegin
from nyala.schemas.store.compaction import CompactionBegin
from tests.doubles.clock import ManualClock
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWS = 300_000


def opened(machine: Machine, **options: Any) -> Store:
    return Store.open(machine.home(), OPTIONS.model_copy(update=options))


def put(store: Store, ids: np.ndarray) -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 60, len(ids))
    Database(store).table("t").upsert(pa.record_batch({"id": ids, "v": noise}))


def filled(machine: Machine) -> None:
    """Make a store with a base file and changes beside it, and stop it."""
    with opened(machine) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        put(store, np.arange(ROWS))
        store.maintain("t", "flush")
        put(store, np.arange(0, ROWS, 1000))
        store.maintain("t", "flush_deltas")


def files(machine: Machine) -> set[str]:
    return {name for name, _ in machine.bucket.list("stores/a/tablets/")}


def test_a_scan_of_the_holder_outlives_a_sweep_elsewhere() -> None:
    machine = Machine()
    filled(machine)
    with opened(machine.other(), bucket_cache_bytes=0, page_cache_bytes=0) as store:
        batches = iter(Database(store).table("t").scan().to_reader())
        count = next(batches).num_rows
        assert count < ROWS, "the scan is under way"
        store.maintain("t", "compact")
        left = sweep(machine.other().home())
        assert any(each.in_use for each in left), "the compaction dropped files that the scan reads"
        assert {each.name for each in left if each.in_use} <= files(machine)
        assert count + sum(batch.num_rows for batch in batches) == ROWS


def test_a_holder_that_goes_on_during_each_look_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow line its manifests and slots were gone three times in a row, before they were read."""
    machine = Machine()
    filled(machine)
    with opened(machine.other()) as store:
        ids = iter(range(ROWS, ROWS + 10))

        def late(slots: SlotStore) -> Slot | None:
            newest = newest_slot(slots)
            for number in islice(ids, 1):
                put(store, np.arange(number, number + 1))
                store.maintain("t", "flush")
            return newest

        monkeypatch.setattr(bucket_state, "newest_slot", late)
        state = bucket_state.state_of(machine.other().home())
        assert next(ids, None) is None
        assert state.written == store._environment.manifest.written


def test_what_a_holder_needs_as_before_is_damage_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    filled(machine)
    with opened(machine.other()) as store:
        for name, _ in list(machine.bucket.list("stores/a/manifests/")):
            machine.bucket.delete([name])

        def late(slots: SlotStore) -> Slot | None:
            newest = newest_slot(slots)
            put(store, np.arange(1))
            return newest

        monkeypatch.setattr(bucket_state, "newest_slot", late)
        with pytest.raises(CorruptionError, match="manifest"):
            bucket_state.state_of(machine.other().home())


def test_a_released_store_is_swept_whole() -> None:
    machine = Machine()
    filled(machine)
    with opened(machine) as store:
        put(store, np.arange(10))
        store.maintain("t", "flush")
    tablet = min(files(machine)).rsplit("/", 1)[0]
    left = {f"{tablet}/{(1 << 40) + 99}.base", "stores/a/manifests/1-99"}
    for name in left:
        machine.bucket.put(name, b"left")
    other = machine.other().home()
    assert {each.name for each in leftovers(other)} == left
    assert not any(each.in_use for each in sweep(other))
    assert not leftovers(other)
    with opened(machine) as store:
        assert Database(store).table("t").scan().to_arrow().num_rows == ROWS


def test_what_was_put_for_a_holder_after_it_ended_is_found() -> None:
    machine = Machine()
    filled(machine)
    mine = machine.other().home()
    with opened(machine) as store:
        late = put_outside(machine, store)
        assert not found_outside(sweep(mine)), "an import and a compaction are under way"
    with opened(machine) as store:
        current = put_outside(machine, store)
        for name in late:
            machine.bucket.put(name, b"late")
        assert found_outside(sweep(mine)) == dict.fromkeys(late, True), "of this holder's objects none"
        assert late | current <= {name for name, _ in machine.bucket.list("stores/a/")}, "none is deleted"
    stranger = "stores/a/imports/1-99/part"
    for name in (*current, *late, stranger):
        machine.bucket.put(name, b"late")
    assert found_outside(sweep(mine)) == dict.fromkeys((*current, *late, stranger), False)
    assert not leftovers(mine)


def found_outside(left: list[Leftover]) -> dict[str, bool]:
    """The objects that other processes have put, and whether they are in use."""
    return {each.name: each.in_use for each in left if each.name.startswith(("stores/a/imports/", "stores/a/compact"))}


def put_outside(machine: Machine, store: Store) -> set[str]:
    """Begin an import and a compaction, and put a file for each, as other processes do; return the objects' names."""
    imported = store.import_begin(ImportBegin(table="t"))
    put(store, np.arange(0, 100))
    store.maintain("t", "flush")
    compaction = store.compaction_begin(CompactionBegin(table="t", replace=True))
    (task,) = compaction.tasks
    names = {
        f"stores/a/{imported.staging}/1-{imported.first_file_id}-{'0' * 32}.base",
        f"stores/a/{task.directory}/a0/tablets/1/{task.first_file_id}.base",
    }
    for name in names:
        machine.bucket.put(name, b"rows")
    return names


def test_who_claims_a_released_store_during_a_sweep_keeps_its_import(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    filled(machine)
    home = machine.other().home()
    listing = home.bucket.list
    stores: list[Store] = []
    names: set[str] = set()

    def late(prefix: str) -> list[tuple[str, int]]:
        if prefix == home.prefix and not stores:
            stores.append(opened(machine))
            names.update(put_outside(machine, stores[0]))
        return listing(prefix)

    monkeypatch.setattr(home.bucket, "list", late)
    assert names.isdisjoint(each.name for each in sweep(home) if not each.in_use)
    assert names and names <= {name for name, _ in machine.bucket.list("stores/a/")}
    stores[0].close()


def test_staged_rows_are_swept_once_nobody_will_commit_them() -> None:
    machine, clock = Machine(), ManualClock()

    def stage(store: Store, transaction: str) -> None:
        command = WriteCommand(table="t", op=Operation.UPSERT, stage=Stage(transaction=transaction, part="p"))
        store.stage(command, [StagedBatch(pa.record_batch([[1], [2]], schema=SCHEMA))])

    filled(machine)
    with Store.open(machine.home(), OPTIONS, clock) as store:
        stage(store, "old")
        clock.advance(3_000 * 1_000_000)
        stage(store, "new")
        machine.bucket.put("stores/a/staging/5.stage", b"half")
        assert not sweep(machine.other().home()), "the process that has the store discards them"
    names = [name for name, _ in machine.bucket.list("stores/a/staging/")]
    assert len(names) == 3
    home = machine.other().home()
    for seconds, left in ((0, names[2:]), (85_000, [names[0], names[2]]), (3_000, names)):
        clock.advance(seconds * 1_000_000)
        found = leftovers(home, clock)
        assert [each.name for each in found] == left and not any(each.in_use for each in found)

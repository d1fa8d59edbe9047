"""Rowsets that are merged in the bucket of a store, past its server: no row changes, whatever call fails."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.offload.merge.run import merge_task
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError
from nyala.schemas.store.compaction import CompactionBegin, CompactionCommit, CompactionPlan, MergedTask
from tests.dose import dose
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.failing_calls import FAULTS, FailingCalls, check_sound

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWS = {each: each % 3 for each in range(60)} | dict.fromkeys(range(0, 60, 7), 9)


def opened(machine: Machine) -> Store:
    return Store.open(machine.home(), OPTIONS)


def filled(machine: Machine) -> Store:
    """Return a store whose table has three rowsets that overlap, and changes."""
    store = opened(machine)
    table = Database(store).create_table("t", SCHEMA, ["id"])
    for part in range(3):
        table.upsert([{"id": each, "v": part} for each in range(part, 60, 3)])
        table.maintain("flush")
    table.upsert([{"id": each, "v": 9} for each in range(0, 60, 7)])
    return store


def merged(machine: Machine, plan: CompactionPlan) -> list[MergedTask]:
    """Do the tasks on another machine, which has no faults."""
    assert plan.bucket is not None
    files = BucketFileSystem(machine.other().bucket, plan.bucket.prefix, MemoryFileSystem(), 1 << 20, "", own=())
    try:
        return [merge_task(plan, task, files, f"a{task.number}") for task in plan.tasks]
    finally:
        files.close()


def rows(store: Store) -> dict[int, int]:
    return {row["id"]: row["v"] for row in Database(store).table("t").scan().to_arrow().to_pylist()}


def work(machine: Machine, filled_up: list[bool]) -> None:
    """Have the rowsets of a table merged elsewhere, and stop."""
    with filled(machine) as store:
        filled_up.append(True)
        plan = store.compaction_begin(CompactionBegin(table="t"))
        for task in merged(machine, plan):
            assert store.compaction_commit(CompactionCommit(compaction_id=plan.compaction_id, task=task)).rowsets == 1
        with suppress(NotFoundError):
            store.compaction_abort(plan.compaction_id)
        assert rows(store) == ROWS


def check(machine: Machine, filled_up: list[bool]) -> None:
    with opened(machine.other()) as store:
        if filled_up:
            assert rows(store) == ROWS
    assert not machine.other().bucket.list("stores/a/compactions/")
    check_sound(machine)


CALLS = FailingCalls(list[bool], work, check, step=dose(29, 7))


@pytest.mark.parametrize("fault", FAULTS)
def test_any_one_call_may_fail(fault: Fault) -> None:
    CALLS.one_fails(fault)


def test_any_call_may_be_the_last() -> None:
    CALLS.one_is_the_last()


def test_a_task_of_a_former_holder_changes_nothing() -> None:
    machine = Machine()
    with filled(machine) as store:
        plan = store.compaction_begin(CompactionBegin(table="t"))
        (task,) = merged(machine, plan)
    with opened(machine.other()) as store:
        with pytest.raises(NotFoundError):
            store.compaction_commit(CompactionCommit(compaction_id=plan.compaction_id, task=task))
        store.maintain("t", "compact")
        assert rows(store) == ROWS
    opened(machine.other()).close()
    with pytest.raises(NotFoundError, match="not in this bucket"):
        merged(machine, plan)

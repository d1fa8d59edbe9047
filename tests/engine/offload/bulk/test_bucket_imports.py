"""Imports whose files are built in the bucket of a store: all of an import or nothing, whoever has the store then."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket.files import BucketFileSystem
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError
from nyala.schemas.store.bulk import ImportBegin, ImportCommit, ImportMode, ImportPlan
from tests.doubles.faulty_bucket import Fault
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.bulk.importing import built
from tests.engine.offload.failing_calls import FAULTS, FailingCalls, check_sound

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
FIRST = dict.fromkeys(range(50), 1)
BOTH = FIRST | dict.fromkeys(range(40, 90), 2)


def opened(machine: Machine) -> Store:
    return Store.open(machine.home(), OPTIONS)


def asked(machine: Machine, plan: ImportPlan) -> ImportCommit:
    """Build the files on another machine, which has no faults."""
    assert plan.bucket is not None
    builder = BucketFileSystem(machine.other().bucket, plan.bucket.prefix, MemoryFileSystem(), 1 << 20, "", own=())
    try:
        names = {column.name: str(column.id) for column in plan.schema_.columns}
        columns = {"id": list(range(40, 90)), "v": [2] * 50}
        rows = pa.record_batch({names[name]: pa.array(cells, pa.int64()) for name, cells in columns.items()})
        files = built(plan, builder, [rows.rename_columns(["id", "v"])])
    finally:
        builder.close()
    return ImportCommit(import_id=plan.import_id, files=tuple(files), mode=ImportMode.UPSERT)


def rows(store: Store) -> dict[int, int]:
    return {row["id"]: row["v"] for row in Database(store).table("t").scan().to_arrow().to_pylist()}


def work(machine: Machine, acked: list[str]) -> None:
    """Import into a table with rows, and stop."""
    with opened(machine) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        acked.append("table")
        table.upsert([{"id": each, "v": v} for each, v in FIRST.items()])
        acked.append("rows")
        store.import_commit(asked(machine, store.import_begin(ImportBegin(table="t"))))
        acked.append("import")


def check(machine: Machine, acked: list[str]) -> None:
    """The next holder has all rows of the import, or none; nothing named is missing, and nothing stays behind."""
    with opened(machine.other()) as store:
        if acked:
            found = rows(store)
            if "rows" in acked:
                assert found == BOTH or (found == FIRST and "import" not in acked)
            store.maintain("t", "flush")
    assert not machine.other().bucket.list("stores/a/imports/")
    check_sound(machine)


CALLS = FailingCalls(list[str], work, check, step=5)


@pytest.mark.parametrize("fault", FAULTS)
def test_any_one_call_may_fail(fault: Fault) -> None:
    CALLS.one_fails(fault)


def test_any_call_may_be_the_last() -> None:
    CALLS.one_is_the_last()


def test_an_import_ends_with_its_holder_and_a_repeated_commit_does_not() -> None:
    machine = Machine()
    with opened(machine) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        open_one = asked(machine, store.import_begin(ImportBegin(table="t")))
        committed = asked(machine, store.import_begin(ImportBegin(table="t")))
        answer = store.import_commit(committed)
    with opened(machine.other()) as store:
        with pytest.raises(NotFoundError):
            store.import_commit(open_one)
        assert store.import_commit(committed) == answer
        assert len(rows(store)) == 50

"""Power failures at every call of the file system: nothing acknowledged is lost, nothing half is there."""

import logging
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.table.small.row_commit import RowWrite
from nyala.engine.table.small.row_writes import RowWrites
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.crash.images import LostError, campaign, check_image, clone, contents, run_until
from tests.campaigns.crash.long_cells import ALL_WORKLOADS
from tests.campaigns.crash.workloads import SCHEMA, WORKLOADS, open_store, row, write
from tests.dose import dose

IMAGES = dose(1, 6)
"""Of each call; `campaign.py` makes more."""
EVERY = dose(4, 1)
"""By day the power fails at one call in so many."""


@pytest.mark.parametrize("name", ALL_WORKLOADS)
def test_no_power_failure_loses_anything(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)  # every torn tail is worth a warning, and there are thousands
    tally = campaign(ALL_WORKLOADS[name], IMAGES, deep_every=5 * dose(1, 2), every=EVERY)
    assert tally.calls > 50 // EVERY, "the workload has become too small to mean anything"
    assert tally.distinct > tally.calls // 2
    assert tally.recoveries_cut > dose(10, 50)


@pytest.mark.parametrize("name", ALL_WORKLOADS)
def test_a_workload_makes_the_same_calls_each_time(name: str) -> None:
    logs = [run_until(ALL_WORKLOADS[name], None)[1].operation_log for _ in range(2)]
    assert logs[0] == logs[1]


def test_single_rows_go_their_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[RowWrite | None] = []
    real = RowWrites._planned

    def planned(*how: Any) -> Any:
        write = real(*how)
        written.append(write)
        return write

    monkeypatch.setattr(RowWrites, "_planned", planned)
    run_until(WORKLOADS["single_rows"], None)
    by_plan = [write for write in written if write and write.timestamp]
    assert len(by_plan) >= 11, "all of 13 but the first after a start, which builds the key index"


def test_the_checker_sees_a_lost_file_that_no_scan_of_the_table_needs() -> None:
    run, disk = run_until(WORKLOADS["update"], None)
    image = clone(disk.crash_image(Random(0)))
    before = dict(contents(image))
    with open_store(image) as store:
        store.create_table(TableDefinition.from_arrow("other", SCHEMA, ["id"]))
        store.write(WriteCommand(table="other"), pa.RecordBatch.from_pylist([row(1, 0)], SCHEMA))
        store.maintain("other", "flush")
    check_image(run, clone(image))
    (lost,) = [path for path, _ in contents(image) if path.endswith(".base") and path not in before]
    image.unlink(lost)
    with pytest.raises(LostError, match=f"damaged files.*{lost}"):
        check_image(run, image)


def test_the_checker_sees_a_row_too_many_a_row_too_few_and_a_missing_table() -> None:
    run, disk = run_until(WORKLOADS["update"], None)
    image = disk.crash_image(Random(0))
    check_image(run, clone(image))
    with open_store(clone(image)) as store:
        disk_of_store = store._fs
        write(store, "delete", [{"id": 0}])
        assert isinstance(disk_of_store, MemoryFileSystem)
        with pytest.raises(LostError, match="expected"):
            check_image(run, disk_of_store.crash_image(Random(0)))
    with open_store(other := clone(image)) as store:
        store.drop_table("t")
    with pytest.raises(LostError, match="table is gone"):
        check_image(run, other)
    assert dict(contents(clone(image))) == dict(contents(image))

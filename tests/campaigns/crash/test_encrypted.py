"""Encrypted stores on disks that lose their power or fail: as much is kept as of others, and nothing is plain."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.campaigns.crash import workloads
from tests.campaigns.crash.faults import fail_each_call
from tests.campaigns.crash.images import campaign, contents
from tests.campaigns.crash.test_checkpoints import campaign as checkpoints_campaign
from tests.campaigns.crash.workloads import WORKLOADS, Run, row
from tests.campaigns.options import in_force, unlocked
from tests.dose import dose
from tests.doubles.encrypted import KEY

PLANTED = "planted cell"


@pytest.fixture(autouse=True)
def with_key(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.ERROR)
    with in_force("encryption=on"):
        yield


@pytest.mark.parametrize("name", ["update", "restarts", "transactions"])
def test_no_power_failure_loses_anything(name: str) -> None:
    every = dose(5, 1)
    tally = campaign(WORKLOADS[name], 1, deep_every=dose(5, 10), every=every)
    assert tally.calls > 50 // every
    assert tally.recoveries_cut > dose(10, 50)


def test_checkpoints_are_encrypted_and_whole() -> None:
    assert checkpoints_campaign(True, images=1, stride=17) > 100


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short writes", "flipped bits"])
def test_a_failing_disk_loses_nothing(kind: str) -> None:
    fail_each_call(kind, WORKLOADS["update"], every=dose(11, 5))


def test_no_cell_name_or_key_is_plain_in_any_file() -> None:
    disk = MemoryFileSystem()
    run = Run(disk)
    run.start()
    run.write("insert", [row(number, 0, text=f"{PLANTED} {number}") for number in range(50)])
    run.maintain("flush")
    run.write("update", [{"id": 3, "text": f"{PLANTED} changed"}])
    run.maintain("flush_deltas")
    run.write("upsert", [row(90, 1, text=PLANTED)])
    rows = pa.RecordBatch.from_pylist([row(91, 2, text=PLANTED)], workloads.SCHEMA)
    stage = WriteCommand(table=workloads.TABLE, stage=Stage(transaction="a", part="b"))
    run.opened.stage(stage, iter([StagedBatch(rows, Operation.UPSERT)]))
    files = {path: content for path, content in contents(disk) if content}
    assert {path.rpartition(".")[2] for path in files} >= {"base", "undo", "redo", "wal", "stage", "manifest", "keys"}
    for path, content in files.items():
        for secret in (PLANTED.encode(), b"batch", KEY.secret, KEY.secret.hex().encode(), b"NYALAWAL", b"ARROW"):
            assert secret not in content, f"{secret!r} is plain in {path}"
        assert path.startswith("keys") or content.startswith(b"NYALAENC")
    run.opened.close()
    report = verify_store(unlocked(disk))
    assert report.is_sound and report.rows == 50, report.problems
    plain = MemoryFileSystem()
    run = Run(plain)
    with in_force(""):
        run.start()
        run.write("insert", [row(1, 0, text=PLANTED)])
    assert any(PLANTED.encode() in content for _, content in contents(plain) if content), "the look sees nothing"

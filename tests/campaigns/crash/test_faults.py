"""Every call of the file system fails once, and from then on: success or a named error, and nothing is lost."""

import errno
import logging
from random import Random

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.schemas.errors import StorageFullError
from tests.campaigns.crash.faults import RULES, fail_each_call, run_with
from tests.campaigns.crash.images import Checks, check_image, contents
from tests.campaigns.crash.workloads import WORKLOADS, Run, read, row
from tests.campaigns.model.subjects import crashed
from tests.dose import dose
from tests.doubles.faulty import FaultRule, FaultyFileSystem


def steps(run: Run) -> None:
    """A little of everything that writes and flushes."""
    run.start()
    run.write("insert", [row(number, 0) for number in range(4)])
    run.maintain("flush")
    run.write("update_ignore", [{"id": 0, "batch": 1}, {"id": 3, "batch": None}])
    run.write("upsert", [row(5, 1, text="x" * 3_500)])
    run.maintain("flush_deltas")
    run.write("delete_ignore", [{"id": 1}])
    run.restart()
    run.write("insert_ignore", [row(1, 3)])
    run.maintain("flush")
    run.maintain("flush")
    run.maintain("flush_deltas")
    run.write("upsert", [row(0, 4), row(6, 4)])


@pytest.mark.parametrize("kind", RULES)
def test_a_failing_disk_loses_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    fail_each_call(kind, steps, every=dose(11, 1))


@pytest.mark.parametrize("kind", ["EIO", "EIO from then on", "ENOSPC", "short writes"])
@pytest.mark.parametrize(
    "name",
    [
        "cleanup",
        "compactions",
        "attachments",
        "tablets",
        "alterations",
        "recoveries",
        "transactions",
        "ordered",
        "tables",
    ],
)
def test_a_disk_that_fails_in_compactions_alterations_and_recovery_loses_nothing(
    name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One call in thirteen, by day fewer: tests/campaigns/crash/campaign.py fails every one."""
    caplog.set_level(logging.ERROR)
    fail_each_call(kind, WORKLOADS[name], every=dose(37, 13))


@pytest.mark.parametrize("kind", ["EIO of reads from then on", "short reads", "flipped bits"])
@pytest.mark.parametrize("name", ["compactions", "attachments", "tablets", "alterations", "recoveries", "transactions"])
def test_a_disk_that_gives_other_bytes_than_were_written_costs_no_row(
    name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One read in seven, by day fewer, in every kind of work: what comes is noticed, and nothing wrong is written."""
    caplog.set_level(logging.ERROR)
    fail_each_call(kind, WORKLOADS[name], every=dose(23, 7))


def test_what_came_between_two_failed_flushes_stays_in_the_log() -> None:
    """The first flush fails; rows come; the second brings the first's rows to disk and fails with the new ones."""
    disk = MemoryFileSystem()
    full = {"calls": frozenset({"create"}), "path": "tablets/*.base", "error": errno.ENOSPC}
    faulty = FaultyFileSystem(disk, [FaultRule(nth=1, **full), FaultRule(nth=3, **full)])
    run = Run(faulty)
    run.start()
    for batch in range(2):
        run.write("insert", [row(2 * batch, batch), row(2 * batch + 1, batch)])
        run.write("update", [{"id": 0, "batch": 10 + batch}])
        with pytest.raises(StorageFullError):
            run.maintain("flush")
        assert read(run.opened) == run.oracle.now()
    assert len(faulty.injected) == 2
    assert sum(path.endswith(".base") for path, _ in contents(disk)) == 1
    image = crashed(run.opened, disk, Random(0))
    assert check_image(run, image) == run.oracle.now()


def test_the_steps_succeed_on_a_sound_disk() -> None:
    run, _ = run_with(None, steps, Checks())
    assert run.failures == 0
    assert len(run.moments) == 6
    assert len(run.oracle.now()) == 6

"""Every call of the file system fails once, and from then on: success or a named error, and nothing is lost."""

import errno
import logging
from random import Random

import pytest

from nyala.engine.fs import FaultRule, FaultyFileSystem, MemoryFileSystem
from nyala.schemas.errors import StorageFullError
from tests.crash.faults import RULES, Step, count_calls, run_with
from tests.crash.images import check_image, contents
from tests.crash.workloads import Run, read, row
from tests.model.subjects import crashed

STEPS: list[Step] = [
    Run.start,
    lambda run: run.write("insert", [row(number, 0) for number in range(4)]),
    lambda run: run.maintain("flush"),
    lambda run: run.write("update_ignore", [{"id": 0, "batch": 1}, {"id": 3, "batch": None}]),
    lambda run: run.write("upsert", [row(5, 1, text="x" * 3_500)]),
    lambda run: run.maintain("flush_deltas"),
    lambda run: run.write("delete_ignore", [{"id": 1}]),
    Run.restart,
    lambda run: run.write("insert_ignore", [row(1, 3)]),
    lambda run: run.maintain("flush"),
    lambda run: run.maintain("flush"),
    lambda run: run.maintain("flush_deltas"),
    lambda run: run.write("upsert", [row(0, 4), row(6, 4)]),
]


@pytest.mark.parametrize("kind", RULES)
def test_a_failing_disk_loses_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    calls = count_calls(RULES[kind], STEPS)
    assert calls > 20
    failures = 0
    for nth in range(1, calls + 1):
        try:
            run, faulty = run_with(RULES[kind](nth), STEPS)
        except Exception as error:
            error.add_note(f"{kind}, call {nth} of {calls}")
            raise
        assert faulty.injected, "the fault was never met"
        failures += run.failures > 0
    assert failures > calls // 3, "most failures should reach the caller"


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
    run, _ = run_with(None, STEPS)
    assert run.failures == 0
    assert len(run.moments) == 6
    assert len(run.oracle.now()) == 6

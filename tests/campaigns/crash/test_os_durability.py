"""``durability="os"``: an acknowledgement survives the process; a power failure leaves a prefix, without a hole."""

import logging
import threading
from random import Random

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.schemas.rows.write import Durability
from tests.campaigns.crash.images import (
    LostError,
    fingerprint_of,
    promises_of,
    require,
    require_sound,
    run_until,
    with_changes,
)
from tests.campaigns.crash.workloads import OPTIONS, WORKLOADS, Run, open_store, read, row
from tests.campaigns.model.subjects import crashed
from tests.dose import dose

OS = OPTIONS.model_copy(update={"durability": Durability.OS})
IMAGES = 4


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def states(run: Run) -> list[dict]:
    """Return what the table held after each batch, from none to all, and with the one in doubt."""
    found = [{}, *(run.oracle.as_of(moment) for moment in run.moments)]
    return [*found, with_changes(found[-1], run.pending)] if run.pending else found


def check_prefix(run: Run, disk: MemoryFileSystem) -> int:
    """Open the disk; return how many batches are there, from the first on without a hole."""
    store = open_store(disk, OS)
    try:
        require_sound(store)
        if store.tables() != ["t"]:
            require(run.tables != {True}, "the table is gone")
            return 0
        found, known = read(store), states(run)
        require(found in known, f"read {found}, which is no state there ever was")
        count = max(place for place, state in enumerate(known) if state == found)
        for moment in run.moments[:count]:
            require(read(store, moment) == run.oracle.as_of(moment), f"the snapshot {moment} has changed")
        return count
    finally:
        disk.crash_at = disk.operations
        run.store = store
        run.abandon()
        disk.crash_at = None


@pytest.mark.parametrize("name", ["update", "cleanup"])
def test_a_power_failure_leaves_a_prefix(name: str) -> None:
    calls = run_until(WORKLOADS[name], None, OS)[1].operations
    kept: list[int] = []
    counts: dict[tuple[int, str], int] = {}  # of batches, by what a disk holds and what is expected of it
    for call in range(1, calls + 1, dose(3, 1)):
        run, disk = run_until(WORKLOADS[name], call, OS)
        for number in range(IMAGES):
            image = disk.crash_image(Random(call * 1_000 + number))
            key = (fingerprint_of(image), promises_of(run))
            try:
                if key not in counts:
                    counts[key] = check_prefix(run, image)
                kept.append(len(run.moments) - counts[key])
            except LostError as error:
                error.add_note(f"call {call}, image {number}, before it: {list(disk.operation_log)[-5:]}")
                raise
    assert max(kept) > 0, "no acknowledged batch was ever lost: this is no test of durability=os"


def test_a_killed_process_loses_nothing() -> None:
    run = Run(MemoryFileSystem(), OS)
    WORKLOADS["update"](run)
    assert isinstance(run.fs, MemoryFileSystem)
    disk = crashed(run.opened, run.fs, None)
    assert check_prefix(run, disk) == len(run.moments)


@pytest.mark.parametrize("op", ["flush", "flush_deltas"])
def test_a_flush_waits_for_the_log(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest may not say of any change that it is in files while the log could still lose it."""
    sync = MemoryWritableFile.sync
    may_sync = threading.Event()
    may_sync.set()

    def sync_the_log_later(file: MemoryWritableFile) -> None:
        if file._path.startswith("wal/"):
            may_sync.wait(30)
        sync(file)

    monkeypatch.setattr(MemoryWritableFile, "sync", sync_the_log_later)
    run = Run(MemoryFileSystem(), OS)
    run.start()
    run.write("insert", [row(1, 0), row(2, 0)])
    run.maintain("flush")
    may_sync.clear()
    run.write("insert", [row(3, 1)]) if op == "flush" else run.write("update", [{"id": 1, "batch": 1}])
    flush = threading.Thread(target=run.maintain, args=(op,))
    flush.start()
    flush.join(0.5)
    assert flush.is_alive(), "the flush has ended before its rows were durable in the log"
    may_sync.set()
    flush.join(30)
    assert read(run.opened) == run.oracle.now()
    run.abandon()

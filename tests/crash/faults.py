"""Fail one call of the file system, once or from then on: the store must say so by name and lose nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from nyala.engine.fs import FaultRule, FaultyFileSystem, MemoryFileSystem
from nyala.engine.fs.faulty import EVERY_CALL, NAMES, SYNCS, WRITES
from nyala.schemas.errors import InternalError, StorageFullError, StoreError
from tests.crash.images import LostError, check_image, require
from tests.crash.workloads import Run, read

RULES: dict[str, Callable[[int], FaultRule]] = {
    "EIO": lambda nth: FaultRule(EVERY_CALL, nth=nth),
    "EIO from then on": lambda nth: FaultRule(EVERY_CALL, nth=nth, sticky=True),
    "ENOSPC": lambda nth: FaultRule(WRITES | NAMES | SYNCS, nth=nth, error=errno.ENOSPC),
    "ENOSPC from then on": lambda nth: FaultRule(WRITES | NAMES, nth=nth, error=errno.ENOSPC, sticky=True),
    "short write, EIO": lambda nth: FaultRule(WRITES, nth=nth, short_write=17),
    "short write, ENOSPC": lambda nth: FaultRule(WRITES, nth=nth, error=errno.ENOSPC, short_write=17),
    "short writes": lambda nth: FaultRule(WRITES, nth=nth, error=errno.ENOSPC, short_write=17, sticky=True),
}


class TolerantRun(Run):
    """A run that goes on after named errors, as long as it is known what was written."""

    failures: int = 0

    def attempt(self, step: Callable[[], None]) -> None:
        """Take a step; a named error is an answer, anything else is a bug."""
        try:
            step()
        except InternalError as error:
            raise LostError(f"an internal error: {error.message}") from error
        except StorageFullError:
            self.failures += 1
            self.pending = None  # nothing was applied: the next steps and the reopening hold the store to that
        except StoreError:
            self.failures += 1

    def check_reads(self) -> None:
        """Read: what was acknowledged and nothing else, or a named error."""
        if self.store is None or self.tables != {True}:
            return
        try:
            found = read(self.store)
        except InternalError as error:
            raise LostError(f"an internal error: {error.message}") from error
        except StoreError:
            return
        require(found == self.oracle.now(), f"read {found}\n  expected {self.oracle.now()}")


Step = Callable[[Run], None]


def run_with(rule: FaultRule | None, steps: list[Step]) -> tuple[TolerantRun, FaultyFileSystem]:
    """Take ``steps`` on a disk with a fault; stop once a batch is in doubt. Then look at the disk without it."""
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, [rule] if rule else [])
    run = TolerantRun(faulty)
    for step in steps:
        run.attempt(lambda step=step: step(run))
        run.check_reads()
        if run.pending or run.store is None or run.tables != {True}:
            break
    if run.store:
        run.attempt(run.store.close)
    settled = check_image(run, disk)
    if settled is not None:
        check_image(run, disk.crash_image(Random(faulty.calls)), settled)
    return run, faulty


def count_calls(rule_of: Callable[[int], FaultRule], steps: list[Step]) -> int:
    """Return how many calls of a fault-free run a rule could fail."""
    _, faulty = run_with(rule_of(1 << 30), steps)
    return faulty._matched[0]

"""Fail one call of the file system, once or from then on: the store must say so by name and lose nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from nyala.engine.fs import MemoryFileSystem
from nyala.schemas.errors import InternalError, StorageFullError, StoreError
from nyala.schemas.table.alter import Step
from tests.campaigns.crash.images import Checks, LostError, require, same_identity
from tests.campaigns.crash.workloads import Part, Run, read
from tests.campaigns.model.oracle import Row
from tests.dose import dose
from tests.doubles.faulty import CONTENT, EVERY_CALL, NAMES, SYNCS, WRITES, FaultRule, FaultyFileSystem

RULES: dict[str, Callable[[int], FaultRule]] = {
    "EIO": lambda nth: FaultRule(EVERY_CALL, nth=nth),
    "EIO from then on": lambda nth: FaultRule(EVERY_CALL, nth=nth, sticky=True),
    "EIO of reads from then on": lambda nth: FaultRule(CONTENT, nth=nth, sticky=True),
    "short reads": lambda nth: FaultRule(CONTENT, nth=nth, short_read=17),
    "flipped bits": lambda nth: FaultRule(CONTENT, nth=nth, flip=nth * 7919),
    "ENOSPC": lambda nth: FaultRule(WRITES | NAMES | SYNCS, nth=nth, error=errno.ENOSPC),
    "ENOSPC from then on": lambda nth: FaultRule(WRITES | NAMES, nth=nth, error=errno.ENOSPC, sticky=True),
    "short write, EIO": lambda nth: FaultRule(WRITES, nth=nth, short_write=17),
    "short write, ENOSPC": lambda nth: FaultRule(WRITES, nth=nth, error=errno.ENOSPC, short_write=17),
    "short writes": lambda nth: FaultRule(WRITES, nth=nth, error=errno.ENOSPC, short_write=17, sticky=True),
}
_FORGIVING = ("upsert", "merge", "insert_ignore", "update_ignore", "delete_ignore")


class InDoubtError(Exception):
    """The workload ends here: it is not known what the last step did."""


class TolerantRun(Run):
    """A run that goes on after named errors, as long as it is known what was written.

    What a workload writes after a step that failed may find other rows than it thought: those are ignored.
    """

    failures: int = 0
    """Steps that gave a named error."""
    refused_reads: int = 0
    """Looks at the table after a step that gave one."""

    def restart(self) -> None:
        self.attempt(super().restart)
        self.step(super().restart if self.store is None else lambda: None)  # a fault that is over must be over

    def create(self) -> None:
        self.step(super().create)

    def drop(self) -> None:
        self.step(super().drop)

    def write(self, op: str, rows: Sequence[Row]) -> None:
        self.step(lambda: super(TolerantRun, self).write(op if op in _FORGIVING else f"{op}_ignore", rows))

    def transact(self, *parts: Part, truncate: bool = False) -> None:
        forgiving = [[(op if op in _FORGIVING else f"{op}_ignore", rows) for op, rows in part] for part in parts]
        self.step(lambda: super(TolerantRun, self).transact(*forgiving, truncate=truncate))

    def stage(self, name: str, part: Part) -> None:
        self.step(lambda: super(TolerantRun, self).stage(name, part))

    def maintain(self, op: str) -> None:
        self.step(lambda: super(TolerantRun, self).maintain(op))

    def alter(self, steps: Sequence[Step], added: tuple[str, ...]) -> None:
        self.step(lambda: super(TolerantRun, self).alter(steps, added))

    def step(self, step: Callable[[], None]) -> None:
        """Take a step and look at the table; end the run when it is in doubt what was done."""
        self.attempt(step)
        self.check_reads()
        if self.pending or self.store is None or self.tables not in ({True}, {False}):
            raise InDoubtError

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
            self.refused_reads += 1
            return
        require(found == self.oracle.now(), f"read {found}\n  expected {self.oracle.now()}")


def run_with(
    rule: FaultRule | None, workload: Callable[[Run], None], checks: Checks
) -> tuple[TolerantRun, FaultyFileSystem]:
    """Run a workload on a disk with a fault; stop once a batch is in doubt. Then look at the disk without it."""
    disk = MemoryFileSystem()
    faulty = FaultyFileSystem(disk, [rule] if rule else [])
    run = TolerantRun(faulty)
    with suppress(InDoubtError), same_identity():
        workload(run)
    if run.store:
        run.attempt(run.store.close)
    settled, opened = checks.check(run, disk)
    if settled is not None:
        checks.check(run, opened.crash_image(Random(faulty.calls)), settled)
    return run, faulty


def count_calls(rule_of: Callable[[int], FaultRule], workload: Callable[[Run], None]) -> int:
    """Return how many calls of a fault-free run a rule could fail."""
    _, faulty = run_with(rule_of(1 << 30), workload, Checks())
    return faulty._matched[0]


def fail_each_call(kind: str, workload: Callable[[Run], None], every: int = 1) -> int:
    """Fail every call of a workload in turn, or one in ``every``; return how many were failed."""
    calls = count_calls(RULES[kind], workload)
    assert calls > 5
    is_of_reads = RULES[kind](1).calls <= CONTENT
    checks = Checks()
    failures = tried = 0
    for nth in range(1, calls + 1, every):
        try:
            run, faulty = run_with(RULES[kind](nth), workload, checks)
        except Exception as error:
            error.add_note(f"{kind}, call {nth} of {calls}")
            raise
        assert faulty.injected, "the fault was never met"
        # Pages are read when they are asked for, mostly by the look after a step. What fails a write must fail a step.
        failures += run.failures > 0 or (is_of_reads and run.refused_reads > 0)
        tried += 1
    # Not all: some work goes on without a file that is not needed, and what is false may be filling, which nobody uses.
    assert failures > tried // dose(4, 2), "most failures should reach the caller"
    return tried

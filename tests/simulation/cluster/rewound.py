"""Rewound: a bucket that its owner puts back to an earlier state, as `docs/failover.md` allows, and what may follow.

A copy of all objects is taken at a moment, while servers and clients go on. Later all processes are stopped, the copy
is put back, and they start again, with the caches of the history that is gone. What was answered up to the copy must be
there, and nothing of what came after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nyala.engine import threads
from nyala.engine.bucket.memory import MemoryBucket, MemoryObjects
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.wal.slots.reader import newest_slot
from tests.simulation.scheduler import Scheduler
from tests.simulation.store.checks import ViolationError
from tests.simulation.store.history import NEVER, Call, History

from .member import NAME


@dataclass(frozen=True)
class Copied:
    """The objects of a bucket, and when they were copied, in the order of the calls."""

    objects: MemoryObjects
    time: int
    tables: list[str]


def home_of(objects: MemoryObjects) -> BucketHome:
    """Return the store in these objects, for a process with an empty cache."""
    return BucketHome(MemoryBucket(objects), NAME, "memory://bucket", MemoryFileSystem(), probes=False)


def copy_of(objects: MemoryObjects) -> MemoryObjects:
    """Return a copy of all objects."""
    copied = MemoryObjects()
    copied._contents = dict(objects._contents)
    return copied


class Copyist:
    """Copies a bucket at a moment of a run."""

    def __init__(self, scheduler: Scheduler, objects: MemoryObjects, history: History, seconds: float) -> None:
        self._scheduler, self._objects, self._history, self._seconds = scheduler, objects, history, seconds
        self.copied: Copied | None = None

    def run(self) -> None:
        """Wait for the moment, and copy."""
        threads.sleep(self._seconds)
        with self._scheduler.undivided():
            self.copied = Copied(copy_of(self._objects), self._history.time, list(self._history.tables))


def put_back(objects: MemoryObjects, copied: Copied, random: Random) -> bool:
    """Put a copy back. Later objects may stay, but for those of the log; return whether they do."""
    later = objects._contents if random.random() < 0.5 else {}
    stay = {name: content for name, content in later.items() if "/log/" not in name}
    objects._contents = {**stay, **copied.objects._contents}
    return bool(stay)


def history_of(copied: Copied, history: History, since: int) -> History:
    """Return what clients were answered that the copy has, as the beginning of another history.

    Raises:
        ViolationError: the copy lacks what was answered before it.
    """
    newest = newest_slot(home_of(copy_of(copied.objects)).slots)
    assert newest is not None, "the store was made before"
    kept = [call for call in history.calls if is_kept(call, newest.header.safe, copied.time)]
    moments = [call.answer.timestamp for call in kept if call.ended != NEVER]
    return History(
        kept,
        history.time,
        [since, *moments],
        list(copied.tables),
        seconds=history.seconds,
        first_number=len(history.calls) + history.first_number,
    )


def is_kept(call: Call, safe: int, time: int) -> bool:
    """Whether a copy of which all commits up to ``safe`` are there has a write, or may have it."""
    if call.step.kind not in ("write", "transact") or call.began > time:
        return False
    if call.ended == NEVER:
        return True
    if not (call.answer.applied or getattr(call.answer, "truncated", 0)):
        return False
    if call.ended < time and call.answer.timestamp > safe:
        raise ViolationError(f"{call} was answered before the bucket was copied, which has commits up to {safe} only")
    return call.answer.timestamp <= safe

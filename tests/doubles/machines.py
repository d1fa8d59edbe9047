"""Machines that open stores in one bucket, each with its own way to it and its own disk."""

from __future__ import annotations

import threading
import time

from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.objects import Objects
from nyala.engine.bucket.patient import Patience, PatientBucket
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from tests.doubles.faulty_bucket import FaultyObjects

OPTIONS = StoreOptions(maintenance="off", lease_seconds=20, log_patience_seconds=0.2)


class BootTime:
    """Time since the machines started. It goes by itself, and leaps while somebody waits for a silent holder."""

    def __init__(self, leap_seconds: float = 5.0) -> None:
        self.leap_seconds = leap_seconds
        self._ahead_seconds = 0.0

    def now(self) -> float:
        return time.monotonic() + self._ahead_seconds

    def pause(self, seconds: float) -> None:
        """Let others run, and time pass."""
        threading.Event().wait(min(seconds, 0.01))
        self.pass_by(self.leap_seconds)

    def pass_by(self, seconds: float) -> None:
        self._ahead_seconds += seconds


class Machine:
    """One machine. Cut off with ``objects.is_away``, it neither reads nor writes the bucket."""

    def __init__(self, shared: Objects | None = None, boot: BootTime | None = None) -> None:
        self.shared = shared or MemoryObjects()
        self.boot = boot or BootTime()
        self.objects = FaultyObjects(self.shared)
        self.disk = MemoryFileSystem()
        self.bucket = PatientBucket(self.objects, Patience(0.1, 0.001, 0.01))

    def other(self) -> Machine:
        """Return another machine with a way to the same bucket, and an empty disk."""
        return Machine(self.shared, self.boot)

    def home(self, name: str = "a") -> BucketHome:
        return BucketHome(self.bucket, name, "memory://test", self.disk, self.boot.now, self.boot.pause, False)

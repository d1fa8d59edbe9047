"""Admission: how many streams run at once, and who may still come in while the server drains."""

from __future__ import annotations

import threading
import time
from collections import Counter
from enum import Enum

from ..schemas.errors import UnavailableError
from .config import ServerConfig

_EXCHANGES_A_SCAN = 4
"""Streams of point reads that may be open for each scan that may run."""


class Kind(Enum):
    """What is admitted; the value is how an error calls several of them."""

    CALL = "requests"
    SCAN = "scans"
    PUT = "write streams"
    EXCHANGE = "streams of point reads"
    """Open, most of them idle; each batch of keys is admitted as a scan."""


class Slot:
    """The right to run one request. Releasing twice is harmless, and a slot that is forgotten releases itself."""

    __slots__ = ("_admission", "_kind")

    def __init__(self, admission: Admission, kind: Kind) -> None:
        self._admission: Admission | None = admission
        self._kind = kind

    def release(self) -> None:
        """Give the right back."""
        admission, self._admission = self._admission, None
        if admission:
            admission._leave(self._kind)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class Staging:
    """The memory that one stream has taken of what all streams may stage together."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._taken = 0

    def take(self, size: int) -> None:
        """Take ``size`` more bytes. Raises UnavailableError when too little is left."""
        self._admission._stage(size)
        self._taken += size

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self._admission._unstage(self._taken)
        self._taken = 0


class Admission:
    """Counts what runs. Three states: open; draining, when nothing new comes in; expired, when streams end as well.

    All methods may be called from many threads at once.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._limits = {
            Kind.SCAN: config.scans_max,
            Kind.PUT: config.puts_max,
            Kind.EXCHANGE: _EXCHANGES_A_SCAN * config.scans_max,
        }
        self._running: Counter[Kind] = Counter()
        self._staged_bytes, self._staged_bytes_max = 0, config.staged_bytes_max
        # Reentrant: the collector may release a slot, and a signal expire all, while this thread holds it.
        self._changed = threading.Condition(threading.RLock())
        self._draining = False
        self._expired = False

    def admit(self, kind: Kind) -> Slot:
        """Return the right to run one request.

        Raises:
            UnavailableError: when the server stops, or as many of this kind run as may.
        """
        with self._changed:
            if self._draining:
                raise UnavailableError("the server is stopping; try again once it is back")
            if self._running[kind] >= self._limits.get(kind, self._running[kind] + 1):
                raise UnavailableError(f"{self._limits[kind]} {kind.value} run already; try again later")
            self._running[kind] += 1
        return Slot(self, kind)

    def check_time(self) -> None:
        """Let a running stream go on, or end it when the server's time to stop has come.

        Raises:
            UnavailableError: after ``expire``.
        """
        if self._expired:
            raise UnavailableError("the server stops now; try again once it is back")

    @property
    def running(self) -> int:
        """How many requests run; an open stream of point reads is none."""
        return self._running.total() - self._running[Kind.EXCHANGE]

    def drain(self) -> None:
        """Let nothing new in."""
        with self._changed:
            self._draining = True

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs; return False when that takes longer than ``seconds``, or ``expire`` is called."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self.running and not self._expired:
                if not self._changed.wait(max(deadline - time.monotonic(), 0)):
                    break
            return not self.running

    def expire(self) -> None:
        """End what still runs at its next step, and the wait for it. A signal handler may call it."""
        with self._changed:
            self._expired = True
            self._changed.notify_all()

    def staging(self) -> Staging:
        """Return what a stream takes memory with."""
        return Staging(self)

    def _stage(self, size: int) -> None:
        with self._changed:
            if self._staged_bytes + size > self._staged_bytes_max:
                raise UnavailableError(
                    f"staged streams hold {self._staged_bytes:,} bytes already, of {self._staged_bytes_max:,} allowed; "
                    "try again later"
                )
            self._staged_bytes += size

    def _unstage(self, size: int) -> None:
        with self._changed:
            self._staged_bytes -= size

    def _leave(self, kind: Kind) -> None:
        with self._changed:
            self._running[kind] -= 1
            self._changed.notify_all()

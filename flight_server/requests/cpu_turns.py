"""Turns: how many long requests work at once, so that short ones find a processor and the interpreter.

A request that needs less than ``SHORT_SECONDS`` of processor time takes no turn. A longer one takes a turn between its
steps, and gives it back after a while if others wait; the waiting request with the least processor time is next. No
request waits for a turn for ever, since the one that has it may itself wait, for a lock or another server, for a
request without a turn. So turns order work but never block it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SHORT_SECONDS = 0.01
"""Processor time before a request needs turns; also the length of a turn while others wait."""
_PATIENCE_SECONDS = 1.0
_REST_AFTER_SECONDS = 0.001
_RESTS = 3
"""How long a request that gives way rests, as a multiple of the time it worked."""
_REST_SECONDS_MAX = 0.05


class _WaitingWork:
    __slots__ = ("given", "spent", "wake")

    def __init__(self, spent: float) -> None:
        self.spent = spent
        self.given = False
        self.wake = threading.Event()


class Turns:
    """The turns of a server's long requests to work, so that short ones find a processor. Thread safe."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: list[_WaitingWork] = []
        self._lock = threading.Lock()

    @property
    def are_wanted(self) -> bool:
        """Whether another request waits."""
        return bool(self._queue)

    def take(self, spent: float, patience_seconds: float = _PATIENCE_SECONDS) -> bool:
        """Wait for a turn; ``spent`` is the request's processor time so far. Return False if none came in time."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return True
            waiting = _WaitingWork(spent)
            self._queue.append(waiting)
        waiting.wake.wait(patience_seconds)
        with self._lock:
            if not waiting.given:
                self._queue.remove(waiting)
            return waiting.given

    def give_back(self) -> None:
        """Give a turn back, to the waiting request with the least processor time."""
        with self._lock:
            if not self._queue:
                self._free += 1
                return
            chosen = min(self._queue, key=lambda each: each.spent)
            self._queue.remove(chosen)
            chosen.given = True
            chosen.wake.set()


class Work:
    """The processor time of one request, and its turn to work. For the working thread."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._spent = 0.0
        """Before the current section."""
        self._began = 0.0
        self._turn_from: float | None = None
        """The time spent when it got its turn; None without a turn."""
        self._rested_at = 0.0

    @property
    def spent(self) -> float:
        """The processor time up to the last pause, in seconds."""
        return self._spent

    @property
    def is_long(self) -> bool:
        """Whether it has had more processor time than a short request."""
        return self._now() >= SHORT_SECONDS

    def begin(self) -> None:
        """Start measuring on this thread."""
        self._began = time.thread_time()

    def step(self, gives_way: bool, others_run: Callable[[], bool]) -> None:
        """Between two steps of a long request, take a turn or pass it on. A request that gives way also rests while
        others run, so that it takes only part of the interpreter."""
        spent = self._now()
        if gives_way and spent - self._rested_at > _REST_AFTER_SECONDS:
            self._rest(min(_RESTS * (spent - self._rested_at), _REST_SECONDS_MAX), others_run)
            self._rested_at = spent
        if spent < SHORT_SECONDS:
            return
        if self._turn_from is not None and self._turns.are_wanted and spent - self._turn_from > SHORT_SECONDS:
            self._give_back()
        if self._turn_from is None and self._turns.take(spent):
            self._turn_from = spent

    def end(self) -> None:
        """Stop measuring, for good or for a pause: the rest may run on another thread."""
        self._spent = self._now()
        self._began = 0.0
        self._give_back()

    def _now(self) -> float:
        return self._spent + (time.thread_time() - self._began if self._began else 0.0)

    def _give_back(self) -> None:
        if self._turn_from is not None:
            self._turn_from = None
            self._turns.give_back()

    @staticmethod
    def _rest(seconds: float, others_run: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while others_run() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _REST_AFTER_SECONDS))

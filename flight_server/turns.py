"""Turns: how much long work goes on at once, so that short requests find a processor and the interpreter.

A request that is done within ``SHORT_SECONDS`` of processor time needs no turn. One that takes longer asks for a turn
between its steps, gives it back after a while if others wait, and of those that wait the one that has worked least is
next. Nobody waits for a turn for ever: whoever has one may itself wait, for a lock or another server, for somebody who
has none. So turns order work, and never stop it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SHORT_SECONDS = 0.01
"""Processor time that a request may take before it needs turns; also how long a turn lasts where others wait."""
_PATIENCE_SECONDS = 1.0
_REST_AFTER_SECONDS = 0.001
_RESTS = 3
"""How many times as long as it worked a request rests that gives way."""
_REST_SECONDS_MAX = 0.05


class _WaitingWork:
    __slots__ = ("given", "spent", "wake")

    def __init__(self, spent: float) -> None:
        self.spent = spent
        self.given = False
        self.wake = threading.Event()


class Turns:
    """The turns of one server. Thread safe."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._queue: list[_WaitingWork] = []
        self._lock = threading.Lock()

    @property
    def are_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._queue)

    def take(self, spent: float, patience_seconds: float = _PATIENCE_SECONDS) -> bool:
        """Wait for a turn; ``spent`` is the processor time that the request has had. False where none came in time."""
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
        """Give a turn back, to who has worked least of those that wait."""
        with self._lock:
            if not self._queue:
                self._free += 1
                return
            chosen = min(self._queue, key=lambda each: each.spent)
            self._queue.remove(chosen)
            chosen.given = True
            chosen.wake.set()


class Work:
    """The processor time of one request, and its turn. For the thread that works."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._spent = 0.0
        """Before the present section."""
        self._began = 0.0
        self._turn_from: float | None = None
        """What was spent when the turn was got; None without one."""
        self._rested_at = 0.0

    def begin(self) -> None:
        """Work begins on this thread."""
        self._began = time.thread_time()

    def step(self, gives_way: bool, others_run: Callable[[], bool]) -> None:
        """Between two steps: take a turn, or let others have it, once the request is a long one. A request that gives
        way also rests while others run, so that it takes no more than a part of the interpreter."""
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
        """Work ends, or pauses: what follows may be on another thread."""
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

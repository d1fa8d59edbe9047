"""The maintenance manager: does the most worthwhile background work first, one piece at a time.

``run_once`` is a plain call, so that tests and simulations drive it; the thread around it is a few lines.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...schemas.errors import StoreError
from ...schemas.protocol.service import MaintenanceKind
from ...schemas.store.maintenance import DoneWork, DueWork, FailingWork, MaintenanceState, PauseMaintenance
from .. import threads
from ..mvcc.clock import elapsed_seconds
from .op import URGENT_SCORE, MaintenanceOp, about, kind_of
from .rests import Rests

log = logging.getLogger("nyala.maintenance")

_POLL_SECONDS = 1.0
_BACK_OFF_SECONDS = 5.0
"""After a failure that is none of a piece of work, which would rest."""
_MICROSECONDS = 1_000_000
_SHOWN = 100


class MaintenanceManager:
    """Does background work: chooses among the operations of maintenance that ``operations`` returns at each call.

    ``failed`` receives the errors of the thread's work. Work that fails rests, twice as long each time, while other
    work continues (`rests`). ``now`` returns the time of day in microseconds. Rests, and pauses that somebody asks for,
    end by ``elapsed``, in seconds, whatever happens to the clock. The thread calls ``between`` before each piece of
    work, and ``idle`` whenever there is nothing to do; so one of them about once a second, unless the work is long.
    """

    def __init__(
        self,
        operations: Callable[[], Sequence[MaintenanceOp]],
        failed: Callable[[StoreError], object] = lambda error: None,
        now: Callable[[], int] = lambda: 0,
        idle: Callable[[], object] = lambda: None,
        between: Callable[[], object] = lambda: None,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._operations = operations
        self._failed = failed
        self._now = now
        self._idle = idle
        self._between = between
        self._elapsed = elapsed
        self._rests = Rests(elapsed, self._today)
        self._wake = threads.Event()
        self._stopping = False
        self._thread: threads.Thread | None = None
        self.performed: dict[str, int] = {}
        """How often each kind of work was done."""
        self._paused: dict[str, float] = {}
        """By the kind of work: the end of its pause, by ``elapsed``."""
        self._due: tuple[list[DueWork], int] = [], 0
        """The most worthwhile work as of the last look, and how much there was."""
        self._running: dict[object, str] = {}
        self._done: deque[DoneWork] = deque(maxlen=_SHOWN)

    def run_once(self) -> str | None:
        """Do the work with the highest score; return its name, or None when no work is due.

        Raises:
            StoreError: the work failed.
        """
        best = next((operation for score, operation in self._look() if self._may_run(score, operation)), None)
        if best is None:
            return None
        with self._rests.after_failure(best), self.noted(best.name, *about(best)):
            best.perform()
        name = best.name
        self._rests.forget(name)
        self.performed[name] = self.performed.get(name, 0) + 1
        return name

    def _look(self) -> list[tuple[float, MaintenanceOp]]:
        """Return the work that is due with its scores, the greatest first."""
        due: list[tuple[float, MaintenanceOp]] = []
        operations = self._operations()
        self._rests.keep({operation.name for operation in operations})
        for operation in operations:
            if self._rests.is_over(operation.name):
                with self._rests.after_failure(operation):
                    score = operation.score()
                if score > 0:
                    due.append((score, operation))
                else:
                    self._rests.forget(operation.name)
        due.sort(key=lambda pair: -pair[0])
        self._due = [_due(*pair) for pair in due[:_SHOWN]], len(due)
        return due

    def _may_run(self, score: float, operation: MaintenanceOp) -> bool:
        kind = about(operation)[0]
        return kind is None or score >= URGENT_SCORE or self._paused.get(kind, -math.inf) <= self._elapsed()

    def _today(self) -> float:
        """Return seconds since 1970."""
        return self._now() / _MICROSECONDS

    @contextmanager
    def noted(self, name: str, kind: str | None, table: str) -> Iterator[None]:
        """Tell of work in ``state``, during the body and after it."""
        began, key, error = elapsed_seconds(), object(), ""
        self._running[key] = name
        try:
            yield
        except BaseException as raised:
            error = raised.code if isinstance(raised, StoreError) else "INTERNAL"
            raise
        finally:
            del self._running[key]
            ended, seconds = self._today(), elapsed_seconds() - began
            self._done.appendleft(DoneWork(name=name, op=kind, table=table, ended=ended, seconds=seconds, error=error))

    def state(self) -> MaintenanceState:
        """See ``StoreService.maintenance``. From any thread."""
        due, count = self._due
        today, now = self._today(), self._elapsed()
        return MaintenanceState(
            is_on=self._thread is not None,
            paused={kind: today + end - now for kind, end in self._paused.copy().items() if end > now},
            running=list(self._running.copy().values()),
            due=due,
            due_count=count,
            done=list(self._done.copy()),
            failing=self.failing(),
        )

    def failing(self) -> list[FailingWork]:
        """Return the work that failed when it was last tried. From any thread."""
        return self._rests.failing()

    def retry(self, table: str) -> None:
        """Try the failing work on a table again at once, since the table has changed."""
        self._rests.end(table)
        self.notify()

    def pause(self, asked: PauseMaintenance) -> None:
        """See ``StoreService.pause_maintenance``."""
        kinds = list(MaintenanceKind) if asked.op is None else [kind_of(asked.op)]
        end = self._elapsed() + asked.seconds
        self._paused |= {str(kind): end for kind in kinds}
        self.notify()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threads.Thread(target=self._run, name="nyala-maintenance", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Look for work at once."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the running work and stop the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:  # checked after the clearing, so that a stop in between is not lost
                return
            if not self._attempt():
                self._idle()
                self._wake.wait(_POLL_SECONDS)

    def _attempt(self) -> bool:
        """Do one piece of work; return whether to look for more at once."""
        failures = self._rests.failures
        try:
            self._between()
            return self.run_once() is not None
        except Exception as error:
            if isinstance(error, StoreError):
                self._failed(error)
            if self._rests.failures > failures:  # it rests: the others go on
                return True
            log.exception("maintenance could not look for work; it tries again")
        if not self._stopping:
            self._wake.wait(_BACK_OFF_SECONDS)
        return False


def _due(score: float, operation: MaintenanceOp) -> DueWork:
    kind, table = about(operation)
    return DueWork(name=operation.name, op=kind, table=table, score=score)

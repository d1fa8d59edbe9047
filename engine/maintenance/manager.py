"""The maintenance manager: does the most worthwhile background work first, one piece at a time.

``run_once`` is a plain call, so that tests and simulations drive it; the thread around it is a few lines.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...schemas.errors import CorruptionError, StoreError, UnreadableFileError
from ...schemas.maintenance import DoneWork, DueWork, MaintenanceState, PauseMaintenance
from ...schemas.service import MaintenanceKind
from ..mvcc.clock import elapsed_seconds
from .op import URGENT_SCORE, MaintenanceOp, kind_of

log = logging.getLogger("nyala.maintenance")

_POLL_SECONDS = 1.0
_BACK_OFF_SECONDS = 5.0
_REST_MICROSECONDS, _REST_MICROSECONDS_MAX = 10_000_000, 3_600_000_000
_MICROSECONDS = 1_000_000
_SHOWN = 100


class MaintenanceManager:
    """Chooses among the operations that ``operations`` returns at each call.

    ``failed`` receives the errors of the thread's work. Work that meets a damaged file would meet it again, so it
    pauses, twice as long each time, while other work continues. ``now`` returns the time of day in microseconds;
    without it none of it pauses. A pause that somebody asks for ends by ``elapsed``, in seconds, whatever happens to
    the clock. The thread calls ``idle`` whenever there is nothing to do, about once a second.
    """

    def __init__(
        self,
        operations: Callable[[], Sequence[MaintenanceOp]],
        failed: Callable[[StoreError], object] = lambda error: None,
        now: Callable[[], int] | None = None,
        idle: Callable[[], object] = lambda: None,
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._operations = operations
        self._failed = failed
        self._now = now
        self._idle = idle
        self._elapsed = elapsed
        self._rests: dict[str, tuple[int, int]] = {}
        """By the name of the work: the end of its pause, and the pause's length."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
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
        with self._resting(best), self.noted(best.name, *_about(best)):
            best.perform()
        name = best.name
        self._rests.pop(name, None)
        self.performed[name] = self.performed.get(name, 0) + 1
        return name

    def _look(self) -> list[tuple[float, MaintenanceOp]]:
        """Return the work that is due with its scores, the greatest first."""
        now = self._microseconds()
        due: list[tuple[float, MaintenanceOp]] = []
        for operation in self._operations():
            if self._rests.get(operation.name, (now, 0))[0] <= now:
                with self._resting(operation):
                    if (score := operation.score()) > 0:
                        due.append((score, operation))
        due.sort(key=lambda pair: -pair[0])
        self._due = [_due(*pair) for pair in due[:_SHOWN]], len(due)
        return due

    def _may_run(self, score: float, operation: MaintenanceOp) -> bool:
        kind = _about(operation)[0]
        return kind is None or score >= URGENT_SCORE or self._paused.get(kind, -math.inf) <= self._elapsed()

    def _microseconds(self) -> int:
        return self._now() if self._now else 0

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
            ended, seconds = self._microseconds() / _MICROSECONDS, elapsed_seconds() - began
            self._done.appendleft(DoneWork(name=name, op=kind, table=table, ended=ended, seconds=seconds, error=error))

    def state(self) -> MaintenanceState:
        """See ``StoreService.maintenance``. From any thread."""
        due, count = self._due
        today, now = self._microseconds() / _MICROSECONDS, self._elapsed()
        return MaintenanceState(
            is_on=self._thread is not None,
            paused={kind: today + end - now for kind, end in self._paused.copy().items() if end > now},
            running=list(self._running.copy().values()),
            due=due,
            due_count=count,
            done=list(self._done.copy()),
        )

    def pause(self, asked: PauseMaintenance) -> None:
        """See ``StoreService.pause_maintenance``."""
        kinds = list(MaintenanceKind) if asked.op is None else [kind_of(asked.op)]
        end = self._elapsed() + asked.seconds
        self._paused |= {str(kind): end for kind in kinds}
        self.notify()

    @contextmanager
    def _resting(self, operation: MaintenanceOp) -> Iterator[None]:
        """Pause work that meets a damaged file, and re-raise its error."""
        try:
            yield
        except (CorruptionError, UnreadableFileError):
            if self._now:
                before = self._rests.get(operation.name, (0, 0))[1]
                rest = min(max(2 * before, _REST_MICROSECONDS), _REST_MICROSECONDS_MAX)
                self._rests[operation.name] = self._now() + rest, rest
            raise

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="nyala-maintenance", daemon=True)
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
        try:
            return self.run_once() is not None
        except (CorruptionError, UnreadableFileError) as error:
            self._failed(error)
            log.warning("maintenance found a damaged file and skips it for a while: %s", error.message)
            if self._now:
                return True
        except StoreError as error:
            self._failed(error)
            log.warning("maintenance failed and will be retried: %s: %s", error.code, error.message)
        except Exception:
            log.exception("maintenance failed and will be retried")
        if not self._stopping:
            self._wake.wait(_BACK_OFF_SECONDS)
        return False


def _about(operation: MaintenanceOp) -> tuple[str | None, str]:
    """Return the kind of work and the table's name, as far as they are known."""
    kind = getattr(operation, "kind", None)
    return None if kind is None else str(kind), getattr(operation, "table", "")


def _due(score: float, operation: MaintenanceOp) -> DueWork:
    kind, table = _about(operation)
    return DueWork(name=operation.name, op=kind, table=table, score=score)

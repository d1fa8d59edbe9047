"""The maintenance manager: does the most worthwhile background work first, one piece at a time.

``run_once`` is a plain call, so that tests and simulations drive it; the thread around it is a few lines.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...schemas.errors import CorruptionError, StoreError, UnreadableFileError
from .op import MaintenanceOp

log = logging.getLogger("nyala.maintenance")

_POLL_SECONDS = 1.0
_BACK_OFF_SECONDS = 5.0
_REST_MICROSECONDS, _REST_MICROSECONDS_MAX = 10_000_000, 3_600_000_000


class MaintenanceManager:
    """Chooses among the operations that ``operations`` returns at each call.

    ``failed`` receives the errors of the thread's work. Work that meets a damaged file would meet it again, so it
    pauses, twice as long each time, while other work continues. ``now`` returns microseconds; without it nothing
    pauses. The thread calls ``idle`` whenever there is nothing to do, about once a second.
    """

    def __init__(
        self,
        operations: Callable[[], Sequence[MaintenanceOp]],
        failed: Callable[[StoreError], object] = lambda error: None,
        now: Callable[[], int] | None = None,
        idle: Callable[[], object] = lambda: None,
    ) -> None:
        self._operations = operations
        self._failed = failed
        self._now = now
        self._idle = idle
        self._rests: dict[str, tuple[int, int]] = {}
        """By the name of the work: the end of its pause, and the pause's length."""
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.performed: dict[str, int] = {}
        """How often each kind of work was done."""

    def run_once(self) -> str | None:
        """Do the work with the highest score; return its name, or None when no work is due.

        Raises:
            StoreError: the work failed.
        """
        now = self._now() if self._now else 0
        scored: list[tuple[float, MaintenanceOp]] = []
        for operation in self._operations():
            if self._rests.get(operation.name, (now, 0))[0] <= now:
                with self._resting(operation):
                    scored.append((operation.score(), operation))
        best = max(scored, key=lambda pair: pair[0], default=None)
        if best is None or best[0] <= 0:
            return None
        with self._resting(best[1]):
            best[1].perform()
        name = best[1].name
        self._rests.pop(name, None)
        self.performed[name] = self.performed.get(name, 0) + 1
        return name

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

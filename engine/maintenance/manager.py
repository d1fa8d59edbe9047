"""The maintenance manager: does the most worthwhile background work first, one piece at a time.

``run_once`` is a plain call, so that tests and simulations drive it; the thread around it is a few lines.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from ...schemas.errors import StoreError
from .op import MaintenanceOp

log = logging.getLogger("nyala.maintenance")

_POLL_SECONDS = 1.0
_BACK_OFF_SECONDS = 5.0


class MaintenanceManager:
    """Chooses among the operations that ``operations`` returns each time it is asked.

    ``failed`` hears of the errors of the thread's work.
    """

    def __init__(
        self,
        operations: Callable[[], Sequence[MaintenanceOp]],
        failed: Callable[[StoreError], object] = lambda error: None,
    ) -> None:
        self._operations = operations
        self._failed = failed
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.performed: dict[str, int] = {}
        """How often each kind of work was done."""

    def run_once(self) -> str | None:
        """Do the work with the highest score; return its name, or None when nothing is worth doing.

        Raises:
            StoreError: the work failed.
        """
        scored = [(operation.score(), operation) for operation in self._operations()]
        best = max(scored, key=lambda pair: pair[0], default=None)
        if best is None or best[0] <= 0:
            return None
        best[1].perform()
        name = best[1].name
        self.performed[name] = self.performed.get(name, 0) + 1
        return name

    def start(self) -> None:
        """Do work in a thread of its own from now on."""
        self._thread = threading.Thread(target=self._run, name="nyala-maintenance", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Look for work at once."""
        self._wake.set()

    def stop(self) -> None:
        """Finish the work that runs and stop the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:  # looked at after the clearing, lest a stop in between goes unheard
                return
            if not self._attempt():
                self._wake.wait(_POLL_SECONDS)

    def _attempt(self) -> bool:
        """Do one piece of work; return whether to look for more at once."""
        try:
            return self.run_once() is not None
        except StoreError as error:
            self._failed(error)
            log.warning("maintenance failed and will be tried again: %s: %s", error.code, error.message)
        except Exception:
            log.exception("maintenance failed and will be tried again")
        if not self._stopping:
            self._wake.wait(_BACK_OFF_SECONDS)
        return False

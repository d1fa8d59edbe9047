"""Tells a person who waits that kernels are compiled: without a library of them, numba does it on their first use.

Nothing is told where nobody reads: in scripts whose standard error is no terminal, and in servers, which log it.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

NOTE = "nyala: compiling kernels, which is done once on a machine; `nyala warmup` does it ahead of time\n"
_PATIENCE_SECONDS = 1.0


class Notice:
    """Writes the note once, when threads have compiled for long enough in all. Thread safe."""

    def __init__(self, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._left = patience_seconds
        self._running = 0
        self._is_told = False
        self._since = 0.0
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """A thread begins to compile, or to load what was compiled."""
        with self._lock:
            self._running += 1
            if self._running > 1 or self._is_told:
                return
            self._since = time.monotonic()
            self._timer = threading.Timer(max(self._left, 0.0), self._tell)
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """It has done so."""
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._left -= time.monotonic() - self._since

    def _tell(self) -> None:
        with self._lock:
            if self._timer is None:
                return
            self._timer, self._is_told = None, True
        sys.stderr.write(NOTE)
        sys.stderr.flush()


def watch() -> None:
    """Begin to tell, if somebody reads, and this process compiles at all. To be called when the engine is imported;
    later calls do nothing."""
    global _notice
    compiler: Any = sys.modules.get("numba.core.event")  # not there if kernels come from a library
    if compiler is None or _notice is not None or not _is_read():
        return
    notice = _notice = Notice()

    class Compiling(compiler.Listener):
        def on_start(self, event: Any) -> None:
            notice.begin()

        def on_end(self, event: Any) -> None:
            notice.end()

    compiler.register("numba:compile", Compiling())


_notice: Notice | None = None


def _is_read() -> bool:
    """Whether a person sees what is written: on a terminal, in an interactive session or in a notebook."""
    is_interactive = hasattr(sys, "ps1") or "ipykernel" in sys.modules
    return is_interactive or (sys.stderr is not None and sys.stderr.isatty())

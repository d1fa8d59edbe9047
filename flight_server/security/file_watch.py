"""FileWatch: loads files again when they change, as long as a server runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ...schemas.errors import StoreError

_LOG = logging.getLogger("nyala.flight_server")
_Stamp = tuple[int, int, int] | None
POLL_SECONDS = 1.0


class WatchedFiles:
    """Files of tokens, keys or certificates that are loaded together, by a function that raises ``StoreError`` and
    changes nothing if one is wrong."""

    def __init__(self, what: str, paths: Sequence[Path], load: Callable[[], None]) -> None:
        """Load them. ``what`` names them in the log. Raises as ``load``."""
        self._what = what
        self._paths = paths
        self._load = load
        self._lock = threading.Lock()
        self._stamps = self._now()  # before loading: a change meanwhile is loaded later
        load()

    def refresh(self, always: bool = False) -> None:
        """Load the files if one has changed since they were last loaded, or ``always``. What is wrong with them is
        logged, once for each change, and what was loaded before stays in force."""
        with self._lock:
            stamps = self._now()
            if stamps == self._stamps and not always:
                return
            self._stamps = stamps
            try:
                self._load()
            except StoreError as error:
                _LOG.error("the old %s stay in force: %s", self._what, error.message)
            except Exception:  # a mistake of ours must not end the watching: nothing could be revoked any more
                _LOG.exception("the old %s stay in force", self._what)
            else:
                _LOG.info("loaded the %s again", self._what)

    def _now(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp:
    """Return what differs when a file has been written to or replaced; None if there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino


class FileWatch:
    """Looks once a second whether files of tokens, keys or certificates have changed, on its own thread."""

    def __init__(self, watched: Sequence[WatchedFiles], poll_seconds: float = POLL_SECONDS) -> None:
        self._watched = watched
        self._poll_seconds = poll_seconds
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="nyala-security-files", daemon=True).start()

    def load_all(self) -> None:
        """Load all files now, changed or not."""
        for each in self._watched:
            each.refresh(always=True)

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._poll_seconds):
            for each in self._watched:
                each.refresh()

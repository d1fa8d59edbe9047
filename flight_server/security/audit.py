"""The audit log: JSON lines of changes to tables and grants, of administration, and of denials. It has names, never
values of rows or secrets.

It is for people and their tools, not for the store, so it is a plain rotated file outside of the store's files and
their checksums. If it cannot be written, the server goes on: a full disk must not stop reads. The server's log and
``health`` tell that entries are lost, and the next entry that can be written tells how many.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...schemas.errors import InvalidArgumentError

_LOG = logging.getLogger("nyala.flight_server")


class AuditLog:
    """Appends entries to a file, and rotates it: ``PATH.1`` is the newest of the old ones. Thread safe."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        files_max: int,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """Keep at most ``files_max`` files, of some ``bytes_max`` bytes each.

        Raises:
            InvalidArgumentError: the file cannot be written.
        """
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._now = now
        self._lost = 0
        self._lock = threading.Lock()
        self.failure = ""
        """Why entries are lost; empty: they are not."""
        try:
            self._file = self._opened()
        except OSError as error:
            raise InvalidArgumentError(f"the audit log {path} cannot be written: {error.strerror}") from None

    def note(self, user: str, action: str, outcome: str, **more: Any) -> None:
        """Append an entry; never raises."""
        entry = {"time": self._now().isoformat(timespec="milliseconds"), "user": user, "action": action}
        with self._lock:
            lost = {"lost_before": self._lost} if self._lost else {}
            line = json.dumps({**entry, "outcome": outcome, **more, **lost}, default=str, ensure_ascii=True)
            try:
                self._append(line.encode() + b"\n")
            except (OSError, ValueError) as error:
                self._fail(error)
            else:
                self._recovered()

    def _append(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        if size and size + len(line) > self._bytes_max:
            self._rotate()
            size = 0
        written = os.write(self._file, line)
        if written < len(line):  # the disk is full: no half a line, which would spoil the next
            os.ftruncate(self._file, size)
            raise OSError(28, "No space left on device")

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        if self._files_max == 1:
            os.ftruncate(self._file, 0)
            return
        new = self._opened()
        os.close(self._file)
        self._file = new

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _opened(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _fail(self, error: Exception) -> None:
        self._lost += 1
        if not self.failure:
            _LOG.error("the audit log %s cannot be written (%s): entries are lost", self._path, error)
        self.failure = f"the audit log cannot be written ({getattr(error, 'strerror', None) or error})"

    def _recovered(self) -> None:
        if self._lost:
            _LOG.warning("the audit log %s is written again; %d entries were lost", self._path, self._lost)
        self._lost, self.failure = 0, ""

    def close(self) -> None:
        """Close the file; later entries are lost."""
        with self._lock:
            os.close(self._file)
            self._file = -1

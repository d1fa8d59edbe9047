"""The audit log: JSON lines of changes to tables and grants, of administration, and of denials. It has names, never
values of rows or secrets.

It is for people and their tools, not for the store, so it is a plain rotated file outside of the store's files and
their checksums. If it cannot be written, the server goes on: a full disk must not stop reads. The server's log and
``health`` tell that entries are lost, and the next entry that can be written tells how many.

Nobody can push the entries of others out of it: names are cut, and what fails again and again is counted. So are
handshakes that succeed.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...schemas.errors import InvalidArgumentError

_LOG = logging.getLogger("nyala.flight_server")
_TEXT_MAX = 256
_LIST_MAX = 32
_COUNT_SECONDS = 60.0
_ALWAYS_COUNTED = frozenset({"handshake"})
"""What costs a user nothing and changes nothing."""
_ABOUT = ("table", "id", "directory", "name")
"""Names that tell one failure of an action from another."""
_FAILURES_MAX = 64
"""Different failures of a user in that time; more of them are counted without what they are about."""


@dataclass(slots=True)
class _Counted:
    """A failure, and how often it came again."""

    entry: dict[str, Any]
    until: float
    """Equal ones are counted until then."""
    again: int = 0


class AuditLog:
    """The audit log of a server: appends entries to a file, and rotates it: ``PATH.1`` is the newest of the old ones.
    Thread safe."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        files_max: int,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep at most ``files_max`` files, of some ``bytes_max`` bytes each.

        Raises:
            InvalidArgumentError: the file cannot be written.
        """
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._now = now
        self._seconds = seconds
        self._lost = 0
        self._failures: OrderedDict[tuple[Any, ...], _Counted] = OrderedDict()
        """What has failed lately, by user, action, outcome and what it is about; the oldest first."""
        self._of_user: dict[str, int] = {}
        """The number of them for each user."""
        self._lock = threading.Lock()
        self.failure = ""
        """Why entries are lost; empty: they are not."""
        try:
            self._file = self._opened(path)
        except OSError as error:
            raise InvalidArgumentError(f"the audit log {path} cannot be written: {error.strerror}") from None

    def note(self, user: str, action: str, outcome: str, **more: Any) -> None:
        """Append an entry; never raises. If the same has just failed for the same user, or is a handshake that has just
        succeeded, count it instead."""
        told = {name: _cut(each) for name, each in more.items()}
        entry = {"user": _cut(user), "action": action, "outcome": outcome}
        with self._lock:
            self._end_counts(self._seconds())
            if outcome == "ok" and action not in _ALWAYS_COUNTED:
                self._write({**entry, **told})
            else:
                self._note_or_count(entry, told)

    def _note_or_count(self, entry: dict[str, Any], told: dict[str, Any]) -> None:
        user, about = entry["user"], next((told[name] for name in _ABOUT if name in told), None)
        failure = (*entry.values(), about)
        if failure not in self._failures and self._of_user.get(user, 0) >= _FAILURES_MAX:
            failure, told = (*entry.values(), None), {}
        if counted := self._failures.get(failure):
            counted.again += 1
        elif self._write(entry | told):
            self._failures[failure] = _Counted(entry | told, self._seconds() + _COUNT_SECONDS)
            self._of_user[user] = self._of_user.get(user, 0) + 1

    def _end_counts(self, now: float) -> None:
        """Write how often the same failed again in the times that are over at ``now``."""
        while self._failures and next(iter(self._failures.values())).until <= now:
            (user, *_), counted = self._failures.popitem(last=False)
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]
            if counted.again:
                self._write({**counted.entry, "repeated": counted.again})

    def _write(self, entry: dict[str, Any]) -> bool:
        lost = {"lost_before": self._lost} if self._lost else {}
        moment = self._now().isoformat(timespec="milliseconds")
        line = json.dumps({"time": moment, **entry, **lost}, default=str, ensure_ascii=True)
        try:
            self._append(line.encode() + b"\n")
        except (OSError, ValueError) as error:
            self._fail(error)
            return False
        self._recovered()
        return True

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
        """Begin a new file. What fails here fails again and again: so it must not push old entries out."""
        if self._files_max == 1:
            os.ftruncate(self._file, 0)
            return
        path = self._path.with_name(f"{self._path.name}.new")
        new = self._opened(path)
        try:
            os.ftruncate(new, 0)
            # Up to the first number that is free, as after a shift that ended half-way.
            numbers = range(self._files_max)
            last = next((each for each in numbers if not self._numbered(each).exists()), numbers[-1])
            for number in range(last, 0, -1):
                self._numbered(number - 1).replace(self._numbered(number))
            path.replace(self._path)
        except OSError:
            os.close(new)
            raise
        os.close(self._file)
        self._file = new

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _opened(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

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
            self._end_counts(math.inf)
            os.close(self._file)
            self._file = -1


def _cut(told: Any) -> Any:
    """Return what is told without the rest of a long text or list."""
    if isinstance(told, list):
        return [_cut(each) for each in told[:_LIST_MAX]]
    return told[:_TEXT_MAX] + "..." if isinstance(told, str) and len(told) > _TEXT_MAX else told

"""Files that were unlinked, and whose objects wait until nobody can need them any more.

Whoever takes the store over starts from the newest slot of the log that has landed. So what a slot drops may be deleted
once that slot has landed, and not before: the owner of the log takes a ``mark`` before it sends a slot, and releases
up to it when the slot has landed. When the outcome of a slot is unknown nothing is deleted; the next holder sweeps.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from ... import threads
from ..bucket import Bucket
from .fetching import answered


class Deletions:
    """The unlinked files of one store whose objects in the bucket wait to be deleted. Thread safe."""

    def __init__(
        self,
        bucket: Bucket,
        locate: Callable[[str], str],
        is_read: Callable[[str], bool],
        is_pinned: Callable[[str], bool],
        forget: Callable[[str], None],
    ) -> None:
        """``locate`` gives the name of a file's object; a file that ``is_read`` in this process, or ``is_pinned`` for
        others, waits too; ``forget`` is called with those that are gone."""
        self._bucket = bucket
        self._locate = locate
        self._is_read = is_read
        self._is_pinned = is_pinned
        self._forget = forget
        self._asked: dict[str, int] = {}
        """For each file, in order, the number of the call that asked for it."""
        self._doubtful: set[str] = set()
        """Files whose deletion failed: it may have its effect later."""
        self._number = 0
        self._is_over = False
        self._lock = threads.Lock()
        self._turn = threads.Lock()

    def __contains__(self, path: str) -> bool:
        return path in self._asked

    def has_due(self) -> bool:
        """Whether there is any that no pin holds."""
        with self._lock:
            return not all(map(self._is_pinned, self._asked))

    def ask(self, path: str) -> None:
        """Ask that a file be deleted."""
        with self._lock:
            self._number += 1
            self._asked[path] = self._number

    def withdraw(self, path: str) -> None:
        """Keep a file after all: its name gets another one. Raises OSError EBUSY if its deletion may come late."""
        if path not in self._asked:
            return
        with self._turn, self._lock:
            if path in self._doubtful:
                raise OSError(errno.EBUSY, "an object of this name is being deleted: use another name", path)
            self._asked.pop(path, None)

    def mark(self) -> int:
        """Return what to release up to, when a slot that is sent from now on has landed."""
        return self._number

    def release(self, up_to: int) -> list[str]:
        """Delete the files that were asked for before the mark was taken, and earlier ones that could not be deleted;
        return their paths. A failure of the bucket is no error: they are deleted at a later call. Asks the bucket, so
        it is no call for a thread that others wait for."""
        with self._turn:
            with self._lock:
                if self._is_over:
                    return []
                due = [path for path, number in self._asked.items() if number <= up_to and self._is_free(path)]
                self._doubtful.update(due)
            if not due:
                return []
            with suppress(OSError), answered("deletions"):
                self._bucket.delete([self._locate(path) for path in due])
                with self._lock:
                    self._doubtful.difference_update(due)
                    for path in due:
                        del self._asked[path]
                for path in due:
                    self._forget(path)
                return due
            return []

    def _is_free(self, path: str) -> bool:
        return not self._is_read(path) and not self._is_pinned(path)

    def abandon(self) -> None:
        """Delete nothing from now on: whether a slot has landed is unknown, or another process holds the store."""
        with self._lock:
            self._is_over = True

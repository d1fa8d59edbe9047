"""Damage: which files of a store are not what was written, or cannot be read.

It may be found at the opening or at any time later. A file is logged once, when it is first found. What is known lasts
until the store is closed: a repair is made offline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..schemas.errors import CorruptionError, RemoteCorruptionError, StoreError, UnreadableFileError

log = logging.getLogger("nyala.damage")

FILES_MAX = 1_000
"""So many are remembered; more are logged no more."""
NEXT_STEP = "stop the server, run `nyala verify` to list all damage, then `nyala repair`"
"""What whoever runs the store can do about damage."""
_OURS = ("manifest", "wal", "tablets/", "staging/")
"""Where the files of a store lie; others are of those who build for it, and none of its own damage."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file: its path in the data directory, the first offset at which it was found, and what was wrong."""

    path: str
    offset: int
    why: str


class DamageRegistry:
    """The damaged files of one store. Thread safe."""

    def __init__(self) -> None:
        self._found: dict[str, Damage] = {}
        self._lock = threading.Lock()

    def note(self, error: BaseException) -> None:
        """Remember, and log once, the file that an error names; errors that name none are passed over."""
        damage = damage_of(error)
        if damage is None:
            return
        with self._lock:
            if damage.path in self._found or len(self._found) >= FILES_MAX:
                return
            self._found[damage.path] = damage
        log.error("damaged file %s at byte %d: %s", damage.path, damage.offset, damage.why)

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Note the damage that the body runs into; its error goes on."""
        try:
            yield
        except StoreError as error:
            self.note(error)
            raise

    def found(self) -> list[Damage]:
        """Return all damaged files, in the order in which they were found."""
        with self._lock:
            return list(self._found.values())


def damage_of(error: BaseException) -> Damage | None:
    """Return which file of this store an error names as damaged; None when it names none, or another server's."""
    if isinstance(error, RemoteCorruptionError) or not isinstance(error, CorruptionError | UnreadableFileError):
        return None
    if not error.path.startswith(_OURS):
        return None
    return Damage(error.path, error.offset if isinstance(error, CorruptionError) else 0, error.why)

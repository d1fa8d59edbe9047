"""Damage: files of a store that are not what was written, or cannot be read.

Damage is found when the store opens or at any later time, and each file is logged once. The registry lasts until the
store closes: repairs are made offline.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ...schemas.errors import CorruptionError, RemoteCorruptionError, StoreError, UnreadableFileError
from .. import threads

log = logging.getLogger("nyala.damage")

FILES_MAX = 1_000
"""The most damaged files to remember and log."""
NEXT_STEP = "stop the server, run `nyala verify` to list all damage, then `nyala repair`"
"""What an operator can do about damage."""
_OURS = ("manifest", "keys", "wal", "tablets/", "staging/", "pins/")
"""Where a store keeps its files. Damage elsewhere, such as in files built for an import, is not the store's."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file: its path in the data directory, the first offset where damage was found, and what is wrong."""

    path: str
    offset: int
    why: str


class DamageRegistry:
    """The damaged files of one store. Thread safe."""

    def __init__(self) -> None:
        self._found: dict[str, Damage] = {}
        self._lock = threads.Lock()
        self._noticing = _Noticing(self)

    def note(self, error: BaseException) -> None:
        """Remember and log once the file that an error names. Ignores errors that name no file."""
        damage = damage_of(error)
        if damage is None:
            return
        with self._lock:
            if damage.path in self._found or len(self._found) >= FILES_MAX:
                return
            self._found[damage.path] = damage
        log.error("damaged file %s at byte %d: %s", damage.path, damage.offset, damage.why)

    def noticing(self) -> AbstractContextManager[None]:
        """Note the damage that the body runs into, and re-raise its error."""
        return self._noticing

    def found(self) -> list[Damage]:
        """Return all damaged files, in the order found."""
        with self._lock:
            return list(self._found.values())


class _Noticing(AbstractContextManager[None]):
    """See ``DamageRegistry.noticing``. It has no state, so one serves all. (A generator would cost several times as
    much.)"""

    def __init__(self, registry: DamageRegistry) -> None:
        self._registry = registry

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, StoreError):
            self._registry.note(error)


def damage_of(error: BaseException) -> Damage | None:
    """Return the damaged file of this store that an error names; None if it names none, or another server's."""
    if isinstance(error, RemoteCorruptionError) or not isinstance(error, CorruptionError | UnreadableFileError):
        return None
    if not error.path.startswith(_OURS):
        return None
    return Damage(error.path, error.offset if isinstance(error, CorruptionError) else 0, error.why)

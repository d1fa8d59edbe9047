"""Home: where a store lives, and what it needs of that place.

A store needs files, a manifest that is replaced as a whole, a log, and to be the only one there. A directory gives it
these by rename, segments and a lock (`directory`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ..fs.filesystem import FileSystem

if TYPE_CHECKING:
    from ...schemas.errors import StoreError
    from ..manifest.manifest import ManifestFile
    from ..mvcc.clock import Clock
    from ..mvcc.mvcc import MvccManager
    from ..options import StoreOptions
    from ..wal.store_log import StoreLog


class Home(ABC):
    """A place where a store lives, or can be made."""

    @property
    @abstractmethod
    def where(self) -> str:
        """What users call it: a path or a URL."""

    @abstractmethod
    def take(self, options: StoreOptions, note: Callable[[StoreError], None], new_uuid: Callable[[], UUID]) -> HeldHome:
        """Make sure that no other process has the store, from now until the result is closed. ``note`` gets what was
        damaged and could be mended; ``new_uuid`` returns another one at each call.

        Raises:
            UnavailableError: another process has it, or the place does not answer.
            InvalidArgumentError: an option does not fit the store, such as the key.
        """


class HeldHome(Protocol):
    """The home of a store that this process has. Opened in one thread: first the manifest, then the log."""

    @property
    def fs(self) -> FileSystem:
        """The store's files, as they were written."""
        ...

    def open_manifest(self) -> ManifestFile:
        """Return the manifest of the store, which is made if there is none.

        Raises:
            CorruptionError: it is not what was written, or is missing beside other files.
        """
        ...

    def open_log(self) -> StoreLog:
        """Return the log, to be replayed.

        Raises:
            CorruptionError: it is not what was written.
        """
        ...

    def mvcc(self, clock: Clock) -> MvccManager:
        """Return what gives timestamps and snapshots, by a clock."""
        ...

    def close(self) -> None:
        """Leave the store to other processes. The log is closed."""
        ...

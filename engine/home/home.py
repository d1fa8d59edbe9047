"""Home: the place of a store, and the services that it offers.

A store needs files, a manifest that is replaced as a whole, a log, and to be the only one there. A directory gives it
these by rename, segments and a lock (`directory`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ..fs.filesystem import FileSystem

if TYPE_CHECKING:
    from ...schemas.errors import StoreError
    from ...schemas.store.bucket_place import BucketPlace
    from ..manifest.manifest import ManifestFile
    from ..mvcc.clock import Clock
    from ..mvcc.mvcc import MvccManager
    from ..options import StoreOptions
    from ..wal.store_log import StoreLog
    from .pinned import PinnedObjects
    from .shared_root import SharedRoot


@dataclass(frozen=True, slots=True)
class Opening:
    """What a process brings along to open the store at a home."""

    options: StoreOptions
    note: Callable[[StoreError], None]
    """Gets what was damaged and could be mended."""
    new_uuid: Callable[[], UUID]
    """Returns a new UUID."""
    clock: Clock
    """Tells the time of day."""


class Home(ABC):
    """The home of a store: a place where it lives, or can be made."""

    @property
    @abstractmethod
    def where(self) -> str:
        """What users call it: a path or a URL."""

    @abstractmethod
    def take(self, opening: Opening) -> HeldHome:
        """Make sure that no other process has the store, from now until the result is closed.

        Raises:
            UnavailableError: another process has it, or the place does not answer.
            InvalidArgumentError: an option does not fit the store, such as the key.
        """


class Aside(Protocol):
    """The place at a store's home for a small document beside the store, which may be lost."""

    def read_aside(self, name: str) -> bytes | None:
        """Return the document; None if there is none.

        Raises:
            CorruptionError: an encrypted file is not what was written.
            OSError: the disk fails.
            UnavailableError: the bucket does not answer.
        """
        ...

    def write_aside(self, name: str, document: bytes) -> None:
        """Replace the document as a whole, durably. Raises OSError and StoreError."""
        ...


class HeldHome(Aside, Protocol):
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

    @property
    def first_number(self) -> int:
        """Files that are numbered in each run of the store get greater numbers than this: 0 in a directory."""
        ...

    @property
    def clock(self) -> Clock:
        """What gives the store its timestamps."""
        ...

    def mvcc(self) -> MvccManager:
        """Return what gives the store its snapshots, by its clock."""
        ...

    @property
    def is_log_never_idle(self) -> bool:
        """Whether the log grows while nobody writes, so that it must be freed though nothing is flushed."""
        ...

    @property
    def place(self) -> BucketPlace | None:
        """What other processes call the bucket, to read and build files there; None: this is a directory."""
        ...

    @property
    def shared_root(self) -> SharedRoot | None:
        """What it shares with other stores in the bucket; None: this is a directory."""
        ...

    @property
    def pinned(self) -> PinnedObjects | None:
        """What pins hold, if they are entries of the manifest; None where files can have second names."""
        ...

    def opened(self) -> None:
        """Take note that the store is open: other processes may put files here from now on."""
        ...

    def has_garbage(self) -> bool:
        """Whether ``remove_garbage`` would remove files. Cheap."""
        ...

    def remove_garbage(self) -> None:
        """Delete files that were unlinked and that no other process can need any more."""
        ...

    def check_held(self) -> None:
        """Raise UnavailableError if another process has the store by now, or nobody can tell: it may have deleted what
        is missed here."""
        ...

    def check_directory(self, what: str) -> None:
        """Raise InvalidArgumentError unless this is a directory, which ``what`` needs."""
        ...

    def close(self) -> None:
        """Leave the store to other processes. The log is closed."""
        ...

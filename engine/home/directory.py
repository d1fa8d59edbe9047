"""A directory as the home of a store: a lock, a manifest that is renamed into place, a log of segments."""

from __future__ import annotations

from uuid import UUID

from ...schemas.errors import CorruptionError
from ..fs import document as documents
from ..fs.encryption.key_source import KeySource
from ..fs.encryption.opening import opened_to_write
from ..fs.failures import named
from ..fs.filesystem import FileLock, FileSystem
from ..fs.store_lock import STORE_LOCK
from ..manifest import files
from ..manifest.manifest import ManifestFile
from ..mvcc.mvcc import MvccManager
from ..wal.log import WriteAheadLog
from ..wal.options import WalOptions
from ..wal.reader import CleanStop
from ..wal.replacement import check_not_under_way
from .checkpoint_mark import become_a_store
from .home import HeldHome, Home, Opening

LOG = "wal"
"""The directory of the write-ahead log."""


class DirectoryHome(Home):
    """A directory as the home of a store: the root of a file system."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    @property
    def where(self) -> str:
        return getattr(self._fs, "root", "")

    def take(self, opening: Opening) -> HeldHome:
        with named(f"the data directory {self.where} could not be created or locked"):
            self._fs.make_directory("")
            lock = self._fs.lock(STORE_LOCK)
        try:
            with named("the store could not be opened"):
                options = opening.options
                source = KeySource(options.key_file, options.key_command, options.key)
                return HeldDirectory(opened_to_write(self._fs, source, opening.note), lock, opening)
        except BaseException:
            lock.close()
            raise


class HeldDirectory:
    """The home of a store in a directory that this process has locked."""

    first_number = 0
    is_log_never_idle = False
    place = None
    shared_root = None
    pinned = None

    def __init__(self, fs: FileSystem, lock: FileLock, opening: Opening) -> None:
        self.fs = fs
        self.clock = opening.clock
        self._lock = lock
        self._options = opening.options
        self._new_uuid = opening.new_uuid
        self._manifest: ManifestFile | None = None

    def open_manifest(self) -> ManifestFile:
        """See HeldHome. A checkpoint becomes a store.

        Raises:
            InvalidArgumentError: here is an unfinished checkpoint.
        """
        become_a_store(self.fs)
        self._manifest = ManifestFile.open(self.fs) or self._create(self._new_uuid().hex)
        return self._manifest

    def open_log(self) -> WriteAheadLog:
        """See HeldHome. Cuts off a torn end that a crash left."""
        assert self._manifest is not None, "the manifest says what the log must have"
        manifest = self._manifest.current
        check_not_under_way(self.fs)
        stop = manifest.clean_stop
        return WriteAheadLog.open(
            self.fs,
            LOG,
            UUID(manifest.store_uuid).bytes,
            WalOptions(self._options.wal_segment_bytes, self._options.wal_queue_bytes),
            CleanStop(stop.last_lsn, stop.crc) if stop else None,
            manifest.last_durable_lsn,
        )

    def opened(self) -> None:
        """It is as it was."""

    def has_garbage(self) -> bool:
        return False

    def remove_garbage(self) -> None:
        """There is none: an unlinked file is gone."""

    def read_aside(self, name: str) -> bytes | None:
        return documents.read(self.fs, name) if self.fs.exists(name) else None

    def write_aside(self, name: str, document: bytes) -> None:
        documents.replace(self.fs, name, document)

    def check_held(self) -> None:
        """It stays locked."""

    def check_directory(self, what: str) -> None:
        del what

    def mvcc(self) -> MvccManager:
        return MvccManager(self.clock)

    def close(self) -> None:
        self._lock.close()

    def _create(self, store_uuid: str) -> ManifestFile:
        """Make an empty store; raises if there are remains of another."""
        for directory in (files.ROOT, LOG):
            if self.fs.exists(directory) and self.fs.list(directory):
                raise CorruptionError("manifest", 0, f"there is no manifest, but the directory {directory} has files")
            self.fs.make_directory(directory)
        self.fs.sync_directory("")
        return ManifestFile.create(self.fs, store_uuid)

"""Opens a store for reading only: in a directory, or in a bucket."""

from __future__ import annotations

from contextlib import suppress

from ...schemas.errors import InvalidArgumentError, NotFoundError
from ..commit.authors_file import NAME as AUTHORS
from ..fs import LocalFileSystem
from ..fs import document as documents
from ..fs.encryption.key_source import KeySource
from ..fs.encryption.opening import Encrypted, check_key
from ..fs.failures import named
from ..fs.filesystem import FileSystem
from ..fs.read_only import ReadOnlyFileSystem
from ..home.bucket import BucketHome
from ..home.checkpoint_mark import has_store
from ..mvcc.clock import Clock, SystemClock
from ..options import StoreOptions
from .read_only_store import ReadOnlyStore
from .segments import SegmentPoint, SegmentSource
from .slots import SlotPoint, SlotSource


def open_to_read(
    where: str | FileSystem | BucketHome, options: StoreOptions | None = None, clock: Clock | None = None
) -> ReadOnlyStore[SegmentPoint] | ReadOnlyStore[SlotPoint]:
    """Open the store in a directory, or in a bucket, for reading only.

    Raises:
        NotFoundError: there is no store.
        UnavailableError: the disk fails, or the bucket does not answer.
        CorruptionError: the log or the manifest is damaged.
        InvalidArgumentError: another version of Nyala wrote it, or the key does not fit.
    """
    options, clock = options or StoreOptions(), clock or SystemClock()
    if isinstance(where, BucketHome):
        return _in_bucket(where, options, clock)
    if isinstance(where, str):
        return _in_directory(LocalFileSystem(where, keeps_open=True), LocalFileSystem(where), options, clock)
    return _in_directory(where, where, options, clock)


def _in_directory(
    watched: FileSystem, local: FileSystem, options: StoreOptions, clock: Clock
) -> ReadOnlyStore[SegmentPoint]:
    """``watched`` keeps open what may be replaced under its name; ``local`` are the same files."""
    root = getattr(watched, "root", "")
    with named(f"the store in {root} could not be opened"):
        if not has_store(watched):
            with suppress(FileNotFoundError):
                watched.list("")  # it may be a file
            raise NotFoundError(f"there is no store in {root}: check the path, or create one with nyala.open(path)")
        plain = check_key(watched, KeySource(options.key_file, options.key_command, options.key).read())
    assert plain is not None, "there is a store"
    kept = ReadOnlyFileSystem(local)
    files = plain.over(kept) if isinstance(plain, Encrypted) else kept
    return ReadOnlyStore(root, SegmentSource(plain, files, clock), _BesideFiles(files), options, clock)


def _in_bucket(home: BucketHome, options: StoreOptions, clock: Clock) -> ReadOnlyStore[SlotPoint]:
    if KeySource(options.key_file, options.key_command, options.key) != KeySource():
        raise InvalidArgumentError("a store in a bucket is not encrypted: give no key")
    if not home.has_store():
        raise home.missing()
    source = SlotSource(home, home.slots, home.take_cache(options))
    return ReadOnlyStore(home.where, source, _BesideSlots(home), options, clock, is_far=True)


class _BesideFiles:
    """The documents beside a store in a directory that is only read. See ``Aside``."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def read_aside(self, name: str) -> bytes | None:
        return documents.read(self._fs, name) if self._fs.exists(name) else None

    def write_aside(self, name: str, document: bytes) -> None:
        raise AssertionError(f"{AUTHORS} is only read")


class _BesideSlots:
    """The same of a store in a bucket."""

    def __init__(self, home: BucketHome) -> None:
        self._home = home

    def read_aside(self, name: str) -> bytes | None:
        try:
            return self._home.bucket.get(self._home.prefix + name)
        except FileNotFoundError:
            return None

    def write_aside(self, name: str, document: bytes) -> None:
        raise AssertionError(f"{AUTHORS} is only read")

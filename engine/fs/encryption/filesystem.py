"""A file system whose files are encrypted on another one. Names, and about how long files are, stay visible there."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from ....schemas.errors import CorruptionError
from ..far import FarFile, FarFileSystem, fetched_again
from ..filesystem import FileSystem, ReadableFile, WritableFile
from ..subdirectory import DirectoryFileSystem
from .blocks import BLOCK_BYTES, BlockReader, BlockWriter, FarBlockReader, size_of
from .header import BLOCKS, HEADER_BYTES, RECORDS, new_header, open_header
from .keyring import TAG_BYTES, Keyring, copy_keys
from .names import COPY_PATH, PATH
from .records import RECORD_BYTES, RecordReader, RecordWriter, space_for


class EncryptedFileSystem(DirectoryFileSystem):
    """The files of an encrypted store; what callers read and write, and all sizes, are those of the plain content.

    A file without ``preallocate`` is written in order, and not any more once it is synced. The files with the keys are
    read as they are.
    """

    def __init__(self, fs: FileSystem, keyring: Keyring) -> None:
        super().__init__(fs, "")
        self._keyring = keyring
        if isinstance(fs, FarFileSystem):  # and so is this one
            self.fetch_ends = partial(_fetch_ends, fs)

    @property
    def root(self) -> str:
        """The name of the directory below, for messages."""
        return getattr(self._inner, "root", "")

    def over(self, fs: FileSystem) -> EncryptedFileSystem:
        """Return the files of another directory, with the same keys. Changes nothing."""
        return EncryptedFileSystem(fs, self._keyring)

    def give_keys(self, fs: FileSystem) -> None:
        """Give another directory these keys, durably."""
        copy_keys(self._inner, fs)

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        if not preallocate:
            head, opened = new_header(self._keyring, BLOCKS, BLOCK_BYTES, 0)
            return BlockWriter(super().create(path), head, opened)
        head, opened = new_header(self._keyring, RECORDS, RECORD_BYTES, preallocate)
        inner = super().create(path, space_for(preallocate))
        try:
            inner.pwrite(0, head)
            inner.sync()  # before any record: a file without a sound head has nothing else
        except BaseException:
            inner.close()
            self.unlink(path)
            raise
        return RecordWriter(inner, opened)

    def open(self, path: str) -> ReadableFile:
        """Open a file.

        Raises, besides OSError:
            InvalidArgumentError: the store's keys are older than the file.
            CorruptionError: its key cannot be read.
        """
        inner = super().open(path)
        if path in (PATH, COPY_PATH):
            return inner
        try:
            try:
                opened = fetched_again(inner, lambda: open_header(self._keyring, path, inner.pread(0, HEADER_BYTES)))
            except CorruptionError:
                if _has_nothing(inner):
                    return _NothingYet(inner)
                raise
            if opened.layout == RECORDS:
                return RecordReader(inner, path, opened)
            if isinstance(inner, FarFile):
                return FarBlockReader(inner, inner, path, opened)
            return BlockReader(inner, path, opened)
        except BaseException:
            inner.close()
            raise

    def size(self, path: str) -> int:
        if path in (PATH, COPY_PATH):
            return super().size(path)
        inner = super().open(path)
        try:
            try:
                opened = open_header(self._keyring, path, inner.pread(0, HEADER_BYTES))
            except CorruptionError:
                return 0
            return opened.size if opened.layout == RECORDS else size_of(inner.size - HEADER_BYTES, opened.piece)
        finally:
            inner.close()


def _has_nothing(inner: ReadableFile) -> bool:
    """Whether nothing was written after a head that is not sound: a crash came before the head was durable. A head is
    written at once: a part of one is what is left of a file that was cut."""
    start = HEADER_BYTES if inner.size >= HEADER_BYTES else 0
    return not np.frombuffer(inner.view()[start:], np.uint8).any()


class _NothingYet:
    """A file that a crash left without a head, hence without content."""

    size = 0

    def __init__(self, inner: ReadableFile) -> None:
        self._inner = inner

    def pread(self, offset: int, length: int) -> bytes:
        return b""

    def read_into(self, offset: int, buffer: object) -> int:
        return 0

    def view(self) -> memoryview:
        return memoryview(b"")

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()


def _fetch_ends(fs: FarFileSystem, paths: Iterable[str], head_bytes: int, tail_bytes: int) -> None:
    """See FarFileSystem."""
    stride = BLOCK_BYTES + TAG_BYTES
    head = HEADER_BYTES + -(-head_bytes // BLOCK_BYTES) * stride
    fs.fetch_ends(paths, head, (tail_bytes // BLOCK_BYTES + 2) * stride)

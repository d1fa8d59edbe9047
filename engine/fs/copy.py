"""Reads whole files, and copies them from one file system to another."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pyarrow as pa

from ...schemas.errors import CorruptionError
from .failures import reading
from .filesystem import FileSystem, ReadableFile

_PIECE_BYTES = 4 << 20
NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
"""The errors of a link that a disk cannot make."""


def pieces_of(fs: FileSystem, path: str) -> Iterator[memoryview]:
    """Yield the bytes of a whole file, piece by piece, each in its own memory. Raises OSError."""
    file = fs.open(path)
    try:
        offset = 0
        while piece := file.pread(offset, _PIECE_BYTES):
            yield memoryview(piece)
            offset += len(piece)
    finally:
        file.close()


def read_exactly(file: ReadableFile, path: str, offset: int, length: int) -> memoryview:
    """Return bytes of the open file ``path``, in their own memory.

    Raises:
        CorruptionError: the file ends before, or is gone.
        UnreadableFileError: the disk does not return them.
    """
    content = memoryview(pa.allocate_buffer(length)).cast("B")  # a bytearray would be filled with zeros first
    with reading(path, offset):
        count = file.read_into(offset, content) if length else 0
    if count < length:
        raise CorruptionError(path, offset + count, f"the file ends here; {length - count:,} bytes are missing")
    return content.toreadonly()


def bring(source: FileSystem, name: str, target: FileSystem, path: str) -> None:
    """Link a file that never changes to another name, or copy it where links fail; its content becomes durable."""
    if source is target:
        try:
            target.sync_file(name)
            target.link(name, path)
            return
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
    copy_file(source, name, target, path)


def copy_file(source: FileSystem, name: str, target: FileSystem, path: str) -> None:
    """Copy a file; the content of the copy becomes durable."""
    file = target.create(path)
    try:
        for piece in pieces_of(source, name):
            file.append(piece)
        file.sync()
    finally:
        file.close()

"""pyarrow's file systems, such as S3, for whole files: written once from front to end, read anywhere.

Files there appear only as a whole: an upload that was not synced is nothing. So such a place can hold the files of
imports for a store, never the store: it has no log, no lock and no atomic rename.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as arrow_fs

from ...schemas.errors import InvalidArgumentError
from ...schemas.uri import line_without, shown_uri
from .file_parts import AppendingFile, CopyingFile
from .filesystem import FileLock, clean_path, join, os_error, other_disk, parent_of, require_same_directory, views_of

if TYPE_CHECKING:
    from .filesystem import BytesLike, FileSystem

_FREE_BYTES = 1 << 62


class ArrowFileSystem:
    """The files under ``root`` of a pyarrow file system."""

    def __init__(self, inner: arrow_fs.FileSystem, root: str) -> None:
        self._inner = inner
        self._root = root.rstrip("/")

    @classmethod
    def from_uri(cls, uri: str) -> ArrowFileSystem:
        """Return the place at a URI, as in ``s3://bucket/prefix?region=...&endpoint_override=...``.

        Credentials are best left to the environment. Raises InvalidArgumentError for an invalid URI.
        """
        try:
            inner, root = arrow_fs.FileSystem.from_uri(uri)
            if not root:
                raise ValueError("it has no bucket")
        except (pa.ArrowException, ValueError, OSError) as error:
            why = line_without(error, uri)
            raise InvalidArgumentError(f"{shown_uri(uri)!r} is not a valid path or URI of files: {why}") from None
        return cls(inner, root)

    def __repr__(self) -> str:
        return f"ArrowFileSystem({self._inner.type_name}, {self._root!r})"

    def create(self, path: str, preallocate: int = 0) -> ArrowWritableFile:
        if preallocate:
            raise _not_supported(path)
        if self.exists(path):
            raise os_error(errno.EEXIST, path)
        if not self.exists(parent_of(clean_path(path))):
            raise os_error(errno.ENOENT, path)
        return ArrowWritableFile(self._inner.open_output_stream(self._locate(path)), path)

    def open(self, path: str) -> ArrowReadableFile:
        return ArrowReadableFile(self._inner.open_input_file(self._locate(path)))

    def sync_file(self, path: str) -> None:
        self.size(path)

    def rename(self, old: str, new: str) -> None:
        require_same_directory(old, new)
        self._inner.move(self._locate(old), self._locate(new))

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        # There are no links here; a copy serves for a file that never changes.
        if into not in (None, self):
            raise other_disk(new)
        if self.exists(new):
            raise os_error(errno.EEXIST, new)
        self._inner.copy_file(self._locate(old), self._locate(new))

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        return False

    def unlink(self, path: str) -> None:
        kind = self._info(path).type
        if kind == arrow_fs.FileType.Directory:
            raise os_error(errno.EISDIR, path)
        if kind == arrow_fs.FileType.NotFound:
            raise os_error(errno.ENOENT, path)
        self._inner.delete_file(self._locate(path))

    def make_directory(self, path: str) -> None:
        if self._info(path).type == arrow_fs.FileType.NotFound:
            self._inner.create_dir(self._locate(path), recursive=True)

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise os_error(errno.ENOTEMPTY, path)
        self._inner.delete_dir(self._locate(path))

    def sync_directory(self, path: str) -> None:
        """Do nothing: a name appears with its file."""

    def list(self, path: str) -> list[str]:
        kind = self._info(path).type
        if kind == arrow_fs.FileType.NotFound:
            raise os_error(errno.ENOENT, path)
        if kind == arrow_fs.FileType.File:
            raise os_error(errno.ENOTDIR, path)
        found = self._inner.get_file_info(arrow_fs.FileSelector(self._locate(path)))
        return sorted(each.base_name for each in found)

    def exists(self, path: str) -> bool:
        return self._info(path).type != arrow_fs.FileType.NotFound

    def size(self, path: str) -> int:
        info = self._info(path)
        if info.type != arrow_fs.FileType.File:
            raise os_error(errno.ENOENT, path)
        return info.size

    def lock(self, path: str) -> FileLock:
        raise _not_supported(path)

    def free_bytes(self, path: str) -> int:
        return _FREE_BYTES

    def total_bytes(self, path: str) -> int:
        return _FREE_BYTES

    def _info(self, path: str) -> arrow_fs.FileInfo:
        return self._inner.get_file_info(self._locate(path))

    def _locate(self, path: str) -> str:
        cleaned = clean_path(path)
        return join(self._root, cleaned) if cleaned else self._root


class ArrowWritableFile(AppendingFile):
    """A new file of a pyarrow file system: an upload. It ends with ``sync`` or ``close``, and cannot be continued."""

    def __init__(self, stream: pa.NativeFile, path: str) -> None:
        self._stream = stream
        self._path = path
        self._size = 0

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        if offset != self._size:
            raise _not_supported(self._path)
        if self._stream.closed:
            raise os_error(errno.EBADF, self._path)
        for view in views_of(pieces):
            self._stream.write(view)
            self._size += view.nbytes

    def flush(self) -> None:
        self._stream.close()

    def sync(self) -> None:
        self._stream.close()

    def check(self) -> None:
        raise _not_supported(self._path)

    def close(self) -> None:
        self._stream.close()


class ArrowReadableFile(CopyingFile):
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._size = file.size()

    def pread(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self._size - offset))
        return self._file.read_at(length, offset) if length else b""

    def check(self) -> None:
        """Do nothing: files appear only as a whole."""

    def close(self) -> None:
        self._file.close()


def _not_supported(path: str) -> OSError:
    return OSError(errno.ENOTSUP, "files here are written once, from front to end", path)

"""A directory of a file system as its own file system."""

from __future__ import annotations

from .filesystem import FileLock, FileSystem, ReadableFile, WritableFile, clean_path, join, other_disk


class DirectoryFileSystem:
    """The files under ``directory`` of another file system; paths are relative to it and stay inside it."""

    def __init__(self, inner: FileSystem, directory: str) -> None:
        self._inner = inner
        self._directory = clean_path(directory)

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        return self._inner.create(self._locate(path), preallocate)

    def open(self, path: str) -> ReadableFile:
        return self._inner.open(self._locate(path))

    def sync_file(self, path: str) -> None:
        self._inner.sync_file(self._locate(path))

    def rename(self, old: str, new: str) -> None:
        self._inner.rename(self._locate(old), self._locate(new))

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        target = self if into is None else into
        if not isinstance(target, DirectoryFileSystem):
            raise other_disk(new)
        self._inner.link(self._locate(old), target._locate(new), target._inner)

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        target = self if into is None else into
        if not isinstance(target, DirectoryFileSystem):
            return False
        return self._inner.is_linked(self._locate(old), target._locate(new), target._inner)

    def unlink(self, path: str) -> None:
        self._inner.unlink(self._locate(path))

    def make_directory(self, path: str) -> None:
        self._inner.make_directory(self._locate(path))

    def remove_directory(self, path: str) -> None:
        self._inner.remove_directory(self._locate(path))

    def sync_directory(self, path: str) -> None:
        self._inner.sync_directory(self._locate(path))

    def list(self, path: str) -> list[str]:
        return self._inner.list(self._locate(path))

    def exists(self, path: str) -> bool:
        return self._inner.exists(self._locate(path))

    def size(self, path: str) -> int:
        return self._inner.size(self._locate(path))

    def lock(self, path: str) -> FileLock:
        return self._inner.lock(self._locate(path))

    def free_bytes(self, path: str) -> int:
        return self._inner.free_bytes(self._locate(path))

    def total_bytes(self, path: str) -> int:
        return self._inner.total_bytes(self._locate(path))

    def _locate(self, path: str) -> str:
        cleaned = clean_path(path)
        return join(self._directory, cleaned) if cleaned else self._directory

"""Beside: the disk of a store as a second process sees it, which reads the store there."""

from __future__ import annotations

import errno

import nyala
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import ReadableFile
from nyala.engine.replica.opening import open_to_read
from tests.doubles.faulty import FaultyFileSystem, FaultyReadableFile


def open_beside(disk: MemoryFileSystem) -> nyala.Database:
    """Open the store on a disk for reading only, as a process does that has nothing in common with its holder."""
    return nyala.Database(open_to_read(_SeenFromAside(disk)))


class _SeenFromAside(FaultyFileSystem):
    """Files that notice when a name that was theirs is gone, or another file has it."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        super().__init__(disk)
        self.disk = disk

    def open(self, path: str) -> ReadableFile:
        return _NoticingFile(self, path)


class _NoticingFile(FaultyReadableFile):
    def __init__(self, seen: _SeenFromAside, path: str) -> None:
        opened = seen.disk.open(path)
        super().__init__(seen, path, opened)
        self._seen, self._name, self._opened = seen.disk, path, opened._file

    def check(self) -> None:
        if self._seen._file(self._name) is not self._opened:
            raise OSError(errno.ESTALE, "another file has its name", self._name)

"""A directory as a bucket: a name is created by a hard link, which fails if it is taken.

    log/00000000000000000042      objects are files under their names
    .temporary/<n>/               what writer n has not named yet
    .temporary/<n>.lock           held by writer n

    <directory>/.replacing.<n>.<m>  on its way to its name, which another file may have

A file is written under a temporary name and synced, linked to its name, and the directory is synced. Processes of one
machine may share the directory, and those of several machines if its file system links and locks atomically. What a
killed process left in ``.temporary`` is removed by the next writer, and beside objects by who lists them, once nobody
has the number of that process.
"""

from __future__ import annotations

import errno
import itertools
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ...schemas.errors import UnavailableError
from .. import threads
from ..fs.filesystem import FileSystem, ReadableFile, WritableFile, join, parent_of
from ..fs.tree import remove_tree
from .objects import pieces_of
from .patient import Patience, PatientBucket

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike

_TEMPORARY = ".temporary"
_REPLACING = ".replacing"
_LEFT = re.compile(rf"{re.escape(_REPLACING)}\.(?:\.temporary\.)?(\d+)\.(\d+)")
"""What is on its way: of which writer, and its temporary name. Older versions had another word in it."""


class DirectoryObjects:
    """The objects of a bucket as files under the root of a file system that has hard links. Names that begin with a dot
    are its own."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._mutex = threads.Lock()
        self._counter = itertools.count()
        self._place = ""
        self._has_failed = False
        self._durable = {""}
        """The directories whose own names are durable."""

    def __repr__(self) -> str:
        return f"{self._fs!r}"

    def within(self, seconds: float) -> DirectoryObjects:
        return self

    def put_if_absent(self, name: str, content: bytes) -> None:
        with self._temporary(content) as temporary:
            self._make_directory(parent_of(name))
            try:
                self._fs.link(temporary, name)
            finally:
                # Also of a name that was taken: who looks at it next must not see what a power failure may undo.
                self._sync(parent_of(name))

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        with self._temporary(content) as temporary:
            parent = parent_of(name)
            self._make_directory(parent)
            replacing = join(parent, f"{_REPLACING}{temporary.removeprefix(_TEMPORARY).replace('/', '.')}")
            self._fs.link(temporary, replacing)  # a rename stays in one directory
            self._fs.rename(replacing, name)
            self._sync(parent)

    def get(self, name: str) -> bytes:
        with self._opened(name) as file:
            return file.pread(0, file.size)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self._opened(name) as file:
            return [file.pread(offset, length) for offset, length in ranges]

    def size(self, name: str) -> int:
        with self._opened(name) as file:
            return file.size

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        return [(name, size) for name, size in self._walk(prefix.rstrip("/")) if name > after]

    def delete(self, names: Sequence[str]) -> None:
        parents = set()
        for name in names:
            with suppress(FileNotFoundError):
                self._fs.unlink(name)
                parents.add(parent_of(name))
        for parent in sorted(parents):
            self._sync(parent)

    def copy(self, source: str, target: str) -> None:
        with self._opened(source) as file:
            self.put(target, file)

    @contextmanager
    def _opened(self, name: str) -> Iterator[ReadableFile]:
        self._check()
        try:
            file = self._fs.open(name)
        except OSError as error:
            if self._is_directory(name):
                raise FileNotFoundError(errno.ENOENT, "no such object", name) from error
            raise
        try:
            yield file
        finally:
            file.close()

    def _is_directory(self, path: str) -> bool:
        try:
            self._fs.list(path)
        except OSError:
            return False
        return True

    def _walk(self, path: str) -> Iterator[tuple[str, int]]:
        """Yield (name, size) of the file ``path``, or of all under the directory."""
        self._check()
        try:
            inside = self._fs.list(path)
        except NotADirectoryError:
            with suppress(FileNotFoundError):  # it was deleted meanwhile
                yield path, self._fs.size(path)
            return
        except FileNotFoundError:
            return
        for name in inside:
            if not name.startswith("."):
                yield from self._walk(join(path, name))
            elif name.startswith(_REPLACING):
                self._sweep_replacing(join(path, name), name)

    @contextmanager
    def _temporary(self, content: BytesLike | ReadableFile) -> Iterator[str]:
        """Yield the path of a new file with ``content``, which is durable; the name is not, and goes at the end."""
        self._check()
        path, file = self._create_temporary()
        try:
            try:
                for piece in pieces_of(content):
                    file.append(piece)
                file.sync()
            finally:
                file.close()
            yield path
        finally:
            with suppress(OSError):
                self._fs.unlink(path)

    def _create_temporary(self) -> tuple[str, WritableFile]:
        with self._mutex:
            self._place = self._place or self._take_place()
        while True:
            path = join(self._place, str(next(self._counter)))
            with suppress(FileExistsError):  # by a process that was forked from this one
                return path, self._fs.create(path)

    def _take_place(self) -> str:
        """Return an empty directory that no other process writes to."""
        self._fs.make_directory(_TEMPORARY)
        for number in itertools.count():
            place = join(_TEMPORARY, str(number))
            with suppress(UnavailableError):  # another has it
                weakref.finalize(self, self._fs.lock(f"{place}.lock").close)
                remove_tree(self._fs, place)
                self._fs.make_directory(place)
                self._sweep_places(place)
                return place
        raise AssertionError("numbers do not end")

    def _sweep_places(self, own: str) -> None:
        """Empty the directories of writers that are gone."""
        for name in self._fs.list(_TEMPORARY):
            place = join(_TEMPORARY, name)
            if place != own and name.isdecimal():
                with suppress(OSError, UnavailableError), self._locked(place):
                    remove_tree(self._fs, place)

    def _sweep_replacing(self, path: str, name: str) -> None:
        """Remove a file that a writer left on its way to its name, if that one is gone."""
        found = _LEFT.fullmatch(name)
        if not found:
            return  # not ours
        place = join(_TEMPORARY, found[1])
        with suppress(OSError, UnavailableError):
            if place != self._place:
                with self._locked(place):
                    self._fs.unlink(path)
            elif not self._fs.exists(join(place, found[2])):  # which is there as long as this one is on its way
                self._fs.unlink(path)

    @contextmanager
    def _locked(self, place: str) -> Iterator[None]:
        """Be the writer of a place. Raises UnavailableError: there is one."""
        lock = self._fs.lock(f"{place}.lock")
        try:
            yield
        finally:
            lock.close()

    def _make_directory(self, path: str) -> None:
        """Make a directory, durably."""
        if path in self._durable:
            return
        self._make_directory(parent_of(path))
        self._fs.make_directory(path)
        self._sync(parent_of(path))
        self._durable.add(path)

    def _sync(self, directory: str) -> None:
        """Make the names in a directory durable."""
        self._check()
        try:
            self._fs.sync_directory(directory)
        except OSError:
            self._has_failed = True
            raise

    def _check(self) -> None:
        """After a sync has failed, names are there that a power failure may take away: trust none any more."""
        if self._has_failed:
            raise OSError(errno.EIO, "a sync of the directory failed: repair the disk, then restart the process")


class DirectoryBucket(PatientBucket):
    """The files under the root of a file system as a bucket."""

    def __init__(self, fs: FileSystem, patience: Patience | None = None) -> None:
        super().__init__(DirectoryObjects(fs), patience)

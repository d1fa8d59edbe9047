"""The names of a store's objects, as files in directories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ... import threads
from ..bucket import Bucket
from .fetching import answered


class ObjectTree:
    """The names of a store's objects in a bucket, as files by directory, with their sizes. A directory is there while
    something is in it."""

    def __init__(self, found: Iterable[tuple[str, int]] = ()) -> None:
        self._directories: dict[str, dict[str, int | None]] = {}
        """For each directory the names in it: a size, or None for a directory."""
        for path, size in found:
            self.add(path, size)

    def add(self, path: str, size: int) -> None:
        """Add a file, or note its new size."""
        directory, _, name = path.rpartition("/")
        self._directories.setdefault(directory, {})[name] = size
        while directory:
            above, _, name = directory.rpartition("/")
            names = self._directories.setdefault(above, {})
            if name in names:
                return
            names[name] = None
            directory = above

    def remove(self, path: str) -> None:
        """Remove a file, and the directories that have become empty."""
        while path:
            directory, _, name = path.rpartition("/")
            names = self._directories.get(directory, {})
            names.pop(name, None)
            if names:
                return
            self._directories.pop(directory, None)
            path = directory

    def size(self, path: str) -> int | None:
        """Return the size of a file, None if it is none."""
        directory, _, name = path.rpartition("/")
        return self._directories.get(directory, {}).get(name)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory."""
        return list(self._directories.get(directory, ()))


class ObjectNames:
    """The files of a store under a prefix of a bucket. Thread safe.

    Of the directories in ``own``, at the top, only this process changes anything: they are listed once, and known from
    then on, or until ``look_again``. Others are asked for each time, since other processes put files there; but not for
    those that ``take_stock`` found empty, until ``forget_stock``.
    """

    def __init__(
        self, bucket: Bucket, prefix: str, own: Collection[str], known: Mapping[str, int] | None = None
    ) -> None:
        """``known`` are the files in ``own`` with their sizes, if the caller knows them: then nothing is listed."""
        self._bucket = bucket
        self._prefix = prefix
        self._own = frozenset(own)
        self._known: dict[str, ObjectTree] = {}
        if known is not None:
            self._known = dict.fromkeys(self._own, ObjectTree(known.items()))
        self._stock: set[str] | None = None
        """The directories at the top that are not empty; None: ask."""
        self._lock = threads.Lock()

    def is_own(self, path: str) -> bool:
        """Whether a path is in a directory that only this process changes."""
        return path.split("/", 1)[0] in self._own

    def locate(self, path: str) -> str:
        """Return the name of a file's object."""
        return self._prefix + path

    def take_stock(self) -> None:
        """List everything by one request. Raises OSError."""
        found = self._found("")
        tops = {path.split("/", 1)[0] for path, _ in found}
        own = {top: ObjectTree(each for each in found if each[0].startswith(f"{top}/")) for top in self._own}
        with self._lock:
            self._known = own | self._known
            self._stock = tops

    def forget_stock(self) -> None:
        """Ask again for what other processes put."""
        with self._lock:
            self._stock = None

    def size(self, path: str) -> int | None:
        """Return the size of a file, None if there is none. Raises OSError."""
        if self.is_own(path):
            return self._tree(path).size(path)
        if self._is_empty(path):
            return None
        name = self.locate(path)
        try:
            with answered(name):
                return self._bucket.size(name)
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        """Return the names of files and directories in a directory; none if it is not there. Raises OSError."""
        return (self._tree(directory) if self.is_own(directory) else self._listed(directory)).names(directory)

    def add(self, path: str, size: int) -> None:
        """Take note of a file that has been put."""
        if self.is_own(path):
            tree = self._tree(path)
            with self._lock:
                tree.add(path, size)
        elif self._stock is not None:
            with self._lock:
                self._stock.add(path.split("/", 1)[0])

    def remove(self, path: str) -> None:
        """Take note of a file that will be deleted."""
        if self.is_own(path):
            tree = self._tree(path)
            with self._lock:
                tree.remove(path)

    def look_again(self, directory: str) -> list[str]:
        """List a directory of ``own`` once more, in which another process made and removed files; return the paths of
        those that are gone. Raises OSError."""
        tree, found = self._tree(directory), self._listed(directory)
        with self._lock:
            known = tree.names(directory)
            gone = [f"{directory}/{name}" for name in known if found.size(f"{directory}/{name}") is None]
            for path in gone:
                tree.remove(path)
            for name in found.names(directory):
                tree.add(f"{directory}/{name}", found.size(f"{directory}/{name}") or 0)
        return gone

    def _tree(self, path: str) -> ObjectTree:
        top = path.split("/", 1)[0]
        with self._lock:
            if top not in self._known:
                self._known[top] = self._listed(top)
            return self._known[top]

    def _is_empty(self, path: str) -> bool:
        stock = self._stock
        return stock is not None and path != "" and path.split("/", 1)[0] not in stock

    def _listed(self, directory: str) -> ObjectTree:
        return ObjectTree(() if self._is_empty(directory) else self._found(f"{directory}/" if directory else ""))

    def _found(self, start: str) -> list[tuple[str, int]]:
        """Return the path and the size of each file whose path begins with ``start``."""
        prefix = self.locate(start)
        with answered(prefix):
            found = self._bucket.list(prefix)
        return [(name.removeprefix(self._prefix), size) for name, size in found]

"""A store's files as objects of a bucket: a FileSystem, as far as a store needs one there.

A file is written on the disk of the cache, and ``sync`` uploads it: then it is durable, name and content, and others
see it whole. A file that was never synced is not in the bucket. What the protocol means here, and what it does not:

* ``rename`` of a file that was synced is a copy and a deletion: the new name has the old content or the new one, and
  after a crash both names may be there. Nothing keeps a process that has lost the store from it. So no file whose
  replacing counts, as that of a manifest does, lives here.
* ``unlink`` hides the file from this process. Its object goes when the owner of the log says so (``deletions``), and
  nobody in this process reads it, and no pin holds it.
* ``link`` is a copy, which the bucket makes; ``is_linked`` knows of none.
* Directories are not kept: one is there while something is in it, or since this process made it. To list one that is
  not there gives nothing.
* ``lock`` keeps other processes of this machine from the cache. Who has the store is decided by its log.
* A failure of the bucket is an OSError: EAGAIN when it gave no answer.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress

from ... import threads
from ...fs.filesystem import FileLock, FileSystem, clean_path, os_error, other_disk, parent_of, require_same_directory
from ..bucket import Bucket
from .cache import PieceCache
from .deletions import Deletions
from .fetching import Fetcher, answered
from .names import ObjectNames
from .new_file import NewFile
from .stored import StoredFile, StoredObject

_WHOLE_BYTES = 64 << 10
"""Files up to this size are fetched whole when they are opened."""


class BucketFileSystem:
    """The files of one store under a prefix of a bucket. Thread safe; ``close`` it when the store is closed."""

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        cache: FileSystem,
        capacity_bytes: int,
        store: str,
        own: Collection[str] = ("tablets",),
        is_held: Callable[[], bool] = lambda: True,
        is_pinned: Callable[[str], bool] = lambda path: False,
        known: Mapping[str, int] | None = None,
        maker_of: Callable[[str], str] = lambda path: "",
    ) -> None:
        """Use the objects whose names begin with ``prefix``, which is empty or ends with a slash.

        ``cache`` is a directory for this alone. It keeps up to ``capacity_bytes`` of what was read and written, besides
        what is being written; 0 reads everything from the bucket. ``store`` is the store's uuid: what the cache has of
        another is not used. In the directories ``own``, at the top, only this process makes and removes files, and no
        name is ever used twice, not even by another holder of the store: there the cache lasts, and names are listed
        once. But names repeat if the bucket was put back to an earlier state: so what the cache has of a path is used
        only if it is of the process that ``maker_of`` tells when the file is opened. ``is_held`` tells whether no other
        process can have the store now: else a missing object is no damage, but an OSError EAGAIN. A file that
        ``is_pinned`` is not deleted. ``known`` are the files in ``own`` with their sizes, for a reader who got them
        elsewhere. Raises OSError if the directory of the cache cannot be made.
        """
        cache.make_directory("")
        self._bucket = bucket
        self._disk = cache
        self._store = store
        self._maker_of = maker_of
        self._names = ObjectNames(bucket, prefix, own, known)
        self._cache = PieceCache(cache, capacity_bytes, self._names.is_own)
        self._fetcher = Fetcher(bucket, is_held)
        self._objects: dict[str, StoredObject] = {}
        """The objects that were opened or made, by path."""
        self._new: dict[str, NewFile] = {}
        """The files that are not in the bucket yet."""
        self._made: set[str] = {""}
        """The directories that this process made."""
        self._lock = threads.RLock()
        self.deletions = Deletions(bucket, self._names.locate, self._is_read, is_pinned, self._deleted)
        """The files that were unlinked, and wait for the log."""

    def __repr__(self) -> str:
        return f"BucketFileSystem({self._bucket!r}, {self._names.locate('')!r})"

    def create(self, path: str, preallocate: int = 0) -> NewFile:
        path = clean_path(path)
        if path in self._made or self._size(path) is not None:
            raise os_error(errno.EEXIST, path)
        with self._lock:
            if path in self._new:
                raise os_error(errno.EEXIST, path)
            self._replace(path)
            piece, inner = self._cache.create(path, preallocate)
            stored = self._objects[path] = self._stored(path, 0)
            file = NewFile(self._cache, stored, piece, inner, preallocate, self._put, self._is_there)
            self._new[path] = file
        return file

    def open(self, path: str) -> StoredFile:
        path = clean_path(path)
        with self._lock:
            if path in self._new:
                return StoredFile(self._objects[path])
        size, maker = self.size(path), self._maker_of(path)
        with self._lock:
            stored = self._objects.get(path)
            if stored is not None and (stored.size, stored.maker) != (size, maker):
                self._replace(path)
                stored = None
            if stored is None:
                stored = self._objects[path] = self._stored(path, size)
            return StoredFile(stored)

    def fetch_ends(self, paths: Iterable[str], head_bytes: int, tail_bytes: int) -> None:
        for path in paths:
            with suppress(OSError):  # whoever opens it gets the error
                file = self.open(path)
                is_small = file.size <= max(head_bytes + tail_bytes, _WHOLE_BYTES)
                ends = [(0, head_bytes), (file.size - tail_bytes, tail_bytes)]
                file.fetch([(0, file.size)] if is_small else [(at, length) for at, length in ends if length])

    def sync_file(self, path: str) -> None:
        path = clean_path(path)
        with self._lock:
            file = self._new.get(path)
        if file:
            file.sync()
        elif not self.exists(path):
            raise os_error(errno.ENOENT, path)

    def rename(self, old: str, new: str) -> None:
        require_same_directory(old, new)
        old, new = clean_path(old), clean_path(new)
        self.sync_file(old)
        size = self.size(old)
        self._copy(self._names.locate(old), new, size)
        self.unlink(old)

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        if into not in (None, self):
            raise other_disk(new)
        old, new = clean_path(old), clean_path(new)
        if self.exists(new):
            raise os_error(errno.EEXIST, new)
        self.sync_file(old)
        size = self.size(old)
        self._copy(self._names.locate(old), new, size)

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        return False

    def unlink(self, path: str) -> None:
        path = clean_path(path)
        with self._lock:
            file = self._new.get(path)
        if not file and self._size(path) is None:
            raise os_error(errno.EISDIR if self.exists(path) else errno.ENOENT, path)
        with self._lock:
            self._new.pop(path, None)
            if not file or file.was_sent:
                self._names.remove(path)
                self.deletions.ask(path)
            if (file and not file.was_sent) or not self._is_read(path):
                self._forget(path)

    def make_directory(self, path: str) -> None:
        path = clean_path(path)
        made: list[str] = []
        while path and path not in self._made:
            if self._size(path) is not None:
                raise os_error(errno.EEXIST, path)
            made.append(path)
            path = parent_of(path)
        with self._lock:
            self._made.update(made)

    def remove_directory(self, path: str) -> None:
        path = clean_path(path)
        if self._inside(path):
            raise os_error(errno.ENOTEMPTY, path)
        with self._lock:
            self._made.discard(path)

    def sync_directory(self, path: str) -> None:
        """Do nothing: a name is durable with its file."""

    def list(self, path: str) -> list[str]:
        path = clean_path(path)
        if path and self._size(path) is not None:
            raise os_error(errno.ENOTDIR, path)
        return sorted(self._inside(path))

    def exists(self, path: str) -> bool:
        path = clean_path(path)
        return path in self._made or self._size(path) is not None or bool(self._inside(path))

    def size(self, path: str) -> int:
        path = clean_path(path)
        size = self._size(path)
        if size is None:
            raise os_error(errno.EISDIR if path in self._made else errno.ENOENT, path)
        return size

    def lock(self, path: str) -> FileLock:
        return self._disk.lock(path)

    def free_bytes(self, path: str) -> int:
        """Return the space for new files, which are on this machine until they are synced."""
        with suppress(OSError):
            return self._disk.free_bytes("") + self._cache.size_bytes
        self._disk.make_directory("")  # somebody deleted it with the whole cache
        return self._disk.free_bytes("") + self._cache.size_bytes

    def total_bytes(self, path: str) -> int:
        return self._disk.total_bytes("")

    def copy_object(self, name: str, path: str) -> int:
        """Have the bucket copy an object of another store to ``path``, a new name; return its bytes. Raises OSError:
        EEXIST if there is such a file."""
        path = clean_path(path)
        if self._size(path) is not None:
            raise os_error(errno.EEXIST, path)
        with answered(path):
            size = self._bucket.size(name)
        try:
            self._copy(name, path, size)
        except OSError:  # it may appear nevertheless
            with self._lock:
                if self._size(path) is None:  # else another call has made it
                    self.deletions.ask(path)
            raise
        return size

    def look_again(self, directory: str) -> None:
        """List a directory of ``own`` once more: for a reader beside the process that makes and removes its files."""
        gone = self._names.look_again(clean_path(directory))
        with self._lock:
            for path in gone:  # those who read one go on with what is here of it
                self._forget(path)

    def is_read(self, path: str) -> bool:
        """Whether somebody has a file open."""
        with self._lock:
            return self._is_read(clean_path(path))

    def take_stock(self) -> None:
        """List everything by one request: what is not in ``own``, and empty now, is not asked for until
        ``forget_stock``. For an opening, which looks into many such directories. Raises OSError."""
        self._names.take_stock()

    def forget_stock(self) -> None:
        """See ``take_stock``."""
        self._names.forget_stock()

    def close(self, wait: bool = True) -> None:
        """End the threads that fetch, and ``wait`` for them."""
        self._fetcher.close(wait)

    def _inside(self, path: str) -> set[str]:
        """Return the names in a directory."""
        start = f"{path}/" if path else ""
        found = {name for name in self._names.names(path) if start + name not in self.deletions}
        with self._lock:
            here = [each for each in (*self._new, *self._made) if each.startswith(start) and each != path]
        return found.union(each.removeprefix(start).split("/", 1)[0] for each in here)

    def _size(self, path: str) -> int | None:
        """Return the size of a file; None if there is none that this process sees."""
        with self._lock:
            if path in self._new:
                return self._objects[path].size
            if path in self.deletions or not path:
                return None
        return self._names.size(path)

    def _stored(self, path: str, size: int) -> StoredObject:
        name, maker = self._names.locate(path), self._maker_of(path)
        return StoredObject(self._cache, self._fetcher, self._store, maker, path, name, size)

    def _put(self, file: NewFile) -> None:
        """Upload a file, which is then in the bucket."""
        path, reader = file.stored.path, StoredFile(file.stored)
        try:
            self.deletions.withdraw(path)
            with answered(path):
                self._bucket.put(self._names.locate(path), reader)
        finally:
            reader.close()
        with self._lock:
            if self._is_there(file):
                self._names.add(path, file.stored.size)
                self._new.pop(path, None)

    def _copy(self, name: str, new: str, size: int) -> None:
        self.deletions.withdraw(new)
        with answered(name):
            self._bucket.copy(name, self._names.locate(new))
        with self._lock:
            self._new.pop(new, None)
            self._replace(new)
            self._names.add(new, size)

    def _is_there(self, file: NewFile) -> bool:
        path = file.stored.path
        return self._objects.get(path) is file.stored and path not in self.deletions

    def _is_read(self, path: str) -> bool:
        stored = self._objects.get(path)
        return stored is not None and len(stored.readers) > 0

    def _deleted(self, path: str) -> None:
        with self._lock:
            if path not in self._new:
                self._forget(path)

    def _replace(self, path: str) -> None:
        """Give a name to another object; those who read the one before may go on with what is here of it."""
        stored = self._objects.get(path)
        if stored:
            stored.is_replaced = True
        self._forget(path)

    def _forget(self, path: str) -> None:
        self._cache.drop(path, self._is_read(path))
        self._objects.pop(path, None)

"""An object as this process knows it: which of its bytes are here, which are coming, and who reads it."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from ...fs.file_parts import FillingFile
from .cache import PieceCache
from .fetching import Coming, Fetcher, Range, requests
from .piece import key_of

if TYPE_CHECKING:
    from ...fs.filesystem import BytesLike


class StoredObject:
    """One object of a bucket, read through the cache. Thread safe."""

    def __init__(
        self, cache: PieceCache, fetcher: Fetcher, store: str, maker: str, path: str, name: str, size: int
    ) -> None:
        self.path = path
        self.size = size
        """Bytes in it; of a new file, those written so far."""
        self.readers: WeakSet[StoredFile] = WeakSet()
        self.is_replaced = False
        """Whether its name has been given to another object, so that nothing more of it can be fetched."""
        self._cache = cache
        self._fetcher = fetcher
        self._store = store
        self.maker = maker
        self._name = name
        self._extents = cache.of(path)
        self._coming: list[Coming] = []

    def key(self, first: int) -> bytes:
        """Return the key of its piece at ``first``."""
        return key_of(self._store, self.maker, self.path, self.size, first)

    def read_into(self, offset: int, target: memoryview, is_checked: bool) -> int:
        """Fill ``target`` with what stands from ``offset`` on; return how many bytes came. Raises OSError."""
        end = min(offset + len(target), self.size)
        at = offset
        while at < end:
            at += self._read_some(at, target[at - offset : end - offset], is_checked)
        return max(at - offset, 0)

    def fetch(self, ranges: Iterable[Range]) -> None:
        """Begin to fetch what is missing of these ranges; see ``FarFile.fetch``."""
        if not self._cache.is_keeping:
            return  # nobody could keep it until it is read
        with self._cache.lock:
            wanted = [
                (max(0, first), min(last, self.size)) for first, last in ranges if not self._extents.have(first, last)
            ]
            coming = [self._announce(*each) for each in requests(wanted, self._taken(wanted))]
        for each in coming:
            self._fetcher.begin(partial(self._fetch_quietly, each))

    def forget(self, first: int, last: int) -> None:
        """Drop what is kept of the bytes [first, last)."""
        with self._cache.lock:
            for piece in self._extents.within(first, last):
                self._cache.discard(self._extents, piece)

    def _read_some(self, at: int, target: memoryview, is_checked: bool) -> int:
        """Fill the beginning of ``target``; return how many bytes came: none if what was kept is worth nothing."""
        with self._cache.lock:
            piece, coming = self._extents.at(at), None
            if piece:
                self._cache.touch(piece)
            else:
                coming = next((each for each in self._coming if each.first <= at < each.last), None)
                if coming is None:
                    coming = self._announce(at, self._end_of_gap(at, at + len(target)))
        if piece:
            try:
                count = piece.read(at, target, self.key, is_checked)
            except OSError:
                if piece.pinned:
                    raise
                count = 0
            if not count:
                if piece.pinned:
                    raise OSError(errno.EIO, "the disk of the cache returned bytes that were not written", self.path)
                self._cache.discard(self._extents, piece)
            return count
        assert coming is not None
        content = self._fetch(coming) if self._begin(coming) else coming.content.result()
        part = memoryview(content)[at - coming.first :][: len(target)]
        target[: len(part)] = part
        return len(part)

    def _end_of_gap(self, at: int, end: int) -> int:
        starts = [each.first for each in self._coming if each.first > at]
        following = self._extents.next_after(at)
        return min([end, *starts] if following is None else [end, following, *starts])

    def _taken(self, wanted: list[Range]) -> list[Range]:
        """Return what is here or coming of these ranges and of what lies between them."""
        if not wanted:
            return []
        first, last = min(wanted)[0], max(end for _, end in wanted)
        here = [(piece.first, piece.last) for piece in self._extents.within(first, last)]
        return here + [(each.first, each.last) for each in self._coming]

    def _announce(self, first: int, last: int) -> Coming:
        coming = Coming(first, last)
        self._coming.append(coming)
        return coming

    def _begin(self, coming: Coming) -> bool:
        """Whether the caller is the one to fetch it."""
        with self._cache.lock:
            is_first, coming.is_begun = not coming.is_begun, True
        return is_first

    def _fetch(self, coming: Coming) -> bytes:
        """Fetch what was announced, and keep it."""
        try:
            if self.is_replaced:
                raise OSError(errno.ESTALE, "another object now has this name", self.path)
            content = self._fetcher.read(self._name, coming.first, coming.last)
            ended = partial(self._coming.remove, coming)  # who finds these bytes wrong gets them from here no more
            self._cache.keep(self.path, self._extents, self.key(coming.first), coming.first, content, ended)
        except BaseException as error:
            with self._cache.lock, suppress(ValueError):
                self._coming.remove(coming)
            coming.content.set_exception(error)
            raise
        coming.content.set_result(content)
        return content

    def _fetch_quietly(self, coming: Coming) -> None:
        if self._begin(coming):
            with suppress(OSError):  # whoever reads it gets the error
                self._fetch(coming)


class StoredFile(FillingFile):
    """An object of a bucket, open for reading as a file: a ReadableFile and a FarFile."""

    def __init__(self, stored: StoredObject) -> None:
        self._stored = stored
        self._size = stored.size
        self._is_open = True
        stored.readers.add(self)

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        return self._read(offset, buffer, is_checked=True)

    def read_unchecked(self, offset: int, buffer: BytesLike) -> int:
        return self._read(offset, buffer, is_checked=False)

    def forget(self, offset: int, length: int) -> None:
        self._stored.forget(offset, offset + length)

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._stored.fetch([(offset, offset + length) for offset, length in ranges])

    def view(self) -> memoryview:
        return memoryview(self.pread(0, self._size)).toreadonly()

    def check(self) -> None:
        """Do nothing: an object is there whole, and only the owner of the store deletes it."""

    def close(self) -> None:
        self._is_open = False
        self._stored.readers.discard(self)

    def _read(self, offset: int, buffer: BytesLike, is_checked: bool) -> int:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self._stored.path)
        view = memoryview(buffer).cast("B")  # pyright: ignore[reportArgumentType]
        return self._stored.read_into(offset, view, is_checked)

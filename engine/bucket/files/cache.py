"""The cache: pieces of objects on a local disk, least recently used ones first to go, bounded by bytes.

It survives restarts, except for objects whose names may be used again. What is found at a start is only believed when
its checksums agree (`piece`). Nothing is ever synced: losing the cache loses time.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote, unquote

from sortedcontainers import SortedKeyList

from ... import threads
from ...fs.filesystem import FileSystem, WritableFile, join
from .piece import CachedPiece, content_bytes, pack_tail, sums_of, tail_bytes

DIRECTORY = "pieces"
OPEN_MOST = 256
"""Files of pieces that stay open: those read last."""


class Extents:
    """The cached pieces of one object, which do not overlap. Guarded by the cache's lock."""

    def __init__(self) -> None:
        self.pieces: SortedKeyList[CachedPiece] = SortedKeyList(key=_first)
        """By their places in the object."""

    def at(self, offset: int) -> CachedPiece | None:
        """Return the piece that has the byte at ``offset``."""
        number = self.pieces.bisect_key_right(offset) - 1
        piece = self.pieces[number] if number >= 0 else None
        return piece if piece and offset < piece.last else None

    def have(self, first: int, last: int) -> bool:
        """Whether one piece has the bytes [first, last)."""
        piece = self.at(first)
        return piece is not None and last <= piece.last

    def next_after(self, offset: int) -> int | None:
        """Return where the next piece after ``offset`` begins."""
        number = self.pieces.bisect_key_right(offset)
        return self.pieces[number].first if number < len(self.pieces) else None

    def within(self, first: int, last: int) -> list[CachedPiece]:
        """Return the pieces that have any of the bytes [first, last)."""
        before = self.pieces.irange_key(None, last, inclusive=(True, False))
        return [piece for piece in before if first < piece.last]


class PieceCache:
    """The cache on a local disk for pieces of all objects of one store. Thread safe."""

    def __init__(self, fs: FileSystem, capacity_bytes: int, lasts: Callable[[str], bool]) -> None:
        """``lasts`` tells of a path whether no other file will ever have it."""
        self.fs = fs
        self.capacity_bytes = capacity_bytes
        self.lock = threads.RLock()
        self.is_keeping = capacity_bytes > 0
        """Whether what was fetched last could be kept."""
        self._lasts = lasts
        self._extents: dict[str, Extents] | None = None
        self._used: OrderedDict[CachedPiece, Extents] = OrderedDict()
        self._used_bytes = 0
        self._open: OrderedDict[CachedPiece, None] = OrderedDict()
        """Those that were read last, of the used ones."""
        self._number = 0

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk that may be given up at any time."""
        return self._used_bytes

    def of(self, path: str) -> Extents:
        """Return what there is of an object."""
        with self.lock:
            return self._loaded().setdefault(path, Extents())

    def drop(self, path: str, has_readers: bool) -> None:
        """Forget an object; those who have its extents may read on."""
        with self.lock:
            extents = self._loaded().pop(path, None)
            for piece in extents.pieces if extents else ():
                if has_readers:
                    piece.stays_open = True
                    with suppress(OSError):
                        piece.open()
                self._unlink(piece)
                self._forget(piece)

    def create(self, path: str, preallocate: int = 0) -> tuple[CachedPiece, WritableFile]:
        """Make the file of a new object, a pinned piece that grows."""
        with self.lock:
            extents = self._loaded().setdefault(path, Extents())
            piece = CachedPiece(self.fs, self._new_name(path, 0), 0, 0, ())
            piece.pinned = True
            file = self._create(piece, preallocate)
            extents.pieces.add(piece)
        return piece, file

    def unpin(self, path: str, piece: CachedPiece) -> None:
        """Let a piece that has become whole be given up from now on."""
        with self.lock:
            piece.pinned = False
            extents = self._loaded().get(path)
            if extents and piece in extents.pieces:
                piece.shut()
                self._use(piece, extents)
                self._shrink()

    def keep(
        self, path: str, extents: Extents, key: bytes, first: int, content: bytes, arrived: Callable[[], None]
    ) -> None:
        """Keep bytes of an object that are in none of its pieces, if there is room.

        Under the lock, as they become a piece or are not kept, ``arrived`` is called: so a reader finds them in one
        place only, and no longer after it has dropped the piece.
        """
        piece, is_kept = None, False
        if len(content) + tail_bytes(len(content)) <= self.capacity_bytes:
            with self.lock:
                piece = CachedPiece(self.fs, self._new_name(path, first), first, len(content), None)
            self.is_keeping = is_kept = self._write(piece, content + pack_tail(key, len(content), sums_of(content)))
        with self.lock:
            arrived()
            if piece and is_kept:
                extents.pieces.add(piece)
                self._use(piece, extents)
                self._shrink()

    def touch(self, piece: CachedPiece) -> None:
        """Take note that a piece is read. The caller holds the lock."""
        if piece in self._used:
            self._used.move_to_end(piece)
            piece.stays_open = True
            self._open[piece] = None
            self._open.move_to_end(piece)
            if len(self._open) > OPEN_MOST:
                self._open.popitem(last=False)[0].shut()

    def discard(self, extents: Extents, piece: CachedPiece) -> None:
        """Drop a piece that is not what was written, or may not be."""
        with self.lock:
            if piece in extents.pieces and not piece.pinned:
                extents.pieces.remove(piece)
                self._forget(piece)
                self._unlink(piece)

    def make_room(self, size_bytes: int) -> bool:
        """Give up as many bytes; return whether any were."""
        with self.lock:
            before, goal = self._used_bytes, max(0, self._used_bytes - size_bytes)
            self._shrink(goal)
            return self._used_bytes < before

    def _create(self, piece: CachedPiece, preallocate: int = 0) -> WritableFile:
        try:
            return self.fs.create(piece.name, preallocate)
        except FileNotFoundError:  # the directory may be deleted at any time
            self.fs.make_directory(DIRECTORY)
            return self.fs.create(piece.name, preallocate)

    def _write(self, piece: CachedPiece, content: bytes) -> bool:
        for _ in range(2):
            file = None
            try:
                file = self._create(piece)
                try:
                    file.append(content)
                finally:
                    file.close()
                return True
            except OSError as error:
                if file:
                    self._unlink(piece)
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self.make_room(len(content)):
                    return False
        return False

    def _use(self, piece: CachedPiece, extents: Extents) -> None:
        self._used[piece] = extents
        self._used_bytes += piece.nbytes

    def _forget(self, piece: CachedPiece) -> None:
        if self._used.pop(piece, None) is not None:
            self._used_bytes -= piece.nbytes
            self._open.pop(piece, None)

    def _shrink(self, goal: int | None = None) -> None:
        goal = self.capacity_bytes if goal is None else goal
        while self._used_bytes > goal:
            piece, extents = next(iter(self._used.items()))
            self._forget(piece)
            if piece in extents.pieces:
                extents.pieces.remove(piece)
            self._unlink(piece)

    def _unlink(self, piece: CachedPiece) -> None:
        with suppress(OSError):
            self.fs.unlink(piece.name)

    def _new_name(self, path: str, first: int) -> str:
        self._number += 1
        return join(DIRECTORY, f"{quote(path, safe='')}@{first}.{self._number}")

    def _loaded(self) -> dict[str, Extents]:
        """Return the extents of all objects, at first those that an earlier process left."""
        if self._extents is None:
            self._extents = {}
            try:
                self.fs.make_directory(DIRECTORY)
                names = self.fs.list(DIRECTORY)
            except OSError:  # what is there is found at the next start, and hardly has one of these numbers
                names, self._number = [], 1 << 40
            for name in names:
                self._find(join(DIRECTORY, name))
            self._shrink()
        return self._extents

    def _find(self, name: str) -> None:
        """Take over a file of an earlier process, or remove it."""
        assert self._extents is not None
        head, _, number = name.removeprefix(f"{DIRECTORY}/").rpartition(".")
        quoted, _, first = head.rpartition("@")
        path = unquote(quoted)
        if not (number.isdecimal() and first.isdecimal()):
            return  # not ours
        self._number = max(self._number, int(number))
        length = -1
        with suppress(OSError):
            length = content_bytes(self.fs.size(name))
        piece = CachedPiece(self.fs, name, int(first), length)
        extents = self._extents.setdefault(path, Extents())
        if piece.length <= 0 or not self._lasts(path) or extents.within(piece.first, piece.last):
            self._unlink(piece)
            return
        extents.pieces.add(piece)
        self._use(piece, extents)


def _first(piece: CachedPiece) -> int:
    return piece.first

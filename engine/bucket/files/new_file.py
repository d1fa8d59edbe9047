"""A new file: written on the disk of the cache, and put into the bucket as a whole when it is synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...fs.file_parts import AppendingFile
from ...fs.filesystem import WritableFile, views_of
from .cache import PieceCache
from .piece import BlockSums, CachedPiece, pack_tail, sums_of
from .stored import StoredObject

if TYPE_CHECKING:
    from ...fs.filesystem import BytesLike

_FULL = (errno.ENOSPC, errno.EDQUOT)


class NewFile(AppendingFile):
    """A new file of a store in a bucket, while it is written. Until it is synced nobody else sees it; then it is in the
    bucket, and its bytes stay in the cache."""

    def __init__(
        self,
        cache: PieceCache,
        stored: StoredObject,
        piece: CachedPiece,
        inner: WritableFile,
        preallocated: int,
        put: Callable[[NewFile], None],
        is_there: Callable[[NewFile], bool],
    ) -> None:
        self.stored = stored
        self.piece = piece
        self.was_sent = False
        """Whether the bucket may have it."""
        self._cache = cache
        self._inner = inner
        self._preallocated = preallocated
        self._put = put
        self._is_there = is_there
        self._sums: BlockSums | None = None if preallocated else BlockSums()
        """Of what was written so far; None if that is not in order."""
        self._size = 0
        self._is_open, self._is_failed, self._is_durable = True, False, False
        self._measure()

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self.stored.path)
        self._is_durable = False
        try:
            self._inner.pwrite(offset, *pieces)
        except OSError as error:
            length = sum(view.nbytes for view in views_of(pieces))
            if error.errno not in _FULL or not self._cache.make_room(2 * length):
                raise
            self._inner.pwrite(offset, *pieces)
        if self._sums and offset == self._sums.size:
            self._sums.add(*pieces)
        else:
            self._sums = None
        self._size = max(self._size, offset + sum(view.nbytes for view in views_of(pieces)))
        self._measure()

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        """Put the file into the bucket. After a failure it may be there nevertheless, and is never put again."""
        if self._is_durable:
            return
        if self._is_failed:
            raise OSError(errno.EIO, "an earlier upload failed", self.stored.path)
        self._inner.flush()
        self._is_failed = self.was_sent = True
        self._settle_sums()
        self._put(self)
        self._is_failed, self._is_durable = False, True

    def check(self) -> None:
        if not self._is_there(self):
            raise OSError(errno.ESTALE, "another file has replaced this file", self.stored.path)
        self._inner.check()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            if self._is_durable:
                self._become_a_piece()
        finally:
            self._inner.close()

    def _measure(self) -> None:
        self.stored.size = self.piece.length = max(self._size, self._preallocated)
        self.piece.sums = None

    def _settle_sums(self) -> None:
        """Give the piece its checksums: what is uploaded is compared with them."""
        self.piece.sums = self._sums.snapshot() if self._sums else sums_of(self.piece.open().view())

    def _become_a_piece(self) -> None:
        """Write what makes the file a piece of the cache."""
        stored, piece = self.stored, self.piece
        assert piece.sums is not None, "it was synced"
        try:
            self._inner.pwrite(stored.size, pack_tail(stored.key(0), stored.size, piece.sums))
        except OSError:
            piece.pinned = False
            stored.forget(0, stored.size)  # it is in the bucket
        else:
            self._cache.unpin(stored.path, piece)

"""Files that are written once, from their first byte to their last, and read anywhere.

The content is cut into blocks of 16 KiB, of which the last one is shorter, and each is encrypted on its own with its
number as the nonce. The last block has a mark in its nonce, so a file that was cut is noticed. A block is kept back
until it is full, or until nothing follows, and is never encrypted twice: so no nonce is used twice with a file's key.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag

from ....schemas.errors import CorruptionError
from ..far import FarFile
from ..file_parts import FillingFile
from ..filesystem import ReadableFile, WritableFile, views_of
from .header import HEADER_BYTES, OpenedHeader
from .keyring import TAG_BYTES

if TYPE_CHECKING:
    from ..filesystem import BytesLike

BLOCK_BYTES = 16 << 10
_AT_ONCE = 128
"""Blocks that are read or written by one call."""
_NONCE = struct.Struct("<QI")
_INNER, _LAST = 1, 2


class BlockWriter:
    """A new encrypted file of blocks."""

    def __init__(self, inner: WritableFile, head: bytes, opened: OpenedHeader) -> None:
        self._inner = inner
        self._head = head
        self._cipher = opened.cipher
        self._block = opened.piece
        self._waiting = bytearray()
        """What is not written yet: never empty if there is anything, since the last block has a mark."""
        self._written_blocks = 0
        self._is_whole = self._is_broken = False

    @property
    def size(self) -> int:
        return self._written_blocks * self._block + len(self._waiting)

    def append(self, data: BytesLike) -> None:
        self.pwrite(self.size, data)

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        if offset != self.size or self._is_whole or self._is_broken:
            raise OSError(errno.EINVAL, "an encrypted file can be written only once, in order, and not after a sync")
        for view in views_of(pieces):
            for start in range(0, len(view), _AT_ONCE * self._block):
                self._waiting += view[start : start + _AT_ONCE * self._block]
                self._write((len(self._waiting) - 1) // self._block)

    def flush(self) -> None:
        if not self._is_whole and not self._is_broken:
            self._write(self.size // self._block - self._written_blocks, is_end=True)

    def sync(self) -> None:
        self.flush()
        if self._is_broken:
            raise OSError(errno.EIO, "an earlier write failed")
        self._inner.sync()

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._inner.close()

    def _write(self, whole: int, is_end: bool = False) -> None:
        """Encrypt and write ``whole`` blocks, and with ``is_end`` what is left as the last one."""
        if not whole and not is_end:
            return
        block, stride = self._block, self._block + TAG_BYTES
        if is_end and whole and whole * block == len(self._waiting):
            whole -= 1  # the last block happens to be full
        plain, rest = memoryview(bytes(self._waiting[: whole * block])), bytes(self._waiting[whole * block :])
        content = bytearray(whole * stride)
        view = memoryview(content)
        self._is_broken = True  # unless all goes well: what was encrypted is encrypted once
        for index in range(whole):
            nonce = _NONCE.pack(self._written_blocks + index, _INNER)
            source, target = plain[index * block : (index + 1) * block], view[index * stride : (index + 1) * stride]
            self._cipher.encrypt_into(nonce, source, None, target)
        if is_end:
            content = bytes(content) + self._cipher.encrypt(
                _NONCE.pack(self._written_blocks + whole, _LAST), rest, None
            )
        at = HEADER_BYTES + self._written_blocks * stride if self._written_blocks else 0
        self._inner.pwrite(at, *(() if self._written_blocks else (self._head,)), content)
        self._written_blocks += whole
        self._waiting = bytearray(rest)
        self._is_broken, self._is_whole = False, is_end


class BlockReader(FillingFile):
    """An encrypted file of blocks, for any number of threads."""

    def __init__(self, inner: ReadableFile, path: str, opened: OpenedHeader) -> None:
        """Raises CorruptionError if the file ends inside a checksum."""
        self._inner = inner
        self._path = path
        self._cipher = opened.cipher
        self._block = opened.piece
        body = inner.size - HEADER_BYTES
        self._size = size_of(body, self._block)
        self._last = max(-(-body // (self._block + TAG_BYTES)) - 1, 0)
        if body != self._size + TAG_BYTES * (self._last + 1):
            raise CorruptionError(path, self._size, "the file was cut short")

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        view = memoryview(buffer).cast("B")  # pyright: ignore[reportArgumentType]
        end = min(offset + view.nbytes, self._size)
        at = offset
        while at < end:
            came = self._read(at, view[at - offset : end - offset])
            if not came:
                break
            at += came
        return max(at - offset, 0)

    def view(self) -> memoryview:
        content = bytearray(self._size)
        return memoryview(content)[: self.read_into(0, content)].toreadonly()

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()

    def _read(self, offset: int, target: memoryview) -> int:
        """Read and decrypt some blocks into ``target``, which is not empty; return how many bytes came."""
        block, stride = self._block, self._block + TAG_BYTES
        first = offset // block
        count = min((offset + len(target) - 1) // block - first + 1, _AT_ONCE)
        content = memoryview(bytearray(count * stride))
        content = content[: self._inner.read_into(HEADER_BYTES + first * stride, content)]
        done, skipped = 0, offset - first * block
        for index in range(first, first + count):
            sealed = content[(index - first) * stride : (index - first + 1) * stride]
            length = len(sealed) - TAG_BYTES
            if length < 0 or (index != self._last and length != block):
                break  # the file was cut since it was opened
            done += self._open(index, sealed, skipped, target[done:])
            skipped = 0
        return done

    def _open(self, index: int, sealed: memoryview, skipped: int, target: memoryview) -> int:
        """Decrypt a block, from its byte ``skipped`` on, into the beginning of ``target``."""
        nonce = _NONCE.pack(index, _LAST if index == self._last else _INNER)
        length = len(sealed) - TAG_BYTES
        try:
            if not skipped and length <= len(target):
                self._cipher.decrypt_into(nonce, sealed, None, target[:length])
                return length
            plain = memoryview(self._cipher.decrypt(nonce, sealed, None))[skipped : skipped + len(target)]
        except InvalidTag:
            why = "an encrypted block was changed, moved, or cut off"
            raise CorruptionError(self._path, index * self._block, why) from None
        target[: len(plain)] = plain
        return len(plain)


class FarBlockReader(BlockReader):
    """An encrypted file of blocks that is far away (`far`). What is kept of it here is encrypted; a block that cannot
    be opened is fetched again once."""

    def __init__(self, inner: ReadableFile, far: FarFile, path: str, opened: OpenedHeader) -> None:
        """``far`` is ``inner``."""
        super().__init__(inner, path, opened)
        self._far = far

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        try:
            return super().read_into(offset, buffer)
        except CorruptionError:
            self.forget(offset, memoryview(buffer).nbytes)  # pyright: ignore[reportArgumentType]
            return super().read_into(offset, buffer)

    def read_unchecked(self, offset: int, buffer: BytesLike) -> int:
        """See FarFile. Its own checksums need no others below them, but it has to decrypt all blocks."""
        return self.read_into(offset, buffer)

    def forget(self, offset: int, length: int) -> None:
        self._far.forget(*self._place(offset, length))

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._far.fetch([self._place(offset, length) for offset, length in ranges])

    def _place(self, offset: int, length: int) -> tuple[int, int]:
        """Return where the blocks of some bytes are, and their length."""
        stride = self._block + TAG_BYTES
        first, last = offset // self._block, -(-(offset + length) // self._block)
        return HEADER_BYTES + first * stride, (last - first) * stride


def size_of(body: int, block: int) -> int:
    """Return how many bytes callers see of an encrypted file with ``body`` bytes after its head."""
    whole, rest = divmod(max(body, 0), block + TAG_BYTES)
    return whole * block + max(rest - TAG_BYTES, 0)

"""A piece: consecutive bytes of an object in a file of the cache, with a checksum for each block.

Little-endian; in prose in ``docs/format/cache.md``::

    content | crc u4 of each 64 KiB of it, the last one shorter | magic 8 | key 16 | length u8 | crc u4

The last crc is of all that follows the content. The key tells whose bytes these are: store, path and size of the
object, who made it, and the place in it. A piece that is not what was written is worth nothing, and harms nobody.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...fs.filesystem import FileSystem, ReadableFile, views_of

if TYPE_CHECKING:
    from ...fs.filesystem import BytesLike

BLOCK_BYTES = 64 << 10
_MAGIC = b"NYALAPC\n"
_TRAILER = struct.Struct("<8s16sQ")
_CRC = struct.Struct("<I")
TRAILER_BYTES = _TRAILER.size + _CRC.size


class BlockSums:
    """The checksums of the blocks of a cached piece, whose bytes come in order."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes so far."""
        self._sums: list[int] = []

    def add(self, *pieces: BytesLike) -> None:
        """Add the bytes of all pieces, in order."""
        for view in views_of(pieces):
            start = 0
            while start < len(view):
                inside = self.size % BLOCK_BYTES
                part = view[start : start + BLOCK_BYTES - inside]
                if inside:
                    self._sums[-1] = zlib.crc32(part, self._sums[-1])
                else:
                    self._sums.append(zlib.crc32(part))
                start += len(part)
                self.size += len(part)

    def snapshot(self) -> tuple[int, ...]:
        """Return the checksum of each block."""
        return tuple(self._sums)


def sums_of(content: BytesLike) -> tuple[int, ...]:
    """Return the checksum of each block of a cached piece with this ``content``."""
    sums = BlockSums()
    sums.add(content)
    return sums.snapshot()


def key_of(store: str, maker: str, path: str, size: int, first: int) -> bytes:
    """Return the key of a cached piece: it tells the piece at ``first`` of an object of ``size`` bytes, which ``maker``
    put, from all others."""
    return blake2b(f"{store}\n{path}\n{size}\n{first}\n{maker}".encode(), digest_size=16).digest()


def pack_tail(key: bytes, length: int, sums: tuple[int, ...]) -> bytes:
    """Return the bytes that follow the content of a piece in its file of the cache."""
    body = struct.pack(f"<{len(sums)}I", *sums) + _TRAILER.pack(_MAGIC, key, length)
    return body + _CRC.pack(zlib.crc32(body))


def tail_bytes(length: int) -> int:
    """Return how many bytes follow ``length`` bytes of content in a file of the cache."""
    return -(-length // BLOCK_BYTES) * _CRC.size + TRAILER_BYTES


def content_bytes(size: int) -> int:
    """Return how many bytes of content a file of the cache with ``size`` bytes has; negative if it is no piece."""
    rest = size - TRAILER_BYTES
    length = rest - -(-rest // (BLOCK_BYTES + _CRC.size)) * _CRC.size
    return length if rest >= 0 and length + tail_bytes(length) == size else -1


class CachedPiece:
    """Bytes [first, first + length) of an object, in a file of the cache. Any number of threads may read it.

    ``pinned`` ones are not in the bucket, or not surely: they must stay.
    """

    __slots__ = ("_file", "_fs", "first", "length", "name", "pinned", "stays_open", "sums")

    def __init__(self, fs: FileSystem, name: str, first: int, length: int, sums: tuple[int, ...] | None = None) -> None:
        self.name = name
        """Of the file."""
        self.first = first
        self.length = length
        self.pinned = False
        self.stays_open = True
        """Whether its file stays open after a read."""
        self._fs = fs
        self.sums = sums
        """The checksums of its blocks: None until the file's end was read, and while a new file is written."""
        self._file: ReadableFile | None = None

    @property
    def last(self) -> int:
        """The end of its bytes in the object."""
        return self.first + self.length

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on the disk."""
        return self.length + tail_bytes(self.length)

    def read(self, offset: int, target: memoryview, key: Callable[[int], bytes], is_checked: bool) -> int:
        """Fill the beginning of ``target`` with the object's bytes from ``offset`` on; return how many came, none if
        the piece is not what was written. With ``is_checked`` they are those that were written. Raises OSError."""
        file = self.open()
        if self.sums is None and not self.pinned:
            self.sums = self._read_sums(file, key(self.first))
            if self.sums is None:
                return 0
        at = offset - self.first
        target = target[: self.length - at]
        if is_checked and self.sums is not None:
            return self._read_checked(file, at, target, self.sums)
        count = file.read_into(at, target)
        return count if count == len(target) else 0

    def open(self) -> ReadableFile:
        """Return the open file, which stays readable when its name is gone."""
        file = self._file
        if file is None:
            file = self._file = self._fs.open(self.name)
            if not self.stays_open:
                self._file = None
        return file

    def shut(self) -> None:
        """Let go of the open file, which those who read it may go on with."""
        self.stays_open = False  # a concurrent open sees it after it has set the file
        self._file = None

    def _read_sums(self, file: ReadableFile, key: bytes) -> tuple[int, ...] | None:
        tail = file.pread(self.length, tail_bytes(self.length) + 1)
        body = tail[: -_CRC.size]
        if len(tail) != tail_bytes(self.length) or _CRC.unpack(tail[-_CRC.size :])[0] != zlib.crc32(body):
            return None
        if _TRAILER.unpack(body[-_TRAILER.size :]) != (_MAGIC, key, self.length):
            return None
        table = body[: -_TRAILER.size]
        return struct.unpack(f"<{len(table) // _CRC.size}I", table)

    def _read_checked(self, file: ReadableFile, at: int, target: memoryview, sums: tuple[int, ...]) -> int:
        start = at // BLOCK_BYTES * BLOCK_BYTES
        stop = min(-(-(at + len(target)) // BLOCK_BYTES) * BLOCK_BYTES, self.length)
        content = target if (start, stop) == (at, at + len(target)) else memoryview(bytearray(stop - start))
        if file.read_into(start, content) < len(content):
            return 0
        number = start // BLOCK_BYTES
        for offset in range(0, len(content), BLOCK_BYTES):
            if zlib.crc32(content[offset : offset + BLOCK_BYTES]) != sums[number]:
                return 0
            number += 1
        if content is not target:
            target[:] = content[at - start : at - start + len(target)]
        return len(target)

"""Files of a fixed size that are taken from the disk before the first write: segments of the log.

Each write is encrypted on its own, as one record or several, behind the one before; nothing that is on the disk is
touched again, as the log requires. A record has a head::

     0  magic    4s   "NREC"
     4  length   u4   of what was written
     8  offset   u8   where it was written, as callers see it
    16  counter  u4   1, 2, 3, ...: the nonce
    20  crc      u4   of bytes 0..19, from the file's seed

followed by the encrypted bytes, a tag, and zeroes up to a multiple of 8; the tag covers the head. The counter lives as
long as the file is open for writing, and a file is opened for writing once: so no nonce is used twice with the key of a
file, whatever is written again after an interruption.

A record that is damaged shows as bytes 0xff where it stood. So the reader of the log, which knows what a torn write is
and what is not, decides.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag

from ....schemas.errors import CorruptionError
from ..file_parts import AppendingFile, CopyingFile
from ..filesystem import ReadableFile, WritableFile, views_of
from ..salvage import Salvaged, salvaged
from .header import HEADER_BYTES, OpenedHeader
from .keyring import TAG_BYTES

if TYPE_CHECKING:
    from ..filesystem import BytesLike

RECORD_BYTES = 1 << 20
_ALIGNMENT = 8
_MAGIC = b"NREC"
_HEAD = struct.Struct("<4sIQII")
_OVERHEAD = _HEAD.size + TAG_BYTES
_NONCE = struct.Struct("<QI")
_KIND = 3
"""Distinguishes nonces of records from those of blocks."""
_LEAST_BYTES = 64
"""The least that the log writes at once: a group with a record, or the header of a segment."""
_DAMAGED = 0xFF
_CHUNK_BYTES = 1 << 20


def space_for(size: int) -> int:
    """Return the bytes to take on the disk for an encrypted file of ``size``, however it is written in pieces of 64
    bytes or more."""
    return HEADER_BYTES + size + (-(-size // _LEAST_BYTES) + 1) * _OVERHEAD + -size % _ALIGNMENT


class RecordWriter(AppendingFile):
    """A new encrypted file of records."""

    def __init__(self, inner: WritableFile, opened: OpenedHeader) -> None:
        """``inner`` has its head already, durably."""
        self._inner = inner
        self._opened = opened
        self._end = HEADER_BYTES
        self._counter = 0
        self._size = 0

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        views = views_of(pieces)
        end = offset + sum([view.nbytes for view in views])
        if end > self._opened.size:
            raise OSError(errno.EFBIG, "a preallocated file of an encrypted store cannot grow")
        for plain in _joined(views):
            content = self._record(offset, plain)
            self._inner.pwrite(self._end, *content)
            self._end += sum([len(piece) for piece in content])
            offset += len(plain)
            self._size = max(self._size, offset)

    def flush(self) -> None:
        """Do nothing: every write is handed over at once."""

    def sync(self) -> None:
        self._inner.sync()

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()

    def _record(self, offset: int, plain: bytes | memoryview) -> tuple[bytes, bytes, bytes]:
        self._counter += 1  # before it is used: nothing that follows may use it again
        head = _HEAD.pack(_MAGIC, len(plain), offset, self._counter, 0)[:-4]
        head += zlib.crc32(head, self._opened.seed).to_bytes(4, "little")
        sealed = self._opened.cipher.encrypt(_NONCE.pack(self._counter, _KIND), plain, head)
        return head, sealed, bytes(-len(sealed) % _ALIGNMENT)


class _Record(NamedTuple):
    """A head that was found, and where."""

    at: int
    length: int
    offset: int
    counter: int

    @property
    def body(self) -> int:
        return self.at + _HEAD.size

    @property
    def end(self) -> int:
        sealed = self.length + TAG_BYTES
        return self.body + sealed + -sealed % _ALIGNMENT


class RecordReader(CopyingFile):
    """An encrypted file of records. Its first record can be read alone; for any other byte, all are decrypted."""

    def __init__(self, inner: ReadableFile, path: str, opened: OpenedHeader) -> None:
        self._inner = inner
        self._path = path
        self._opened = opened
        self._size = opened.size
        self._whole: memoryview | None = None
        self._grown: np.ndarray | None = None
        """The content as of the last look, if the file may grow."""
        self._at, self._end = HEADER_BYTES, 0
        """Where the sound records end that this has, on the disk and as callers see it."""
        self._doubted_at = 0

    def look_again(self) -> None:
        """See GrowingFile. Reads only what is new."""
        if self._grown is None:
            self._grown = np.zeros(self.size, np.uint8)
        while (record := self._head(self._inner.pread(self._at, _HEAD.size), self._at)) and record.offset <= self._end:
            sealed = memoryview(self._inner.pread(record.at, record.end - record.at))
            plain = self._opened_record(sealed, record._replace(at=0))
            if plain is None:
                break
            stop = record.offset + record.length
            self._grown[record.offset : stop] = np.frombuffer(plain, np.uint8)
            self._at, self._end = record.end, max(self._end, stop)
        if self._end < self.size and any(self._inner.pread(self._at, _HEAD.size)):
            self._grown[self._end] = _DAMAGED  # until it is whole
            if self._doubted_at == self._at:  # a write that was interrupted, and then repeated behind itself
                self._grown[:] = np.frombuffer(self._all(), np.uint8)
            self._doubted_at = self._at

    def pread(self, offset: int, length: int) -> bytes:
        if self._grown is not None:
            return self._grown[offset : offset + length].tobytes()
        first = self._first_record() if self._whole is None and not offset else None
        if first is not None and length <= len(first):
            return bytes(first[:length])
        return bytes(self.view()[offset : offset + length])

    def view(self) -> memoryview:
        """Raises CorruptionError if the file was cut, or if there is damage where none can be shown."""
        if self._grown is not None:
            return self._all()
        if self._whole is None:
            self._whole = self._all()
        return self._whole

    def _all(self) -> memoryview:
        faults = list(self._missing())
        content = self._decrypted(memoryview(b"") if faults else self._inner.view(), faults)
        if faults:
            raise CorruptionError(self._path, *faults[0])
        return content

    def salvaged(self) -> Salvaged:
        """Return all that sound records say, whatever else there is."""
        found = salvaged(self._inner)
        faults = [*self._missing(), *found.faults]
        return Salvaged(self._decrypted(found.content, faults), faults)

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()
        self._whole = None

    def _first_record(self) -> bytes | None:
        """Return the content of the first record; None if it is damaged, or not at the beginning."""
        record = self._head(self._inner.pread(HEADER_BYTES, _HEAD.size), HEADER_BYTES)
        if record is None or record.offset:
            return None
        sealed = self._inner.pread(HEADER_BYTES, record.end - HEADER_BYTES)
        return self._opened_record(memoryview(sealed), record._replace(at=0))

    def _missing(self) -> Iterator[tuple[int, str]]:
        """Yield a fault if the file was cut."""
        expected = space_for(self.size)
        if self._inner.size < expected:
            yield self._inner.size, f"the file should have {expected:,} bytes on the disk"

    def _decrypted(self, found: memoryview, faults: list[tuple[int, str]]) -> memoryview:
        """Return the file as callers see it; add damage that cannot be shown to ``faults``.

        A write that was interrupted was written again. So of several records for the same bytes some may be torn, and
        what is known from another counts, unless a later write proves that they were durable.
        """
        content = np.zeros(self.size, np.uint8)
        at, end, hidden = HEADER_BYTES, 0, 0
        while at < len(found):
            record = self._head(found[at : at + _HEAD.size], at)
            if record is None:
                used = _content_end(found, at) - at
                if not used:
                    break
                following = self._head_after(found, at + _ALIGNMENT)
                # At the end this may be one torn write: it shows as no more bytes than callers had written.
                stop = following.offset if following else min(end + max(used - _OVERHEAD, 1), self.size)
                content[end:stop] = _DAMAGED
                if following is None:
                    break
                at, end = following.at, max(end, stop)
                continue
            stop = record.offset + record.length
            if hidden and stop > end:
                faults.append((hidden, "this encrypted record is damaged"))
                hidden = 0
            plain = self._opened_record(found, record)
            if plain is not None:
                content[record.offset : stop] = np.frombuffer(plain, np.uint8)
            elif stop > end:
                content[max(end, record.offset) : stop] = _DAMAGED
            elif record.length < self._opened.piece:  # else the next record may be of the same write
                hidden = hidden or at
            at, end = record.end, max(end, stop)
        return content.data.toreadonly()

    def _head(self, head: bytes | memoryview, at: int) -> _Record | None:
        """Return the sound head of a record at byte ``at`` of the disk's file."""
        if len(head) < _HEAD.size:
            return None
        magic, length, offset, counter, crc = _HEAD.unpack(head)
        record = _Record(at, length, offset, counter)
        if magic != _MAGIC or crc != zlib.crc32(head[:-4], self._opened.seed):
            return None
        return record if offset + length <= self.size and record.end <= self._inner.size else None

    def _head_after(self, found: memoryview, at: int) -> _Record | None:
        words = np.frombuffer(found[at : len(found) // _ALIGNMENT * _ALIGNMENT], "<u4")[:: _ALIGNMENT // 4]
        for position in np.flatnonzero(words == int.from_bytes(_MAGIC, "little")):
            candidate = at + int(position) * _ALIGNMENT
            record = self._head(found[candidate : candidate + _HEAD.size], candidate)
            if record is not None:
                return record
        return None

    def _opened_record(self, found: memoryview, record: _Record) -> bytes | None:
        """Return what was written as this record; None if it is damaged."""
        head = found[record.at : record.body]
        sealed = found[record.body : record.body + record.length + TAG_BYTES]
        if any(found[record.body + len(sealed) : record.end]):
            return None
        try:
            return self._opened.cipher.decrypt(_NONCE.pack(record.counter, _KIND), sealed, head)
        except InvalidTag:
            return None


def _joined(views: list[memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the pieces as few as possible, each at most ``RECORD_BYTES`` long; small ones are copied together."""
    waiting: list[memoryview] = []
    size = 0
    for view in views:
        start = 0
        while start < len(view):
            waiting.append(view[start : start + RECORD_BYTES - size])
            start, size = start + len(waiting[-1]), size + len(waiting[-1])
            if size == RECORD_BYTES:
                yield b"".join(waiting) if len(waiting) > 1 else waiting[0]
                waiting, size = [], 0
    if waiting:
        yield b"".join(waiting) if len(waiting) > 1 else waiting[0]


def _content_end(found: memoryview, start: int) -> int:
    """Return one past the last byte that is not zero; ``start`` if there is none from there on. The memory of a segment
    is sparse, so it is looked at piece by piece."""
    for first in range(start + (len(found) - 1 - start) // _CHUNK_BYTES * _CHUNK_BYTES, start - 1, -_CHUNK_BYTES):
        used = np.flatnonzero(np.frombuffer(found[first : first + _CHUNK_BYTES], np.uint8))
        if len(used):
            return first + int(used[-1]) + 1
    return start

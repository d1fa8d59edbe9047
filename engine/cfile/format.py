"""The bytes of a cfile: one immutable file of encoded columns.

Little-endian throughout; in prose in ``docs/format/cfile.md``::

    +-----------+--------+--------+-----+----------+------------+
    | header 24 | page   | page   | ... | footer   | trailer 28 |
    +-----------+--------+--------+-----+----------+------------+

    header   magic 8 | version u2 | kind u2 | file id u8 | crc u4 of the 20 bytes before
    page     crc u4 | rows u4 | encoding u1 | compression u1 | flags u2 | raw u4 | stored u4 | bitmap u4   (24 bytes)
             payload, ``stored`` bytes | validity, ``bitmap`` bytes | zeros up to a multiple of 8
    footer   JSON (see ``footer.py``), plain or compressed with zstd
    trailer  stored u4 | raw u4 | compression u2 | version u2 | footer crc u4 | crc u4 of the 16 bytes before | magic 8

Every byte is under exactly one crc32. The crc of a page covers all of the page after the crc itself, including
padding; it and the footer's are seeded with the file id and the offset, so that sound bytes in the wrong place
(a page swapped with another, a block written to the wrong file) fail like damaged ones.

Pages start at multiples of 8. At least ``TAIL_BYTES``, those of footer and trailer, follow every page.

The lengths of header and trailer and the places of magic, version and crc in them are the same in all versions, so
that an old reader can distinguish a newer file from a damaged one.
"""

import struct
import zlib
from typing import NamedTuple, Self

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ..codecs.checksum import crc32
from ..codecs.codec import PAGE_ROWS

FORMAT_VERSION = 1
MAGIC = b"NYALACF\n"
KINDS = {"base": 1, "redo": 2, "undo": 3}  # On disk in every header: never reuse or renumber.

PAGE_ALIGNMENT = 8
MAX_PAGE_BYTES = 1 << 30
"""The largest payload of a page, before and after compression: checked before anything is allocated."""
MAX_FOOTER_BYTES = 1 << 28
"""The largest footer, before compression."""
TAIL_BYTES = 64
"""The least size of footer and trailer together."""

HAS_BITMAP = 1
"""Page flag: a validity bitmap follows the payload, bit = 1 for a cell that is not NULL, lowest bit first."""
ALL_NULL = 2
"""Page flag: every cell is NULL; there is neither payload nor bitmap."""
IS_DICTIONARY = 4
"""Page flag: the rows are the distinct values that the codes of the stream's pages refer to."""
_KNOWN_FLAGS = HAS_BITMAP | ALL_NULL | IS_DICTIONARY

_HEADER = struct.Struct("<8sHHQ")
_PAGE_HEADER = struct.Struct("<IBBHIII")
_TRAILER = struct.Struct("<IIHHI")
_CRC = struct.Struct("<I")
_PLACE = struct.Struct("<QQ")

HEADER_BYTES = _HEADER.size + _CRC.size
PAGE_HEADER_BYTES = _CRC.size + _PAGE_HEADER.size
TRAILER_BYTES = _TRAILER.size + _CRC.size + len(MAGIC)
MIN_FILE_BYTES = HEADER_BYTES + TAIL_BYTES


class StreamKey(NamedTuple):
    """Names one stream of a cfile: its column and its role."""

    column_id: int
    role: str
    """"base", "rowid", "timestamp", "value", "key_index" or "key_filter"; the file itself gives it no meaning."""

    def __str__(self) -> str:
        return f"column {self.column_id} {self.role}"


def seed(file_id: int, offset: int) -> int:
    """Return the initial crc32 for bytes at ``offset`` of the cfile ``file_id``."""
    return zlib.crc32(_PLACE.pack(file_id, offset))


def padding_of(length: int) -> int:
    """Return how many zero bytes follow ``length`` bytes of a page in a cfile."""
    return -length % PAGE_ALIGNMENT


class FileHeader(NamedTuple):
    """The first bytes of a cfile: its kind and id."""

    kind: str
    file_id: int

    def pack(self) -> bytes:
        """Return the ``HEADER_BYTES`` bytes of this header."""
        fields = _HEADER.pack(MAGIC, FORMAT_VERSION, KINDS[self.kind], self.file_id)
        return fields + _CRC.pack(zlib.crc32(fields))

    @classmethod
    def unpack(cls, path: str, view: memoryview) -> Self:
        """Read the header of a file of at least ``MIN_FILE_BYTES`` bytes, given its first bytes.

        Raises CorruptionError if it is not what was written, InvalidArgumentError for an unknown version.
        """
        magic, version, kind_code, file_id = _HEADER.unpack_from(view)
        if magic != MAGIC:
            raise CorruptionError(path, 0, f"not a cfile: it starts with {magic!r}")
        _check_crc(path, 0, view[: _HEADER.size], _CRC.unpack_from(view, _HEADER.size)[0], "header")
        _check_version(path, version)
        kind = next((name for name, code in KINDS.items() if code == kind_code), None)
        if kind is None:
            raise CorruptionError(path, 10, f"the kind of the file is unknown: {kind_code}")
        return cls(kind, file_id)


class PageHeader(NamedTuple):
    """The header of every page of a cfile."""

    row_count: int
    encoding: int
    """The code of the codec that wrote the payload."""
    compression: int
    """The code of the compression of the payload; 0 = none."""
    flags: int
    raw_length: int
    """Bytes of the codec's output."""
    stored_length: int
    """Bytes after compression."""
    bitmap_length: int

    @property
    def page_length(self) -> int:
        """Bytes of the whole page: header, payload, bitmap and padding."""
        used = PAGE_HEADER_BYTES + self.stored_length + self.bitmap_length
        return used + padding_of(used)

    def pack(self) -> bytes:
        """Return the header without its leading crc."""
        return _PAGE_HEADER.pack(*self)

    @classmethod
    def unpack(cls, page: memoryview) -> Self:
        """Read the header of a page, given all of it; checks nothing."""
        return cls(*_PAGE_HEADER.unpack_from(page, _CRC.size))

    def fault(self, length: int) -> str | None:
        """Return the fault of this header of a page of ``length`` bytes, or None."""
        if self.row_count > PAGE_ROWS:
            return f"it has {self.row_count} rows, but a page holds at most {PAGE_ROWS}"
        if max(self.raw_length, self.stored_length) > MAX_PAGE_BYTES:
            return f"its payload of {max(self.raw_length, self.stored_length)} bytes is too long"
        if self.page_length != length:
            return f"its parts have {self.page_length} bytes, but the footer says {length}"
        if self.compression == 0 and self.raw_length != self.stored_length:
            return f"it has {self.stored_length} uncompressed bytes, but its header says {self.raw_length}"
        return self._flags_fault()

    def _flags_fault(self) -> str | None:
        bitmap_length = (self.row_count + 7) // 8 if self.flags & HAS_BITMAP else 0
        if self.flags & ~_KNOWN_FLAGS or (self.flags & HAS_BITMAP and self.flags & ALL_NULL):
            return f"its header has the invalid flags {self.flags:#x}"
        if self.bitmap_length != bitmap_length:
            return f"its bitmap of {self.bitmap_length} bytes does not fit {self.row_count} rows"
        if self.flags & ALL_NULL and self.stored_length:
            return f"it has {self.stored_length} bytes of payload, but all its cells are NULL"
        return None


def page_crc(file_id: int, offset: int, body: memoryview) -> int:
    """Return the crc of the page at ``offset`` of a cfile, given all of it after the crc."""
    return crc32(body, seed(file_id, offset))


def seal_page(file_id: int, offset: int, parts: list[bytes | memoryview]) -> bytes:
    """Return the crc of a page of a cfile, which precedes ``parts``: all of the page after it."""
    crc = seed(file_id, offset)
    for part in parts:
        crc = crc32(part, crc)
    return _CRC.pack(crc)


def stored_page_crc(page: memoryview) -> int:
    """Return the crc at the start of a page of a cfile."""
    return _CRC.unpack_from(page)[0]


class Trailer(NamedTuple):
    """The last bytes of a cfile: the position of its footer and how to read it."""

    stored_length: int
    raw_length: int
    compression: int
    footer_crc: int

    def pack(self) -> bytes:
        """Return the ``TRAILER_BYTES`` bytes of this trailer."""
        fields = _TRAILER.pack(self.stored_length, self.raw_length, self.compression, FORMAT_VERSION, self.footer_crc)
        return fields + _CRC.pack(zlib.crc32(fields)) + MAGIC

    @classmethod
    def unpack(cls, path: str, size: int, trailer: memoryview) -> Self:
        """Read the trailer of a file of ``size`` bytes, at least ``MIN_FILE_BYTES``, given its last ``TRAILER_BYTES``.

        Raises CorruptionError when it is not what was written, InvalidArgumentError for an unknown version.
        """
        start = size - TRAILER_BYTES
        magic = bytes(trailer[-len(MAGIC) :])
        if magic != MAGIC:
            raise CorruptionError(path, size - len(MAGIC), "no trailer: the file is cut short")
        fields = trailer[: _TRAILER.size]
        _check_crc(path, start, fields, _CRC.unpack_from(trailer, _TRAILER.size)[0], "trailer")
        stored_length, raw_length, compression, version, footer_crc = _TRAILER.unpack(fields)
        _check_version(path, version)
        if stored_length > start - HEADER_BYTES or raw_length > MAX_FOOTER_BYTES:
            raise CorruptionError(path, start, f"the footer is too long: {stored_length} bytes, decoded {raw_length}")
        return cls(stored_length, raw_length, compression, footer_crc)


def _check_crc(path: str, offset: int, data: memoryview, expected: int, what: str) -> None:
    found = zlib.crc32(data)
    if found != expected:
        raise CorruptionError(path, offset, f"the checksum of the {what} is wrong: {found:#010x}, not {expected:#010x}")


def _check_version(path: str, version: int) -> None:
    if version != FORMAT_VERSION:
        raise InvalidArgumentError(
            f"{path} has cfile format version {version}; this build reads version {FORMAT_VERSION}"
        )

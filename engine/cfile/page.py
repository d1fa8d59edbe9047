"""One page of a cfile: up to 65,536 cells of one stream, encoded, perhaps compressed, checksummed.

A page stores which cells are NULL apart from the cells themselves: the codec sees a vector without NULLs, in which
a NULL cell is zero or empty. A page of NULLs alone is a header and nothing else.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ..codecs.codec import Codec, CorruptPageError
from ..codecs.compression import NONE, compress, compression_name, decompress
from ..codecs.registry import codec_by_code
from ..vectors.physical import PhysicalType
from ..vectors.vector import Vector
from .footer import PageEntry
from .format import (
    ALL_NULL,
    HAS_BITMAP,
    MAX_PAGE_BYTES,
    PAGE_HEADER_BYTES,
    PageHeader,
    padding_of,
    page_crc,
    seal_page,
    stored_page_crc,
)

MIN_SAVING = 0.1
"""The share of a page that compression must save, or the page stays as the codec wrote it."""


class EncodedPage(NamedTuple):
    """A page ready to be written, except for the crc, which depends on where it will lie."""

    header: PageHeader
    payload: bytes | memoryview
    bitmap: bytes

    @property
    def length(self) -> int:
        """Bytes of the page in the file."""
        return self.header.page_length

    def parts(self, file_id: int, offset: int) -> list[bytes | memoryview]:
        """Return the bytes of the page, in pieces, as they stand at ``offset`` of the file ``file_id``."""
        used = PAGE_HEADER_BYTES + len(self.payload) + len(self.bitmap)
        body = [self.header.pack(), self.payload, self.bitmap, bytes(padding_of(used))]
        return [seal_page(file_id, offset, body), *body]


def encode_page(vector: Vector, physical: PhysicalType, codec: Codec, compression: int, flags: int = 0) -> EncodedPage:
    """Encode and compress the cells of one page.

    Raises InvalidArgumentError when they take more than ``MAX_PAGE_BYTES`` bytes.
    """
    bitmap, payload = b"", np.empty(0, np.uint8)
    if vector.valid is not None and not vector.valid.any() and len(vector):
        flags |= ALL_NULL
    else:
        if vector.valid is not None and not vector.valid.all():
            flags |= HAS_BITMAP
            bitmap = np.packbits(vector.valid, bitorder="little").tobytes()
        payload = codec.encode(vector, physical)
    raw_length = len(payload)
    if raw_length > MAX_PAGE_BYTES:
        raise InvalidArgumentError(f"{len(vector)} cells take {raw_length} bytes; a page holds {MAX_PAGE_BYTES}")
    stored, compression = _smaller(payload, compression)
    header = PageHeader(len(vector), codec.code, compression, flags, raw_length, len(stored), len(bitmap))
    return EncodedPage(header, stored, bitmap)


def _smaller(payload: np.ndarray, compression: int) -> tuple[bytes | memoryview, int]:
    """Return the payload, compressed if that saves enough, and the compression it ended up with."""
    if compression != NONE and len(payload):
        compressed = compress(compression, payload.data)
        if len(compressed) <= len(payload) * (1 - MIN_SAVING):
            return compressed, compression
    return payload.data, NONE


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page of an open file whose checksum and header are right. Its arrays are views of the mapped file."""

    offset: int
    header: PageHeader
    codec: Codec
    stored: np.ndarray
    bitmap: np.ndarray | None

    @property
    def row_count(self) -> int:
        """Cells of the page, NULLs included."""
        return self.header.row_count

    @property
    def is_all_null(self) -> bool:
        """Whether every cell is NULL; there is nothing to decode then."""
        return bool(self.header.flags & ALL_NULL)

    @property
    def encoded(self) -> EncodedPage:
        """The page as it may be written elsewhere, byte for byte but for its checksum."""
        return EncodedPage(self.header, self.stored.data, b"" if self.bitmap is None else self.bitmap.tobytes())

    @property
    def is_compressed(self) -> bool:
        """Whether the codec's bytes must be decompressed first."""
        return self.header.compression != NONE

    def decompressed(self) -> np.ndarray:
        """Return the codec's bytes in memory of their own. Raises CorruptPageError when they do not decompress."""
        header = self.header
        return decompress(header.compression, self.stored, header.raw_length)

    def valid_range(self, first: int, last: int) -> np.ndarray | None:
        """Return one bool for each of the rows [first, last), or None when the page has no bitmap."""
        if self.bitmap is None:
            return None
        start = first >> 3
        bits = np.unpackbits(self.bitmap[start : (last + 7) >> 3], bitorder="little")
        return bits[first - 8 * start : last - 8 * start].view(np.bool_)

    def valid_at(self, rows: np.ndarray) -> np.ndarray | None:
        """Return one bool for each of ``rows``, or None when the page has no bitmap."""
        if self.bitmap is None:
            return None
        return (self.bitmap[rows >> 3] >> (rows & 7).astype(np.uint8) & 1).view(np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class FileImage:
    """The bytes of an open file and which file it must be: all that is needed to load its pages."""

    path: str
    file_id: int
    view: memoryview
    data: np.ndarray
    """``view`` as uint8."""
    footer_offset: int

    def corruption(self, offset: int, what: object, why: object) -> CorruptionError:
        """Return the error that says that ``what``, at ``offset``, is not what was written."""
        return CorruptionError(self.path, offset, f"{what}: {why}")


def load_page(image: FileImage, what: str, entry: PageEntry) -> Page:
    """Return the page that the directory's ``entry`` names, its checksum and lengths verified.

    ``entry`` lies inside the file (`check_directory` saw to it). Nothing is allocated. Raises CorruptionError, which
    calls the page ``what``.
    """
    offset, length = entry.offset, entry.length
    if length < PAGE_HEADER_BYTES:
        raise image.corruption(offset, what, f"a page of {length} bytes")
    stored_crc = stored_page_crc(image.view, offset)
    crc = page_crc(image.file_id, offset, image.view[offset + 4 : offset + length])
    if crc != stored_crc:
        raise image.corruption(offset, what, f"checksum {stored_crc:#010x} stored, {crc:#010x} found")
    header = PageHeader.unpack(image.view, offset)
    fault = header.fault(length)
    if fault is None and header.row_count != entry.row_count:
        fault = f"{header.row_count} rows, the footer says {entry.row_count}"
    if fault:
        raise image.corruption(offset, what, fault)
    try:
        codec = codec_by_code(header.encoding)
        compression_name(header.compression)
    except (KeyError, CorruptPageError):
        why = f"unknown encoding {header.encoding} or compression {header.compression}"
        raise image.corruption(offset, what, why) from None
    return _page_of(image.data, offset, header, codec)


def _page_of(data: np.ndarray, offset: int, header: PageHeader, codec: Codec) -> Page:
    start = offset + PAGE_HEADER_BYTES
    end = start + header.stored_length
    bitmap = data[end : end + header.bitmap_length] if header.bitmap_length else None
    return Page(offset, header, codec, data[start:end], bitmap)

"""One page of a cfile: up to 65,536 cells of one stream, encoded, perhaps compressed, checksummed.

A page stores which cells are NULL apart from the cells themselves: the codec sees a vector without NULLs, in which a
NULL cell is zero or empty. A page with only NULLs is just a header.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ..codecs.bitshuffle import BitshuffleCodec
from ..codecs.codec import Codec, CorruptPageError
from ..codecs.compression import NONE, compress, compression_name, decompress
from ..codecs.dictionary import DictionaryCodec
from ..codecs.fsst import FsstCodec
from ..codecs.prefix import PrefixCodec
from ..codecs.registry import codec_by_code, codec_by_name
from ..codecs.shredded import ShreddedCodec
from ..fs.failures import reading
from ..fs.far import FarFile
from ..fs.filesystem import ReadableFile
from ..vectors.memory.huge_pages import KEPT
from ..vectors.memory.lending import READ_BUFFERS
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
from .leaf_zones import leaf_zone_maps
from .zone_map import ZoneMap

MIN_SAVING = 0.1
"""The share of a page that compression must save, or the page stays uncompressed."""


class EncodedPage(NamedTuple):
    """A page of a cfile ready to be written, except for the crc, which depends on its position."""

    header: PageHeader
    payload: bytes | memoryview
    bitmap: bytes
    leaves: Sequence[ZoneMap | None] = ()
    """The zone maps of the leaves of its structs, for the footer."""

    @property
    def length(self) -> int:
        """Bytes of the page in the file."""
        return self.header.page_length

    def parts(self, file_id: int, offset: int) -> list[bytes | memoryview]:
        """Return the bytes of the page at ``offset`` of the file ``file_id``, in pieces."""
        used = PAGE_HEADER_BYTES + len(self.payload) + len(self.bitmap)
        body = [self.header.pack(), self.payload, self.bitmap, bytes(padding_of(used))]
        return [seal_page(file_id, offset, body), *body]


def encode_page(vector: Vector, physical: PhysicalType, codec: Codec, compression: int, flags: int = 0) -> EncodedPage:
    """Encode and compress the cells of one page of a cfile.

    Raises InvalidArgumentError when they take more than ``MAX_PAGE_BYTES`` bytes.
    """
    bitmap, payload = b"", np.empty(0, np.uint8)
    leaves: Sequence[ZoneMap | None] = ()
    if vector.valid is not None and not vector.valid.any() and len(vector):
        flags |= ALL_NULL
    else:
        if vector.valid is not None and not vector.valid.all():
            flags |= HAS_BITMAP
            bitmap = np.packbits(vector.valid, bitorder="little").tobytes()
        if isinstance(codec, ShreddedCodec):
            array = codec.array_of(vector)
            payload, leaves = codec.encode_array(array), leaf_zone_maps(array)
        else:
            payload = codec.encode(vector, physical)
    raw_length = len(payload)
    if raw_length > MAX_PAGE_BYTES:
        raise InvalidArgumentError(
            f"{len(vector)} cells take {raw_length} bytes; a page holds at most {MAX_PAGE_BYTES}"
        )
    stored, compression = _smaller(payload, compression)
    header = PageHeader(len(vector), codec.code, compression, flags, raw_length, len(stored), len(bitmap))
    return EncodedPage(header, stored, bitmap, leaves)


def _smaller(payload: np.ndarray, compression: int) -> tuple[bytes | memoryview, int]:
    """Return the payload, compressed if that saves enough, and its compression."""
    if compression != NONE and len(payload):
        compressed = compress(compression, payload.data)
        if len(compressed) <= len(payload) * (1 - MIN_SAVING):
            return compressed, compression
    return payload.data, NONE


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Page:
    """A page read from a cfile, in its own memory; its checksum and header are right."""

    offset: int
    header: PageHeader
    codec: Codec
    stored: np.ndarray
    bitmap: np.ndarray | None
    crc: int
    """Its checksum in the file, which identifies its content."""
    padding: np.ndarray
    part_bytes: int | None = None
    """How many of its bytes are there; None: all (`PageOutline`)."""
    part: tuple[int, int, int, int] | None = field(default=None, init=False)
    """What `page_kind.part_of` found."""

    @property
    def row_count(self) -> int:
        """Cells of the page, NULLs included."""
        return self.header.row_count

    @property
    def is_all_null(self) -> bool:
        """Whether every cell is NULL; there is nothing to decode then."""
        return bool(self.header.flags & ALL_NULL)

    @property
    def is_restored(self) -> bool:
        """Whether its strings are put together from pieces: to copy plain ones takes a tenth of the time."""
        return isinstance(self.codec, FsstCodec | PrefixCodec | ShreddedCodec)

    @property
    def encoded(self) -> EncodedPage:
        """The page as it may be written elsewhere, identical except for its checksum."""
        return EncodedPage(self.header, self.stored.data, b"" if self.bitmap is None else self.bitmap.tobytes())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        if self.part_bytes is not None:
            return self.part_bytes
        return PAGE_HEADER_BYTES + len(self.stored) + self.header.bitmap_length

    def without_cells(self) -> "Page":
        """Return the page without its bytes."""
        return replace(self, stored=_NOTHING, bitmap=None, padding=_NOTHING)

    def with_cells(self, stored: np.ndarray, bitmap: np.ndarray | None, size: int) -> "Page":
        """Return the page with ``stored`` and ``bitmap``, in which there are only ``size`` of its bytes."""
        return Page(self.offset, self.header, self.codec, stored, bitmap, self.crc, _NOTHING, size)

    def unpacked(self) -> "Page":
        """Return the page with compressed bytes decompressed; itself if it has none.

        Raises CorruptPageError if they do not decompress.
        """
        header = self.header
        if header.compression == NONE:
            return self
        return replace(
            self,
            header=header._replace(compression=NONE, stored_length=header.raw_length),
            stored=decompress(header.compression, self.stored, header.raw_length),
            bitmap=None if self.bitmap is None else self.bitmap.copy(),  # else it would keep the whole read buffer
            padding=_NOTHING,
        )

    def loosened(self, physical: PhysicalType) -> "Page | None":
        """Return the page, which has been checked, with its mini-blocks uncompressed, and strings plain: cells are read
        faster, and it takes their memory. None if that changes nothing. It is no page of a file: see ``encoded``.

        Raises CorruptPageError if they do not decompress.
        """
        codec, stored = self.codec, None
        if self.is_all_null:
            return None
        if isinstance(codec, BitshuffleCodec | DictionaryCodec):
            stored = codec.loosened(self.stored, physical, self.row_count)
        elif self.is_restored:
            cells = codec.decode(self.stored, physical, self.row_count, 0, self.row_count)
            codec = codec_by_name("plain")
            stored = codec.encode(cells, physical)
        if stored is None:
            return None
        bitmap = None if self.bitmap is None else self.bitmap.copy()  # else it would keep the whole read buffer
        return replace(self, codec=codec, stored=stored, bitmap=bitmap, padding=_NOTHING)

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


_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class FileImage:
    """An open cfile and its expected identity: all that is needed to load its pages. Thread safe."""

    path: str
    file_id: int
    file: ReadableFile
    footer_offset: int
    far: FarFile | None = None
    """The file, if it is far away."""
    written_as: int | None = None
    """The number under which it was written, if it is a copy of another file, byte by byte."""

    @property
    def seed(self) -> int:
        """The number that its checksums start from."""
        return self.file_id if self.written_as is None else self.written_as

    def read(self, offset: int, length: int, is_kept: bool = True, is_page: bool = False) -> np.ndarray:
        """Read bytes of the file (uint8) into their own memory, with room to overshoot; it is lent unless they are
        kept. Those of a whole page have a checksum, so what is kept of a far file is not compared with its own.

        Raises:
            CorruptionError: the file is gone, or was cut short.
            UnreadableFileError: the disk does not return them.
        """
        data = KEPT.allocate(length) if is_kept else READ_BUFFERS.lend(length)
        self.read_to(offset, data, is_page)
        return data

    def read_to(self, offset: int, data: np.ndarray | memoryview, is_page: bool = False) -> None:
        """Read bytes of the file into ``data``. Raises as ``read``."""
        length = len(data)
        read_into = self.far.read_unchecked if self.far and is_page else self.file.read_into
        with reading(self.path, offset):
            count = read_into(offset, data) if length else 0
        if count < length:
            why = f"the file ends here; {length - count:,} bytes are missing"
            raise CorruptionError(self.path, offset + count, why)

    def check(self) -> None:
        """Check that the file still exists with its full size. Raises as ``read``."""
        with reading(self.path, 0):
            self.file.check()

    def corruption(self, offset: int, what: object, why: object) -> CorruptionError:
        """Return an error that says that ``what``, at ``offset``, is not what was written."""
        return CorruptionError(self.path, offset, f"{what}: {why}")


def load_page(image: FileImage, what: str, entry: PageEntry, is_kept: bool = False) -> Page:
    """Read the page of a cfile that ``entry`` of its footer describes, and verify its checksum and lengths; they are
    not verified again. Its memory is lent unless it ``is_kept``. What is wrong in the cache of a far file is fetched
    again once.

    ``entry`` must be inside the file (`check_directory`). Raises CorruptionError, which calls the page ``what``, and
    UnreadableFileError.
    """
    offset, length = entry.offset, entry.length
    if length < PAGE_HEADER_BYTES:
        raise image.corruption(offset, what, f"{length} bytes are too few for a page")
    data = image.read(offset, length, is_kept, is_page=True)
    stored_crc, crc = stored_page_crc(data.data), page_crc(image.seed, offset, data[4:].data)
    if crc != stored_crc and image.far:
        image.far.forget(offset, length)
        data = image.read(offset, length, is_kept, is_page=True)
        stored_crc, crc = stored_page_crc(data.data), page_crc(image.seed, offset, data[4:].data)
    if crc != stored_crc:
        raise image.corruption(offset, what, f"checksum {stored_crc:#010x} stored, {crc:#010x} found")
    header = PageHeader.unpack(data.data)
    fault = header.fault(length)
    if fault is None and header.row_count != entry.row_count:
        fault = f"it has {header.row_count} rows, but the footer says {entry.row_count}"
    if fault:
        raise image.corruption(offset, what, fault)
    try:
        codec = codec_by_code(header.encoding)
        compression_name(header.compression)
    except (KeyError, CorruptPageError):
        why = f"unknown encoding {header.encoding} or compression {header.compression}"
        raise image.corruption(offset, what, why) from None
    payload_end = PAGE_HEADER_BYTES + header.stored_length
    end = payload_end + header.bitmap_length
    bitmap = data[payload_end:end] if header.bitmap_length else None
    return Page(offset, header, codec, data[PAGE_HEADER_BYTES:payload_end], bitmap, crc, data[end:])

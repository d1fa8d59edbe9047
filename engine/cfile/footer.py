"""The footer of a cfile: the directory of its streams and pages, written as JSON.

JSON, because it is small beside the pages, read once when the file is opened, and readable without special tools.
Footers of up to ``COMPRESS_ABOVE`` bytes are plain, larger ones one zstd frame.

A reader ignores members that it does not know. Those that it must not ignore are named in ``required_features``: a
reader rejects a file that requires an unknown feature.

Zone values are integers for integers and bools, hexadecimal floats ("0x1.8p+1", "-inf") for floats and base64 for
bytes, so that each is restored exactly.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import zstandard
from pydantic import Field, JsonValue, NonNegativeInt, ValidationError

from ...schemas.errors import CorruptionError, InvalidArgumentError
from ...schemas.message import Message, new_list
from ..codecs.codec import PAGE_ROWS
from ..vectors.physical import PhysicalType
from .format import HEADER_BYTES, TAIL_BYTES, TRAILER_BYTES, Trailer, page_crc
from .leaf_zones import leaves_named
from .zone_map import ZoneMap, ZoneValue

COMPRESS_ABOVE = 4096
TAIL_AT_ONCE = 16 << 10
"""The end of a file to read at once: the trailer and usually the whole footer."""
_RAW, _ZSTD = 0, 1
_FLOATS = (PhysicalType.FLOAT32, PhysicalType.FLOAT64)


Read = Callable[[int, int], np.ndarray]
"""Returns this many bytes (uint8) from an offset on."""


class ZoneEntry(Message, frozen=True, strict=True, extra="ignore"):
    """The zone map of one page in the footer of a cfile: its bounds, as in `ZoneMap`, in JSON's types."""

    min: int | str | None
    max: int | str | None
    exact: bool
    has_nan: bool = False


class LeafEntry(Message, frozen=True, strict=True, extra="ignore"):
    """The zone map of one leaf of the structs of a page in the footer of a cfile, as in `ZoneEntry`."""

    null_count: NonNegativeInt = 0
    min: int | str | None = None
    max: int | str | None = None
    exact: bool = True
    has_nan: bool = False


class PageEntry(Message, frozen=True, strict=True, extra="ignore"):
    """One page in the footer of a cfile: its position and content."""

    offset: NonNegativeInt
    length: NonNegativeInt
    row_count: NonNegativeInt
    null_count: NonNegativeInt = 0
    zone: ZoneEntry | None = None
    leaves: tuple[LeafEntry | None, ...] = ()
    """The zone map of each leaf of the stream's struct type (`leaf_zones`), None if it has none; or nothing at all."""


class StreamEntry(Message, frozen=True, strict=True, extra="ignore"):
    """One stream in the footer of a cfile: the cells of a column in row order, cut into pages."""

    column_id: int
    role: str
    physical: PhysicalType
    row_count: NonNegativeInt
    page_rows: NonNegativeInt
    """Rows of every page but the last: a power of two, so that a row's page is a shift; 1 if pages have different
    numbers of rows."""
    raw_bytes: NonNegativeInt
    """Bytes of the cells before encoding."""
    encodings: list[str]
    """Names of the codecs that wrote the pages, in order of first use."""
    pages: list[PageEntry]
    dictionary: PageEntry | None = None
    """The page of distinct values, for streams with dictionary pages."""
    nested: str | None = None
    """The struct type of the cells, as text, if pages have zone maps of its leaves."""

    @property
    def has_even_pages(self) -> bool:
        """Whether every page but the last has ``page_rows`` rows, and the last no more."""
        rows = [page.row_count for page in self.pages]
        return all(count == self.page_rows for count in rows[:-1]) and max(rows[-1:], default=0) <= self.page_rows

    @property
    def all_pages(self) -> list[PageEntry]:
        """The pages of rows, in order, and the dictionary."""
        return self.pages if self.dictionary is None else [*self.pages, self.dictionary]


class Footer(Message, frozen=True, strict=True, extra="ignore"):
    """The footer of a cfile: all metadata of its pages."""

    file_id: NonNegativeInt
    kind: str
    required_features: list[str] = Field(default_factory=new_list)
    streams: list[StreamEntry]
    metadata: dict[str, JsonValue]
    """The caller's metadata, returned unchanged."""


UNEVEN_PAGES = "uneven_pages"
"""Pages of a stream of long cells have different numbers of rows."""
NEW_ENCODINGS = frozenset({"frame_of_reference", "alp", "fsst"})
"""Encodings that version 0.1 does not know: a file requires those that it uses."""
KNOWN_FEATURES = NEW_ENCODINGS | {UNEVEN_PAGES}
"""Features that a file may require of its reader."""


def features_of(streams: list[StreamEntry]) -> list[str]:
    """Return the features that a cfile with these streams requires of its reader."""
    features = {name for stream in streams for name in stream.encodings if name in NEW_ENCODINGS}
    if any(not stream.has_even_pages for stream in streams):
        features.add(UNEVEN_PAGES)
    return sorted(features)


def pack_footer(footer: Footer, offset: int) -> bytes:
    """Return footer and trailer of a cfile whose pages end at ``offset``; at least ``TAIL_BYTES`` bytes."""
    raw = stored = footer.model_dump_json(exclude_defaults=True).encode()
    compression = _RAW
    if len(raw) > COMPRESS_ABOVE:
        compressed = zstandard.compress(raw)
        if TAIL_BYTES - TRAILER_BYTES <= len(compressed) < len(raw):
            stored, compression = compressed, _ZSTD
    crc = page_crc(footer.file_id, offset, memoryview(stored))
    tail = stored + Trailer(len(stored), len(raw), compression, crc).pack()
    assert len(tail) >= TAIL_BYTES, "the JSON of an empty footer is longer than that"
    return tail


def unpack_footer(path: str, size: int, read: Read, file_id: int) -> tuple[Footer, int]:
    """Return the footer of a cfile of ``size`` bytes, at least ``MIN_FILE_BYTES``, and its offset.

    Raises what ``read`` does, CorruptionError if it is not what was written, InvalidArgumentError if the file requires
    a format version or a feature that this build does not know.
    """
    first = max(0, size - TAIL_AT_ONCE)
    tail = read(first, size - first)
    trailer = Trailer.unpack(path, size, tail[-TRAILER_BYTES:].data)
    end = size - TRAILER_BYTES
    offset = end - trailer.stored_length
    stored = tail[offset - first : end - first].data if offset >= first else read(offset, end - offset).data
    if page_crc(file_id, offset, stored) != trailer.footer_crc:
        raise CorruptionError(path, offset, "the checksum of the footer is wrong")
    try:
        footer = Footer.model_validate_json(_decompressed(trailer, stored))
    except (ValidationError, zstandard.ZstdError) as error:
        raise CorruptionError(path, offset, f"the footer cannot be parsed: {error}") from error
    unknown = sorted(set(footer.required_features) - KNOWN_FEATURES)
    if unknown:
        raise InvalidArgumentError(
            f"{path} requires {', '.join(unknown)}, which this version of Nyala does not support"
        )
    return footer, offset


def check_directory(path: str, footer: Footer, footer_offset: int) -> None:
    """Check that the pages of every stream are inside the cfile and hold its rows; raises CorruptionError.

    After this, offsets and row counts of the footer are safe to compute with.
    """
    keys = [(stream.column_id, stream.role) for stream in footer.streams]
    if len(set(keys)) < len(keys):
        raise CorruptionError(path, footer_offset, "two streams have the same name")
    for stream in footer.streams:
        fault = _stream_fault(stream, footer_offset)
        if fault:
            raise CorruptionError(path, footer_offset, f"column {stream.column_id} {stream.role}: {fault}")


def _stream_fault(stream: StreamEntry, end: int) -> str | None:
    page_rows, row_count = stream.page_rows, stream.row_count
    if not 0 < page_rows <= PAGE_ROWS or page_rows & (page_rows - 1):
        return f"its pages have {page_rows} rows, not a power of two up to {PAGE_ROWS}"
    for number, page in enumerate(stream.pages):
        is_last = number == len(stream.pages) - 1
        if not 0 < page.row_count <= PAGE_ROWS or (page.row_count % page_rows and not is_last):
            return f"page {number} cannot have {page.row_count} rows"
    if sum(page.row_count for page in stream.pages) != row_count:
        return f"its {len(stream.pages)} pages do not have {row_count} rows together"
    if len({page.zone is None for page in stream.pages}) > 1:
        return "only some of its pages have bounds"
    for page in stream.all_pages:
        if page.offset < HEADER_BYTES or page.offset + page.length > end:
            return f"its page at bytes {page.offset} to {page.offset + page.length} is outside the file's pages"
    return None if stream.nested is None else _leaves_fault(stream.nested, stream.pages)


def _leaves_fault(nested: str, pages: Sequence[PageEntry]) -> str | None:
    counts = {len(page.leaves) for page in pages} - {0}
    try:
        leaves = leaves_named(nested)
    except ValueError as error:
        return f"its nested type cannot be read: {error}"
    return f"its pages have bounds of {counts} fields, not of {len(leaves)}" if counts - {len(leaves)} else None


def _decompressed(trailer: Trailer, stored: memoryview) -> bytes:
    if trailer.compression == _ZSTD:
        raw = zstandard.ZstdDecompressor().decompress(stored, max_output_size=trailer.raw_length)
    elif trailer.compression == _RAW:
        raw = bytes(stored)
    else:
        raise zstandard.ZstdError(f"unknown compression {trailer.compression}")
    if len(raw) != trailer.raw_length:
        raise zstandard.ZstdError(f"it decodes to {len(raw)} bytes, not to {trailer.raw_length}")
    return raw


def page_entry(
    offset: int, length: int, zone: ZoneMap, keep_zones: bool, leaves: Sequence[ZoneMap | None] = ()
) -> PageEntry:
    """Return the footer's entry of a page, with or without its bounds and those of leaves."""
    entry = ZoneEntry(min=_to_json(zone.min), max=_to_json(zone.max), exact=zone.exact, has_nan=zone.has_nan)
    return PageEntry(
        offset=offset,
        length=length,
        row_count=zone.row_count,
        null_count=zone.null_count,
        zone=entry if keep_zones else None,
        leaves=tuple(leaf and _leaf_entry(leaf) for leaf in leaves) if leaves and keep_zones else (),
    )


def _leaf_entry(zone: ZoneMap) -> LeafEntry:
    return LeafEntry(
        null_count=zone.null_count,
        min=_to_json(zone.min),
        max=_to_json(zone.max),
        exact=zone.exact,
        has_nan=zone.has_nan,
    )


def leaf_zone_map_from(page: PageEntry, zone: LeafEntry, physical: PhysicalType) -> ZoneMap:
    """Return the zone map of a leaf of a page from the footer, in Python's types. Raises ValueError for what is none of
    its cells."""
    if zone.null_count > page.row_count:
        raise ValueError(f"the footer says {zone.null_count} NULLs in {page.row_count} rows")
    bounds = ZoneEntry(min=zone.min, max=zone.max, exact=zone.exact, has_nan=zone.has_nan)
    return replace(zone_map_from(page, bounds, physical), null_count=zone.null_count)


def zone_map_from(page: PageEntry, zone: ZoneEntry, physical: PhysicalType) -> ZoneMap:
    """Return the zone map of a page from the footer, in Python's types. Raises ValueError for what are no bounds of its
    cells."""
    low, high = _from_json(zone.min, physical), _from_json(zone.max, physical)
    if not _are_bounds(low, high, physical):
        raise ValueError(f"{low!r} to {high!r} are not bounds of {physical} cells")
    return ZoneMap(low, high, page.null_count, page.row_count, zone.exact, zone.has_nan)


def _are_bounds(low: ZoneValue, high: ZoneValue, physical: PhysicalType) -> bool:
    if low is None or high is None:
        return high is None and (low is None or physical is PhysicalType.BYTES)
    least, most = _RANGES.get(physical, (low, high))
    return least <= low <= high <= most  # false for NaN


_BITS = {physical: 8 * physical.width - 1 for physical in PhysicalType if physical.is_integer}
_RANGES = {PhysicalType.BOOL: (0, 1)} | {physical: (-1 << bits, (1 << bits) - 1) for physical, bits in _BITS.items()}
"""The least and the greatest cell."""


def _to_json(value: ZoneValue) -> int | str | None:
    if isinstance(value, float):
        return value.hex()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _from_json(value: int | str | None, physical: PhysicalType) -> ZoneValue:
    if value is None:
        return None
    if physical in _FLOATS and isinstance(value, str):
        try:
            return float.fromhex(value)
        except OverflowError as error:
            raise ValueError(f"{value!r} is too large for a float") from error
    if physical is PhysicalType.BYTES and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if isinstance(value, str) or physical in _FLOATS or physical is PhysicalType.BYTES:
        raise ValueError(f"{value!r} is not a bound of {physical} cells")
    return value

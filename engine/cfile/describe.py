"""Describes a cfile, byte range by byte range, for ``nyala dump``."""

from typing import Any

from ...schemas.errors import CorruptionError
from ..codecs.compression import compression_name
from ..codecs.registry import codec_by_code
from ..fs.filesystem import FileSystem
from .footer import PageEntry
from .format import (
    ALL_NULL,
    FORMAT_VERSION,
    HAS_BITMAP,
    IS_DICTIONARY,
    TRAILER_BYTES,
    PageHeader,
    StreamKey,
)
from .page import FileImage, load_page
from .reader import CFileReader, file_id_of
from .stream import StreamReader
from .zone_map import ZoneMap, ZoneValue

_FLAG_NAMES = {HAS_BITMAP: "bitmap", ALL_NULL: "all null", IS_DICTIONARY: "dictionary"}


def describe(fs: FileSystem, path: str) -> dict[str, Any]:
    """Return header, footer, streams and pages of a cfile as JSON values.

    A damaged page is listed with its "fault", and the others follow. Raises CorruptionError if header, trailer or
    footer are damaged: then nothing is known of the pages.
    """
    reader = CFileReader.open(fs, path, file_id_of(fs, path))
    end = reader.size_bytes - TRAILER_BYTES
    footer_offset = reader.image.footer_offset
    return {
        "path": path,
        "size_bytes": reader.size_bytes,
        "header": {
            "format_version": FORMAT_VERSION,
            "kind": reader.kind,
            "file_id": reader.file_id,
        },
        "streams": [_describe_stream(reader.image, reader.stream(key)) for key in reader.streams()],
        "footer": {"offset": footer_offset, "length": end - footer_offset},
        "required_features": reader.footer.required_features,
        "metadata": reader.metadata,
    }


def _describe_stream(image: FileImage, stream: StreamReader) -> dict[str, Any]:
    entry = stream.entry
    zones: list[ZoneMap | None] = [*stream.zone_maps] or [None] * stream.page_count
    return {
        "column_id": stream.key.column_id,
        "role": stream.key.role,
        "physical": stream.physical.value,
        "row_count": stream.row_count,
        "page_rows": stream.page_rows,
        "encodings": list(stream.encoding_names),
        "raw_bytes": stream.raw_bytes,
        "compressed_bytes": stream.compressed_bytes,
        "pages": [_describe_page(image, stream.key, page, zone) for page, zone in zip(entry.pages, zones, strict=True)],
        "dictionary": entry.dictionary and _describe_page(image, stream.key, entry.dictionary, None),
    }


def _describe_page(image: FileImage, key: StreamKey, entry: PageEntry, zone: ZoneMap | None) -> dict[str, Any]:
    place = {"offset": entry.offset, "length": entry.length, "row_count": entry.row_count}
    try:
        header = load_page(image, str(key), entry).header
    except CorruptionError as error:
        return place | {"fault": error.why}
    return place | {"null_count": entry.null_count} | _describe_header(header) | _describe_zone(zone)


def _describe_header(header: PageHeader) -> dict[str, Any]:
    return {
        "encoding": codec_by_code(header.encoding).name,
        "compression": compression_name(header.compression),
        "flags": [name for flag, name in _FLAG_NAMES.items() if header.flags & flag],
        "raw_length": header.raw_length,
        "stored_length": header.stored_length,
        "bitmap_length": header.bitmap_length,
    }


def _describe_zone(zone: ZoneMap | None) -> dict[str, Any]:
    if zone is None:
        return {"zone": None}
    bounds = {"min": _readable(zone.min), "max": _readable(zone.max)}
    return {"zone": bounds | {"exact": zone.exact, "has_nan": zone.has_nan}}


def _readable(value: ZoneValue) -> int | str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value) if isinstance(value, float) else value

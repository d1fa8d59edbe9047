"""Check a whole cfile: every byte, every cell, and that the directory tells the truth about them."""

from collections.abc import Sequence

from ..vectors.vector import Vector
from .footer import PageEntry
from .format import HEADER_BYTES, PAGE_HEADER_BYTES
from .page import FileImage, Page
from .stream import StreamReader
from .zone_map import zone_map_of


def verify_pages(image: FileImage, streams: Sequence[StreamReader]) -> None:
    """Check all pages of the file and the ground they cover; raises CorruptionError at the first fault."""
    _verify_cover(image, streams)
    for stream in streams:
        for number, entry in enumerate(stream.entry.pages):
            _verify_page(image, stream, number, entry)
        used = {stream.codec_name(number) for number in range(stream.page_count)}
        if used != set(stream.encoding_names):
            why = f"pages are encoded as {sorted(used)}, the footer says {stream.encoding_names}"
            raise image.corruption(image.footer_offset, stream.key, why)


def _verify_cover(image: FileImage, streams: Sequence[StreamReader]) -> None:
    """Each byte between header and footer must belong to exactly one page."""
    pages = [(entry.offset, entry.length, stream.key) for stream in streams for entry in stream.entry.all_pages]
    end = HEADER_BYTES
    for offset, length, key in sorted(pages):
        if offset != end:
            raise image.corruption(offset, key, f"a page here, though the one before ends at {end}")
        end = offset + length
    if end != image.footer_offset:
        raise image.corruption(end, "footer", f"pages end here, the footer is at {image.footer_offset}")


def _verify_page(image: FileImage, stream: StreamReader, number: int, entry: PageEntry) -> None:
    page, cells = stream.load(number)
    fault = _padding_fault(image, page) or _bounds_fault(stream, number, cells)
    if fault:
        raise image.corruption(entry.offset, f"{stream.key} page {number}", fault)


def _padding_fault(image: FileImage, page: Page) -> str | None:
    """Bits and bytes that mean nothing must be zero, so that equal cells make equal files."""
    header = page.header
    used = PAGE_HEADER_BYTES + header.stored_length + header.bitmap_length
    if any(image.view[page.offset + used : page.offset + header.page_length]):
        return "padding that is not zero"
    if page.bitmap is not None and header.row_count % 8 and page.bitmap[-1] >> header.row_count % 8:
        return "validity of cells past the last one"
    return None


def _bounds_fault(stream: StreamReader, number: int, cells: Vector) -> str | None:
    entry = stream.entry.pages[number]
    found = zone_map_of(cells, stream.physical)
    if found.null_count != entry.null_count:
        return f"{found.null_count} NULLs, the footer says {entry.null_count}"
    if entry.zone is not None and found != stream.zone_maps[number]:
        return f"its cells lie in {found}, the footer says {stream.zone_maps[number]}"
    return None

"""Verifies a whole cfile: every byte, every cell, and what the directory says of them."""

from .cache import FilePages, PageCache
from .footer import Footer
from .format import HEADER_BYTES, PAGE_HEADER_BYTES, StreamKey
from .page import FileImage, Page, load_page
from .stream import StreamReader
from .zone_map import zone_map_of


def verify_pages(image: FileImage, footer: Footer) -> None:
    """Verify all pages of a cfile and that they cover it; raises CorruptionError at the first fault.

    ``footer`` is that of the file, checked against its checksum. Memory holds one page and one dictionary.
    """
    _verify_cover(image, footer)
    for entry in footer.streams:
        # A separate reader, which leaves the caches alone.
        stream = StreamReader(image, entry, FilePages(PageCache(0), image.file_id))
        stream.dictionary()
        if entry.dictionary:
            _verify_padding(image, stream.key, load_page(image, f"dictionary of {stream.key}", entry.dictionary))
        used = {_verify_page(image, stream, number) for number in range(stream.page_count)}
        if used != set(entry.encodings):
            why = f"pages are encoded as {sorted(used)}, the footer says {entry.encodings}"
            raise image.corruption(image.footer_offset, stream.key, why)


def _verify_cover(image: FileImage, footer: Footer) -> None:
    """Each byte between header and footer must belong to exactly one page."""
    pages = [
        (page.offset, page.length, StreamKey(stream.column_id, stream.role))
        for stream in footer.streams
        for page in stream.all_pages
    ]
    end = HEADER_BYTES
    for offset, length, key in sorted(pages):
        if offset != end:
            raise image.corruption(offset, key, f"a page here, though the one before ends at {end}")
        end = offset + length
    if end != image.footer_offset:
        raise image.corruption(end, "pages end here", f"the footer is at {image.footer_offset}")


def _verify_page(image: FileImage, stream: StreamReader, number: int) -> str:
    """Read a page, decode all of it, and compare the directory with its cells; return the name of its encoding."""
    entry = stream.entry.pages[number]
    _verify_padding(image, stream.key, stream.stored_page(number))
    page = stream.page(number)
    found = zone_map_of(stream.decoded(number, page, 0, entry.row_count), stream.physical)
    fault = None
    if found.null_count != entry.null_count:
        fault = f"{found.null_count} NULLs, the footer says {entry.null_count}"
    elif entry.zone is not None and found != stream.zone_maps[number]:
        fault = f"its cells lie in {found}, the footer says {stream.zone_maps[number]}"
    if fault:
        raise image.corruption(entry.offset, f"{stream.key} page {number}", fault)
    return page.codec.name


def _verify_padding(image: FileImage, key: StreamKey, page: Page) -> None:
    """Unused bits and bytes of a page must be zero: equal cells make equal files."""
    used = page.offset + PAGE_HEADER_BYTES + page.header.stored_length + page.header.bitmap_length
    past_last = page.row_count % 8
    if page.bitmap is not None and past_last and page.bitmap[-1] >> past_last:
        raise image.corruption(used - 1, key, "validity of cells past the last one")
    if page.padding.any():
        raise image.corruption(used, key, "padding that is not zero")

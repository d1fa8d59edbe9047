"""Check a whole cfile: every byte, every cell, and that the directory tells the truth about them."""

from .cache import PageCache
from .footer import Footer, PageEntry
from .format import HAS_BITMAP, HEADER_BYTES, PAGE_HEADER_BYTES, PageHeader, StreamKey
from .page import FileImage
from .stream import StreamReader
from .zone_map import zone_map_of


def verify_pages(image: FileImage, footer: Footer) -> None:
    """Check all pages of the file and the ground they cover; raises CorruptionError at the first fault.

    ``footer`` is that of the file, checked against its checksum. Memory stays at one page and one dictionary.
    """
    _verify_cover(image, footer)
    for entry in footer.streams:
        # A reader of its own: it remembers no page as verified and fills nobody's cache.
        stream = StreamReader(image, entry, PageCache())
        stream.dictionary()
        for number, page in enumerate(entry.pages):
            fault = _page_fault(stream, number)
            if fault:
                raise image.corruption(page.offset, f"{stream.key} page {number}", fault)
        _verify_padding(image, stream.key, entry.all_pages)
        used = {stream.page(number).codec.name for number in range(stream.page_count)}
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


def _page_fault(stream: StreamReader, number: int) -> str | None:
    """Decode a whole page and return where the directory contradicts its cells, or None."""
    entry = stream.entry.pages[number]
    first = stream.first_row(number)
    found = zone_map_of(stream.read(first, first + entry.row_count), stream.physical)
    if found.null_count != entry.null_count:
        return f"{found.null_count} NULLs, the footer says {entry.null_count}"
    if entry.zone is not None and found != stream.zone_maps[number]:
        return f"its cells lie in {found}, the footer says {stream.zone_maps[number]}"
    return None


def _verify_padding(image: FileImage, key: StreamKey, pages: list[PageEntry]) -> None:
    """Bits and bytes of verified pages that mean nothing must be zero: equal cells make equal files."""
    for page in pages:
        header = PageHeader.unpack(image.view, page.offset)
        used = page.offset + PAGE_HEADER_BYTES + header.stored_length + header.bitmap_length
        past_last = header.row_count % 8
        if header.flags & HAS_BITMAP and past_last and image.view[used - 1] >> past_last:
            raise image.corruption(used - 1, key, "validity of cells past the last one")
        if any(image.view[used : page.offset + page.length]):
            raise image.corruption(used, key, "padding that is not zero")

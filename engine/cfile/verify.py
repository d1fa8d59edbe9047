"""Verifies a whole cfile: every byte, every cell, and what the directory says of them."""

import numpy as np
import pyarrow as pa

from ...schemas.cells.types import LogicalType
from ..codecs.shredded import ShreddedCodec
from ..vectors.arrow import to_arrow
from ..vectors.nested import MalformedCellError
from ..vectors.vector import DictionaryVector, Vector
from .cache import FilePages, PageCache
from .footer import Footer
from .format import HEADER_BYTES, PAGE_HEADER_BYTES, StreamKey
from .leaf_zones import LeavesOfValues, leaf_zone_maps, leaves_named
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
        leaves = LeavesOfValues(LogicalType.parse(entry.nested).arrow) if entry.nested else None
        used = {_verify_page(image, stream, number, leaves) for number in range(stream.page_count)}
        if used != set(entry.encodings):
            why = f"pages are encoded as {sorted(used)}, but the footer says {entry.encodings}"
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
            raise image.corruption(offset, key, f"a page begins here, but the page before it ends at byte {end}")
        end = offset + length
    if end != image.footer_offset:
        raise image.corruption(end, "the pages end here", f"the footer begins only at byte {image.footer_offset}")


def _verify_page(image: FileImage, stream: StreamReader, number: int, leaves: LeavesOfValues | None) -> str:
    """Read a page, decode all of it, and compare the directory with its cells; return the name of its encoding."""
    entry = stream.entry.pages[number]
    _verify_padding(image, stream.key, stream.stored_page(number))
    page = stream.page(number)
    array = None
    if entry.leaves and isinstance(page.codec, ShreddedCodec) and not page.is_all_null:
        cells, array = stream.decoded_apart(number, page)
    else:
        cells = stream.decoded(number, page, 0, entry.row_count)
    found = zone_map_of(cells, stream.physical)
    fault = None
    if found.null_count != entry.null_count:
        fault = f"it has {found.null_count} NULLs, but the footer says {entry.null_count}"
    elif entry.zone is not None and found != stream.zone_maps[number]:
        fault = f"its cells lie in {found}, but the footer says {stream.zone_maps[number]}"
    elif entry.leaves:
        fault = _leaves_fault(stream, number, cells, array, leaves) if leaves else "its fields have bounds but no type"
    if fault:
        raise image.corruption(entry.offset, f"{stream.key} page {number}", fault)
    return page.codec.name


def _leaves_fault(
    stream: StreamReader, number: int, cells: Vector, array: pa.Array | None, leaves: LeavesOfValues
) -> str | None:
    """Compare the bounds of the leaves of a page of structs with its cells, given as an array, too, if it has one."""
    nested = stream.entry.nested
    assert nested is not None, "checked on opening"
    kind = LogicalType.parse(nested).arrow
    try:
        if isinstance(cells, DictionaryVector):
            zones = leaves.zone_maps(cells)
        else:
            array = to_arrow(cells, kind) if array is None else array
            zones = leaf_zone_maps(array)
    except MalformedCellError as error:
        return str(error)
    if array is not None:
        if array.type != kind:
            return f"its cells have the type {array.type}, but the footer says {nested}"
        valid = np.ones(len(cells), np.bool_) if cells.valid is None else cells.valid
        if not np.array_equal(array.is_valid().to_numpy(zero_copy_only=False), valid):
            return "its cells and its bitmap disagree on which rows are NULL"
    for leaf, of_cells in zip(leaves_named(nested), zones, strict=bool(zones)):
        of_pages = stream.leaf_zone_maps(nested, leaf.path)
        if of_pages and of_pages[number] is not None and of_pages[number] != of_cells:
            return (
                f"field {'.'.join(map(str, leaf.path))} of its cells lies in {of_cells}, "
                f"but the footer says {of_pages[number]}"
            )
    return None


def _verify_padding(image: FileImage, key: StreamKey, page: Page) -> None:
    """Unused bits and bytes of a page must be zero: equal cells make equal files."""
    used = page.offset + PAGE_HEADER_BYTES + page.header.stored_length + page.header.bitmap_length
    past_last = page.row_count % 8
    if page.bitmap is not None and past_last and page.bitmap[-1] >> past_last:
        raise image.corruption(used - 1, key, "a page's bitmap has bits after its last cell")
    if page.padding.any():
        raise image.corruption(used, key, "the padding of a page is not zero")

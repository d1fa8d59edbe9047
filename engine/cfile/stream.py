"""Reads one stream of an open cfile: ranges of rows, and rows by number."""

from bisect import bisect_right
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from .. import threads
from ..codecs.codec import CorruptPageError
from ..codecs.dictionary import DictionaryCodec, attach
from ..codecs.shredded import array_of_page, cells_of_array
from ..vectors.physical import PhysicalType
from ..vectors.vector import (
    BytesVector,
    DictionaryVector,
    FixedVector,
    Vector,
    concat,
    nulls,
    padded,
    zeros,
)
from .cache import FilePages, PageAddress
from .footer import PageEntry, StreamEntry, leaf_zone_map_from, zone_map_from
from .format import IS_DICTIONARY, StreamKey
from .leaf_zones import Path, leaves_named
from .outline import PageOutline
from .page import FileImage, Page, load_page
from .zone_map import PageZones, ZoneMap

OFTEN = 256
"""Rows read one by one from a page until its mini-blocks are decompressed for good: four times as many as it has."""
WORTH_PARTS = 64 << 10
"""Shorter pages are read whole."""
_PARTS_MAX = 2
"""A page is read whole again once so many rows were read alone, for each of which two blocks were read, that it would
have been."""
_OUTLINE = -2
"""Ends the address of a page's outline in the page cache, where it is evicted as pages are."""
_RESTORED = frozenset({"prefix", "fsst", "shredded"})
_ONE_BY_ONE = 256
"""More rows of a page at once do not count: they may be a pass over the table."""


class StreamReader:
    """The cells of one stream of a cfile, by row number from 0.

    Thread safe. When the bytes of a page come from the file, they are verified, by its checksum and then by its codec,
    in their own memory, which goes to the page cache; two threads that need the same page at once both read it. Results
    own their memory and outlive the reader.

    Every method that reads raises CorruptionError, with path, offset, column and page, if the file does not hold what
    was written, UnreadableFileError if the disk does not return it, and IndexError for rows outside [0, row_count].
    """

    def __init__(self, image: FileImage, entry: StreamEntry, cache: FilePages) -> None:
        self.key = StreamKey(entry.column_id, entry.role)
        self.physical = entry.physical
        self.row_count = entry.row_count
        self.page_rows = entry.page_rows
        """Rows of every page but the last, a power of two; 1 if pages have different numbers of rows."""
        self.page_count = len(entry.pages)
        self.encoding_names = list(entry.encodings)
        """The encodings in use, in order of first use."""
        self.raw_bytes = entry.raw_bytes
        """Bytes of the cells, without offsets and before any encoding."""
        self.compressed_bytes = sum(page.length for page in entry.all_pages)
        """Bytes in the file: pages with their headers, and the dictionary."""
        self.entry = entry
        self._image = image
        self._cache = cache
        self._shift = entry.page_rows.bit_length() - 1
        self._starts: np.ndarray | None = None
        """The first row of each page, if it is not a shift."""
        if not entry.has_even_pages:
            self._starts = np.cumsum([0, *(page.row_count for page in entry.pages[:-1])], dtype=np.int64)
        self._sound: list[int | None] = [None] * self.page_count
        """The crc of each page that its codec has checked: the same bytes need no second check."""
        self._asked = [0] * self.page_count
        """Rows read one by one from each page, and half of OFTEN for each time that all were read at once; approximate,
        and counted anew after a while."""
        self._has_restored = not _RESTORED.isdisjoint(entry.encodings)
        self._zone_maps: list[ZoneMap] | None = None
        self._page_zones: PageZones | None = None
        self._leaf_zones: dict[Path, list[ZoneMap | None]] | None = None
        self._dictionary: BytesVector | None = None
        self._longest: int | None = None
        self._dictionary_lock = threads.Lock()

    @property
    def zone_maps(self) -> list[ZoneMap]:
        """The bounds of each page; empty if the stream was written without them."""
        if self._zone_maps is None:
            pages = self.entry.pages
            try:
                self._zone_maps = [zone_map_from(page, page.zone, self.physical) for page in pages if page.zone]
            except ValueError as error:
                raise self._image.corruption(self._image.footer_offset, self.key, error) from error
        return self._zone_maps

    @property
    def page_zones(self) -> PageZones:
        """The same bounds, of numbers as arrays."""
        if self._page_zones is None:
            self._page_zones = PageZones.of(self.zone_maps, self.physical)
        return self._page_zones

    def leaf_zone_maps(self, kind: str, path: Path) -> list[ZoneMap | None]:
        """Return the bounds of a leaf in each page, None where they are unknown; empty if they are in all pages.

        ``kind`` is the struct type of the column, as text, and ``path`` leads to the leaf.
        """
        if self._leaf_zones is None:
            self._leaf_zones = self._load_leaf_zones()
        return self._leaf_zones.get(path, []) if kind == self.entry.nested else []

    def _load_leaf_zones(self) -> dict[Path, list[ZoneMap | None]]:
        zones: dict[Path, list[ZoneMap | None]] = {}
        if self.entry.nested is None:
            return zones
        try:
            for number, leaf in enumerate(leaves_named(self.entry.nested)):
                of_leaf = [_leaf_zone_map(page, number, leaf.physical) for page in self.entry.pages]
                if leaf.has_bounds and any(of_leaf):
                    zones[leaf.path] = of_leaf
        except ValueError as error:
            raise self._image.corruption(self._image.footer_offset, self.key, error) from error
        return zones

    def read(self, first: int, last: int) -> Vector:
        """Return rows [first, last). Rows of one page are decoded once, directly into the result."""
        if not 0 <= first <= last <= self.row_count:
            raise IndexError(f"rows [{first}, {last}) of {self.row_count}")
        if first == last:
            return zeros(self.physical, 0)
        pages = range(self.page_of(first), self.page_of(last - 1) + 1)
        if len(pages) == 1:
            start = self.first_row(pages[0])
            return self._read_page(pages[0], first - start, last - start)
        return concat([self._read_page(number, *self._part(number, first, last)) for number in pages])

    def gather(self, rows: np.ndarray) -> Vector:
        """Return the cells at ``rows`` (integers, any order, repeats allowed), in that order.

        Decodes only the mini-blocks that hold them.
        """
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) == 0:
            return zeros(self.physical, 0)
        low, high = (int(rows.min()), int(rows.max())) if len(rows) > 1 else (int(rows[0]),) * 2
        if low < 0 or high >= self.row_count:
            raise IndexError(f"rows from {low} to {high} of {self.row_count}")
        number = self.page_of(low)
        if number == self.page_of(high):
            return self._gather_page(number, rows - self.first_row(number) if number else rows)
        return self._gather_pages(rows)

    def page_of(self, row: int) -> int:
        """Return the number of a row's page."""
        if self._starts is None:
            return row >> self._shift
        return bisect_right(memoryview(self._starts), row) - 1  # pyright: ignore[reportArgumentType]

    def parts(self, first: int, last: int) -> list[tuple[Page, int, int]]:
        """Return the pages that hold rows [first, last), at least one, and for each the range of these rows, counted
        from the page's first. For those who decode pages themselves, and drop them then."""
        numbers = range(self.page_of(first), self.page_of(last - 1) + 1)
        entries, file_id = self.entry.pages, self._image.file_id
        kept: list[Page | None] = self._cache.get_many([(file_id, entries[number].offset) for number in numbers])
        found: list[tuple[Page, int, int]] = []
        row = self.first_row(numbers[0])
        for number, page in zip(numbers, kept, strict=True):
            count = entries[number].row_count
            start, stop = max(first - row, 0), min(last - row, count)
            is_whole = stop - start == count
            if page is None:
                page = self.page(number, is_taken_whole=is_whole)
            elif is_whole and self._has_restored:
                page = self._read_whole(number, page)
            found.append((page, start, stop))
            row += count
        return found

    def ranges(self, first: int, last: int, as_stored: bool = False) -> list[tuple[int, int]]:
        """Return where in the file stands what reading rows [first, last), at least one, needs: (offset, length). Pages
        in the page cache need nothing, unless they are read ``as_stored``."""
        pages = self.entry.pages[self.page_of(first) : self.page_of(last - 1) + 1]
        if not as_stored:
            are_kept = self._cache.have([(self._image.file_id, page.offset) for page in pages])
            pages = [page for page, is_kept in zip(pages, are_kept, strict=True) if not is_kept]
        if self.entry.dictionary and self._dictionary is None:
            pages = [*pages, self.entry.dictionary]
        return [(page.offset, page.length) for page in pages]

    @property
    def page_shift(self) -> int | None:
        """The logarithm of ``page_rows``; None if pages have different numbers of rows."""
        return self._shift if self._starts is None else None

    def first_row(self, number: int) -> int:
        """Return the first row of page ``number``."""
        return number << self._shift if self._starts is None else int(self._starts[number])

    def page(self, number: int, is_taken_whole: bool = False) -> Page:
        """Return page ``number``, decompressed: from the page cache (`PageCache.get`), or read and verified now.

        With ``is_taken_whole`` the caller drops the page after decoding it: its memory may be lent.
        """
        address = self._image.file_id, self.entry.pages[number].offset
        load_once = partial(self._load_page, number, is_kept=False) if is_taken_whole else None
        page = self._cache.get(address, partial(self._load_page, number, is_kept=True), load_once)
        return self._read_whole(number, page) if is_taken_whole and self._has_restored else page

    def address(self, number: int) -> PageAddress:
        """Return the address of page ``number`` in the page cache."""
        return self._image.file_id, self.entry.pages[number].offset

    def _outline_address(self, number: int) -> PageAddress:
        return *self.address(number), _OUTLINE

    def page_of_row(self, number: int, row: int) -> Page:
        """Return page ``number`` with a row, from the page cache, or as ``page_for`` does."""
        (page,) = self._cache.get_many([self.address(number)])
        return self.page_for(row) if page is None else page

    def page_for(self, row: int) -> Page:
        """Return the page of a row, which is not in the page cache, for reading that row alone: as ``page`` does, or
        with nothing but the row if that is read faster and the cache has no room for all of it."""
        number = self.page_of(row)
        outline: PageOutline | None
        (outline,) = self._cache.get_many([self._outline_address(number)])
        if outline is None:
            return self._page_and_outline(number)
        outline.readings += 1
        if outline.readings * _PARTS_MAX < outline.blocks and not self._cache.has_room(self.entry.pages[number].length):
            page = outline.page_with(row - self.first_row(number), self._image, self.physical)
            if page is not None:
                return page
        outline.readings = 0
        return self.page(number)

    def _page_and_outline(self, number: int) -> Page:
        """Return a page, and note its outline if that is of use; then the page is kept only if the cache has room."""
        entry = self.entry.pages[number]
        if entry.length < WORTH_PARTS or self._image.far:
            return self.page(number)

        is_kept = self._cache.has_room(entry.length)  # else it would push out the outlines of others
        page = self._load_page(number, is_kept)
        has_outline = page.header.page_length == entry.length  # it was not compressed
        if has_outline:
            self._cache.put(self._outline_address(number), PageOutline(page))
        if is_kept or not has_outline:
            self._cache.put(self.address(number), page)
        return page

    def _read_whole(self, number: int, page: Page) -> Page:
        """Count one more reading of all of a page; return the page to use."""
        if page.is_restored:
            self._asked[number] += OFTEN // 2
            if self._asked[number] >= OFTEN:
                return self.loosen(number, page)
        return page

    def loosen(self, number: int, page: Page) -> Page:
        """Replace page ``number`` in the page cache, if that has room, by one with its mini-blocks uncompressed
        (`Page.loosened`); return the page to use. For pages that are read often row by row."""
        self._asked[number] = 0
        cell_bytes = max(self.physical.width, 4) + (self.raw_bytes // self.row_count if page.is_restored else 0)
        if not self._cache.has_room(page.row_count * cell_bytes):
            return page
        try:
            loose = page.loosened(self.physical)
        except CorruptPageError:  # raised by whoever reads the damaged mini-block
            return page
        if loose is None:
            return page
        self._cache.put((self._image.file_id, self.entry.pages[number].offset), loose)
        return loose

    def stored_page(self, number: int, is_kept: bool = False) -> Page:
        """Return page ``number`` as stored in the file, read and verified now, but not by its codec; its memory is lent
        unless it ``is_kept``."""
        name = self._name(number)
        page = load_page(self._image, name, self.entry.pages[number], is_kept)
        fault = self._fault(page)
        if fault:
            raise self._image.corruption(page.offset, name, fault)
        return page

    def dictionary(self) -> BytesVector | None:
        """Return the distinct values of the stream's dictionary pages, None without such pages.

        Always the same object, so that vectors of different pages can be joined by their codes.
        """
        if self._dictionary is None and self.entry.dictionary is not None:
            with self._dictionary_lock:
                if self._dictionary is None:
                    self._dictionary = self._load_dictionary()
        return self._dictionary

    @property
    def known_dictionary(self) -> BytesVector | None:
        """The dictionary, if it was read before."""
        return self._dictionary

    @property
    def value_count(self) -> int | None:
        """How many distinct values the dictionary has; None if some pages are not made of its codes."""
        entry = self.entry
        is_coded = entry.dictionary is not None and entry.encodings == [DictionaryCodec.name]
        return entry.dictionary.row_count if entry.dictionary and is_coded else None

    @property
    def longest_value(self) -> int:
        """The bytes of the longest value of the dictionary; 0 without one."""
        if self._longest is None:
            dictionary = self.dictionary()
            self._longest = int(dictionary.lengths.max(initial=0)) if dictionary else 0
        return self._longest

    def _part(self, number: int, first: int, last: int) -> tuple[int, int]:
        """Return the rows of page ``number`` that are in [first, last), counted from the page's first."""
        start = self.first_row(number)
        return max(first - start, 0), min(last - start, self.entry.pages[number].row_count)

    def _read_page(self, number: int, first: int, last: int) -> Vector:
        page = self.page(number, is_taken_whole=last - first == self.entry.pages[number].row_count)
        return self.decoded(number, page, first, last)

    def decoded(self, number: int, page: Page, first: int, last: int) -> Vector:
        """Return rows [first, last) of page ``number``, a result of ``page``, counted from the page's first."""
        if page.is_all_null:
            return self._nulls(last - first)
        try:
            cells = page.codec.decode(page.stored, self.physical, page.row_count, first, last)
            return self._assemble(cells, page.valid_range(first, last), page)
        except CorruptPageError as error:
            raise self._image.corruption(page.offset, self._name(number), error) from error

    def decoded_apart(self, number: int, page: Page) -> tuple[Vector, pa.Array]:
        """Return all cells of shredded page ``number``, a result of ``page``, and the array that they come from."""
        try:
            array = array_of_page(page.stored, page.row_count)
            cells = self._assemble(cells_of_array(array), page.valid_range(0, page.row_count), page)
        except CorruptPageError as error:
            raise self._image.corruption(page.offset, self._name(number), error) from error
        return cells, array

    def _gather_page(self, number: int, rows: np.ndarray) -> Vector:
        """Return the cells at ``rows``, counted from the page's first."""
        page = self.page(number)
        if len(rows) <= _ONE_BY_ONE:
            self._asked[number] += len(rows)
            if self._asked[number] >= OFTEN:
                page = self.loosen(number, page)
        if page.is_all_null:
            return self._nulls(len(rows))
        try:
            cells = page.codec.gather(page.stored, self.physical, page.row_count, rows)
            return self._assemble(cells, page.valid_at(rows), page)
        except CorruptPageError as error:
            raise self._image.corruption(page.offset, self._name(number), error) from error

    def _gather_pages(self, rows: np.ndarray) -> Vector:
        """Gather rows page by page, then restore the requested order."""
        starts = self._starts
        numbers = rows >> self._shift if starts is None else np.searchsorted(starts, rows, "right") - 1
        order = None
        if (numbers[1:] < numbers[:-1]).any():
            # numpy sorts 16-bit integers by radix, ten times faster than by comparison
            small = numbers.astype(np.uint16) if self.page_count <= 1 << 16 else numbers
            order = np.argsort(small, kind="stable")
            rows, numbers = rows[order], numbers[order]
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        rows = rows & (self.page_rows - 1) if starts is None else rows - starts[numbers]
        cells = concat([self._gather_page(int(numbers[first]), rows[first:last]) for first, last in pairwise(cuts)])
        if order is None:
            return cells
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return cells.take(places)

    def _assemble(self, cells: Vector, valid: np.ndarray | None, page: Page) -> Vector:
        """Join decoded cells with their validity, and codes with their dictionary."""
        if isinstance(cells, BytesVector):
            return cells if valid is None else BytesVector(cells.offsets, cells.data, valid)
        assert isinstance(cells, FixedVector), "no codec returns anything else"
        if valid is not None and page.codec.fills_nulls:
            bits = cells.values.view(f"u{cells.values.dtype.itemsize}")
            np.multiply(bits, valid, out=bits)
        if isinstance(page.codec, DictionaryCodec):
            dictionary = self.dictionary()
            assert dictionary is not None, "checked when the page was loaded"
            return attach(cells, dictionary, valid)
        return cells if valid is None else FixedVector(cells.values, valid)

    def _nulls(self, row_count: int) -> Vector:
        dictionary = self.dictionary()
        if dictionary is None:
            return nulls(self.physical, row_count)
        codes = np.zeros(row_count, np.int32)
        return DictionaryVector(codes, dictionary, np.zeros(row_count, np.bool_))

    def _load_page(self, number: int, is_kept: bool) -> Page:
        page = self.stored_page(number, is_kept)
        if page.is_all_null:
            return page
        is_known = page.crc == self._sound[number]
        unpacked = self._unpacked(page, self._name(number), None if is_known else self.physical)
        self._sound[number] = page.crc
        return unpacked

    def _fault(self, page: Page) -> str | None:
        """Return why the page, though sound, cannot belong to this stream, or None."""
        if page.header.flags & IS_DICTIONARY:
            return "it has the values of a dictionary, but rows are expected"
        if not page.codec.supports(self.physical):
            return f"encoding {page.codec.name} does not fit {self.physical} cells"
        if isinstance(page.codec, DictionaryCodec) and not page.is_all_null and self.dictionary() is None:
            return "it has codes of a dictionary, but the stream has no dictionary"
        return None

    def _unpacked(self, page: Page, name: str, physical: PhysicalType | None) -> Page:
        """Return a page decompressed; with ``physical`` the codec checks the payload before any kernel reads it."""
        try:
            unpacked = page.unpacked()
            if physical is not None:
                page.codec.check(unpacked.stored, physical, page.row_count)
            return unpacked
        except CorruptPageError as error:
            raise self._image.corruption(page.offset, name, error) from error

    def _load_dictionary(self) -> BytesVector:
        entry = self.entry.dictionary
        assert entry is not None
        name = f"dictionary of {self.key}"
        page = load_page(self._image, name, entry)
        if page.header.flags != IS_DICTIONARY or page.codec.name != "plain" or page.row_count == 0:
            raise self._image.corruption(page.offset, name, "this is not the page of a dictionary")
        payload = self._unpacked(page, name, PhysicalType.BYTES).stored
        cells = page.codec.decode(payload, PhysicalType.BYTES, page.row_count, 0, page.row_count)
        assert isinstance(cells, BytesVector)
        return padded(cells)

    def _name(self, number: int) -> str:
        return f"{self.key} page {number}"


def _leaf_zone_map(page: PageEntry, number: int, physical: PhysicalType) -> ZoneMap | None:
    if page.null_count == page.row_count:
        return ZoneMap(None, None, page.row_count, page.row_count, exact=True)
    leaf = page.leaves[number] if page.leaves else None
    return leaf and leaf_zone_map_from(page, leaf, physical)

"""PageRows: reads single rows of a base file, all columns in one kernel call, from pages in the page cache.

For each range of rows that lies in one page of every column there is a table with the addresses of those pages. The
page cache alone decides how long pages stay: the table refers to them weakly, and a read holds them while it lasts.

A table that is larger than the cache would have its pages read again and again for the sake of one row. Then the row is
read without the rest of its pages (`StreamReader.page_for`), and its cells stay in the page cache by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import string_at
from itertools import count, pairwise
from struct import Struct
from weakref import ref

import numpy as np

from ....schemas.protocol.request import NotInMemoryError
from ... import threads
from ...cfile.page import Page
from ...cfile.page_kind import kind_of
from ...cfile.reader import CFileReader
from ...cfile.stream import OFTEN, StreamReader
from ...codecs.codec import PAGE_ROWS, CorruptPageError
from ...kernels.reads import point_read as kernels
from ...vectors.memory.memory import address_of, address_or_0, allocate
from ...vectors.physical import PhysicalType
from ...vectors.raw_cell import RawCell, raw_cell
from .absent import absent_cells
from .cell_table import CellTable
from .places import TRUE, is_widened, place_of_one
from .row_columns import RowColumns
from .row_stream import RowStream
from .scratch import RowScratch

_TABLES_MAX = 4096
_COUNTED = 64
"""Of rows read at once so many count: most of them share what is decoded."""
_FIRST_COLUMNS = 64
_ALONE = 4
"""So many rows in one page may be read without the rest of it; more are worth all of it."""


_ROW_BYTES, _CELL_BYTES = 400, 48
"""What the interpreter takes for a row in the page cache, and for each cell."""
_NUMBERS = count()


_WORTH_A_ROW = 2
"""Whole rows are read for so many columns and more."""


class _Room(threads.local):
    """Memory of one thread for the cells of a row."""

    def __init__(self) -> None:
        self.columns = 0
        self.scratch = RowScratch()
        self.reserve(_FIRST_COLUMNS)

    def reserve(self, columns: int) -> None:
        """Make room for this many columns."""
        self.columns = columns
        self._memory = allocate(columns * (kernels.CELL_BYTES + 1), np.uint8)
        self.cells = self._memory.data
        self.nulls = self.cells[columns * kernels.CELL_BYTES :]
        start = address_of(self._memory)
        self.addresses = start, start + columns * kernels.CELL_BYTES, self.scratch.address


_ROOM = _Room()


class _Table:
    """The pages of a range of rows."""

    __slots__ = ("address", "fields", "is_of_row", "pages", "reads", "size", "texts", "unread")

    def __init__(
        self, fields: np.ndarray, pages: Sequence[Page], unread: Sequence[int], texts: np.ndarray | None = None
    ) -> None:
        """``texts`` has where the strings of a row end that is read as a whole."""
        self.fields, self.texts = fields, texts
        self.address = address_of(fields)
        self.pages = [ref(page) for page in pages]
        self.size = sum([page.nbytes for page in pages])
        """Bytes of the pages."""
        self.is_of_row = texts is not None or any(page.part_bytes is not None for page in pages)
        """Whether it is good for the one row that it was made for."""
        self.reads = 0
        """Reads of rows; approximate."""
        self.unread = unread
        """The columns that the kernel does not read."""


class _KeptRow:
    """The base cells of a row whose pages are not in memory. They never change: deltas stand elsewhere."""

    __slots__ = ("cells", "nbytes")

    def __init__(self, cells: list[RawCell]) -> None:
        self.cells = cells.copy()
        self.nbytes = _ROW_BYTES + sum([_CELL_BYTES + (len(cell) if type(cell) is bytes else 0) for cell in cells])


class PageRows:
    """Reads single rows of a base file by a kernel: the base cells of one rowset by row. Thread safe."""

    def __init__(
        self,
        columns: RowColumns,
        streams: Sequence[StreamReader | None],
        newest_base: int,
        file: CFileReader,
        rows: StreamReader | None = None,
    ) -> None:
        """``streams`` are those of the columns, and that of liveness, None if there is none; ``file`` is the base file
        of the rowset, and ``rows`` has the same cells as whole rows, if there is such a stream."""
        self.columns = columns
        self._rows = None
        self._pages_bytes = 0
        """With whole rows: the most bytes of a page of each column."""
        if rows is not None and rows.page_shift is not None:  # very long rows are read by column
            longest = [max(page.length for page in stream.entry.pages) for stream in streams if stream is not None]
            if len(longest) >= _WORTH_A_ROW:
                self._rows, self._pages_bytes = RowStream(rows, columns, streams), sum(longest)
        self._pages, self._file_id = file.pages, file.file_id
        self._number = next(_NUMBERS)
        self.newest_base = newest_base
        """The newest timestamp that a column's base shows: older snapshots need history."""
        self._streams = streams
        self._held: list[object] = []
        self._absent = {
            i: place_of_one(absent_cells(column, 1), self._held)
            for i, column in enumerate(columns.columns)
            if streams[i] is None
        }
        if streams[-1] is None:
            self._absent[len(columns.ids)] = TRUE
        shifts = [stream.page_shift for stream in streams if stream is not None]
        self._shift = min((shift for shift in shifts if shift is not None), default=PAGE_ROWS.bit_length() - 1)
        self._tables: dict[int, _Table] = {}
        wanted = (*columns.physicals, PhysicalType.BOOL)
        physicals = [kind if stream is None else stream.physical for stream, kind in zip(streams, wanted, strict=True)]
        self._widened = {i for i, physical in enumerate(physicals) if is_widened(physical, wanted[i])}
        self._unpack = Struct("<" + "".join(_FORMATS.get(physical, "qq") for physical in physicals))
        self._strings = [i for i, physical in enumerate(physicals) if physical is PhysicalType.BYTES]
        self._wide = [i for i, physical in enumerate(physicals) if physical is PhysicalType.INT128]

    def read(self, row: int, may_wait: bool = True) -> list[RawCell]:
        """Return the cells of a row, and its liveness.

        Raises:
            CorruptionError, UnreadableFileError: a page cannot be read.
            CorruptPageError: a cell cannot be decoded.
            NotInMemoryError: the caller may not wait, and would have to.
        """
        number = row >> self._shift
        table, pages = self._in_memory(number)
        if table is None:
            address = (self._file_id, -1, self._number, row)
            (kept,) = self._pages.get_many([address])
            if kept is not None:
                return kept.cells.copy()
            if not may_wait:
                raise NotInMemoryError
            table, pages = self._loaded(number, row)
            cells = self._cells(table, row)
            if table.is_of_row:
                self._pages.put(address, _KeptRow(cells))
            return cells
        if not may_wait and (table.unread or table.reads == OFTEN - 1):
            raise NotInMemoryError
        self._count(number, table, 1)
        cells = self._cells(table, row)
        del pages  # until here, the cells' memory had to stay
        return cells

    def _cells(self, table: _Table, row: int) -> list[RawCell]:
        """Return the cells of a row by its table, whose pages are held. Raises CorruptPageError."""
        room, columns = _ROOM, len(self._streams)
        if room.columns < columns:
            room.reserve(columns)
        while (null_count := kernels.read_row(table.address, columns, row, *room.addresses)) == kernels.FULL:
            room.scratch.grow()
        if null_count < 0:
            raise CorruptPageError("a cell of the row cannot be decoded")
        found = self._unpack.unpack_from(room.cells)
        cells = list(found[::2])
        for i in self._strings:
            cells[i] = string_at(cells[i], found[2 * i + 1])
        for i in self._wide:
            cells[i] |= found[2 * i + 1] << 64
        if null_count:
            cells = [None if null else cell for cell, null in zip(cells, room.nulls, strict=False)]
        for i in table.unread:
            cells[i] = self._gathered(i, row)
        return cells

    def read_into(self, table: CellTable, rows: np.ndarray, positions: np.ndarray) -> set[int]:
        """Read ``rows`` (int64, ascending) into the table's rows ``positions``; return the numbers of the columns that
        were not read.

        Raises as ``read``; and TooManyBytesError if the table may not hold so much.
        """
        left, places = set(self._widened), allocate(len(rows), np.int64)
        for number, start, end in self._spans(rows):
            known, pages = self._table(number, rows[start:end])
            table.held += known, pages
            table.held_bytes += known.size
            if table.held_bytes > table.held_max:
                table.check_held(end / len(rows))
            left.update(known.unread)
            places[start:end] = known.address
        table.held.append(self)
        table.read(address_of(places), 8, rows, positions)
        return left

    def _spans(self, rows: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """Yield the spans of a batch of rows that have a table each: the number of their range of rows, and the places
        [first, last) in the batch."""
        least, most = int(rows[0]) >> self._shift, int(rows[-1]) >> self._shift
        cuts = [0, len(rows)]
        if least != most:
            numbers = rows >> self._shift
            cuts[1:1] = (np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist()
        for first, last in pairwise(cuts):
            number = int(rows[first]) >> self._shift
            is_alone = last - first <= _ALONE and self._in_memory(number)[0] is None
            for start, end in pairwise(range(first, last + 1) if is_alone else (first, last)):
                yield number, start, end

    def _table(self, number: int, rows: np.ndarray) -> tuple[_Table, list[Page | None]]:
        """Return the table of a range of rows, or of one row alone, and its pages, which must be held while it is used.
        Raises as ``read``."""
        table, pages = self._in_memory(number)
        if table is None:
            table, pages = self._loaded(number, int(rows[0]) if len(rows) == 1 else None)
        self._count(number, table, min(len(rows), _COUNTED))
        return table, pages

    def _in_memory(self, number: int) -> tuple[_Table | None, list[Page | None]]:
        """Return the table of a range of rows and its pages, which must be held while it is used; None if some are not
        in memory."""
        table = self._tables.get(number)
        pages: list[Page | None] = [] if table is None else [page() for page in table.pages]
        return (None if None in pages else table), pages

    def _count(self, number: int, table: _Table, reads: int) -> None:
        before, table.reads = table.reads, table.reads + reads
        if before < OFTEN <= table.reads:
            self._loosen(number)

    def _loosen(self, number: int) -> None:
        """Let the pages of a range of rows be uncompressed in the page cache; the next read finds the old ones gone."""
        for stream in self._streams:
            if stream is not None and stream.page_shift is not None:
                page = stream.page_of(number << self._shift)
                stream.loosen(page, stream.page(page))

    def _gathered(self, column: int, row: int) -> RawCell:
        stream = self._streams[column]
        assert stream is not None, "absent columns are not read"
        return raw_cell(stream.gather(np.array([row], np.int64)), 0)

    def _loaded(self, number: int, row: int | None) -> tuple[_Table, list[Page | None]]:
        """Return the table of a range of rows, or with ``row`` perhaps of it alone, and its pages, which must be held
        while it is used."""
        fields = np.zeros((len(self._streams), kernels.PLACE_FIELDS), np.int64)
        for i, place in self._absent.items():
            fields[i] = place
        if row is not None and self._rows is not None and not self._pages.has_room(self._pages_bytes):
            alone = self._loaded_row(self._rows, row, fields)
            if alone is not None:
                return alone
        unread = [i for i, stream in enumerate(self._streams) if stream is not None and stream.page_shift is None]
        places = [
            (i, stream, stream.page_of(number << self._shift))
            for i, stream in enumerate(self._streams)
            if stream is not None and stream.page_shift is not None
        ]
        pages: list[Page | None] = [None] * len(places)
        if row is not None:
            pages = self._pages.get_many([stream.address(page_number) for _, stream, page_number in places])
        for at, (i, stream, page_number) in enumerate(places):
            page = pages[at]
            if page is None:
                page = pages[at] = stream.page(page_number) if row is None else stream.page_for(row)
            fields[i] = _place_of(stream, page, stream.first_row(page_number))
            if fields[i, kernels.KIND] == kernels.UNREAD:
                unread.append(i)
        table = _Table(fields, [page for page in pages if page], unread)
        if not table.is_of_row:
            if len(self._tables) >= _TABLES_MAX:
                self._tables.clear()
            self._tables[number] = table
        return table, pages

    def _loaded_row(self, rows: RowStream, row: int, fields: np.ndarray) -> tuple[_Table, list[Page | None]] | None:
        """Return a table of one row as a whole, None if it is too long. ``fields`` has the columns that the file does
        not have."""
        if (found := rows.read(row, fields)) is None:
            return None
        page, texts = found
        pages = [page]
        live, last = self._streams[-1], len(self._streams) - 1
        if live is not None:
            number = live.page_of(row)
            pages.append(live.page(number))
            fields[last] = _place_of(live, pages[-1], live.first_row(number))
        table = _Table(fields, pages, [], texts)
        return table, [*pages]


_FORMATS = {
    PhysicalType.INT128: "Qq",
    PhysicalType.FLOAT32: "f4xq",
    PhysicalType.FLOAT64: "dq",
}


def _place_of(stream: StreamReader, page: Page, first_row: int) -> tuple[int, ...]:
    """Return the fields of a column's page, as the kernel takes them."""
    kind, payload = kind_of(page, stream.physical)
    if kind == kernels.NULLS:
        return kernels.NULLS, 0, 0, 0, 0, first_row, 0, 0, 0, 0
    offsets = values = value_count = 0
    if kind == kernels.CODES and (dictionary := stream.dictionary()):
        value_count = len(dictionary)
        offsets, values = address_of(dictionary.offsets), address_of(dictionary.data)
    elif kind == kernels.CODES:
        kind = kernels.UNREAD
    bitmap = address_or_0(page.bitmap)
    width, row_count = stream.physical.width, page.row_count
    return kind, width, payload, row_count, bitmap, first_row, offsets, values, value_count, 0

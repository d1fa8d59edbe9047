"""Reads consecutive rows of several columns of a base file with their deltas, in one kernel call (`kernels.morsel`).

Columns that the kernel cannot read are read the general way, `RowSet.read`: those that were added or widened after the
rows were written, pages of other encodings, dictionaries that deltas make too large, damage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from struct import Struct

import numpy as np

from ...schemas.column import ColumnSchema
from ..cfile.page import Page
from ..cfile.page_kind import kind_of
from ..cfile.stream import StreamReader
from ..codecs.codec import BLOCK_ROWS
from ..delta.patch import Patch, apply_all
from ..kernels import morsel as kernels
from ..kernels.point_read import CODES, STRINGS
from ..vectors.gather import check_data_bytes
from ..vectors.huge_pages import RESULTS
from ..vectors.memory import address_of, address_or_0, allocate
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector

_LONGEST = 256
"""Values of a dictionary with a longer one are not copied by the kernel, which needs room for a block of them."""
_OFFSET = Struct("<i")


class _Scratch(threading.local):
    """Memory of one thread that the kernel needs."""

    def __init__(self) -> None:
        self._memory = allocate(kernels.SCRATCH_BYTES, np.uint8)
        self.address = address_of(self._memory)


_SCRATCH = _Scratch()


class CannotReadError(Exception):
    """A column has to be read the general way."""


class _MorselColumn:
    """A column to read, and the memory of its result."""

    def __init__(self, stream: StreamReader, first: int, last: int, patches: Sequence[Patch], as_strings: bool) -> None:
        """Raises CannotReadError."""
        self._rows, self._first = last - first, first
        self._pages: list[Page] = []
        self.parts: list[tuple[int, ...]] = []
        self._strings_bytes = 0
        self._has_nulls = False
        kinds = {self._add_page(stream, *part) for part in stream.parts(first, last)}
        if not kernels.READABLE.issuperset(kinds):
            raise CannotReadError
        self._later: Sequence[Patch] = ()
        self._dictionary: BytesVector | None = None
        self._longest = 0
        self._held: list[object] = []
        self.patches: list[tuple[int, ...]] = []
        self._values = self._ends = _NOTHING
        self._capacity = 0
        if stream.physical is not PhysicalType.BYTES:
            self._plan_numbers(stream.physical, patches)
        else:
            self._plan_strings(stream, kinds, patches, as_strings)
        self._valid = _room(self._rows, np.dtype(np.bool_)) if self._has_nulls else None

    def _add_page(self, stream: StreamReader, page: Page, start: int, stop: int) -> int:
        """Add rows of a page; return its kind."""
        kind, payload = kind_of(page, stream.physical)
        self._pages.append(page)
        self.parts.append((kind, payload, page.row_count, start, stop, address_or_0(page.bitmap)))
        self._has_nulls |= page.is_all_null or page.bitmap is not None
        if kind == STRINGS:
            self._strings_bytes += _OFFSET.unpack_from(page.stored.data, 4 * stop)[0]
            self._strings_bytes -= _OFFSET.unpack_from(page.stored.data, 4 * start)[0]
        return kind

    def _plan_numbers(self, physical: PhysicalType, patches: Sequence[Patch]) -> None:
        dtype = physical.dtype
        self.form, self._width = kernels.AS_NUMBERS, physical.width
        self._values = _room(self._rows, dtype)
        for patch in patches:
            cells = patch.cells.of(dtype)
            self._add_patch(patch, cells.address, cells.values.valid)

    def _plan_strings(self, stream: StreamReader, kinds: set[int], patches: Sequence[Patch], as_strings: bool) -> None:
        if CODES in kinds:
            self._dictionary = stream.dictionary()
            if not self._dictionary:
                raise CannotReadError
        if STRINGS in kinds or CODES not in kinds:
            self._later, patches = patches, ()
        self._code_patches(patches)
        self._longest = stream.longest_value if CODES in kinds else 0
        if self.patches and self._dictionary is not None:  # they may have extended it
            offsets = self._dictionary.offsets
            self._longest = int(kernels.longest_string(address_of(offsets), len(self._dictionary)))
        if CODES in kinds and STRINGS not in kinds and not (as_strings and self._longest <= _LONGEST):
            self.form, self._width = kernels.AS_CODES, 4
            self._values = _room(self._rows, _CODE)
            return
        if self._longest > _LONGEST:
            raise CannotReadError
        self.form, self._width = kernels.AS_STRINGS, 0
        self._ends = _room(self._rows + 1, _CODE)
        self.reserve(self._strings_bytes + self._values_bytes(stream, kinds))

    def _code_patches(self, patches: Sequence[Patch]) -> None:
        """Add patches by their codes of one dictionary: each extends that of the one before."""
        for patch in patches:
            assert self._dictionary is not None, "there are codes"
            coding = patch.cells.coded(self._dictionary)
            if coding is None:
                raise CannotReadError
            self._dictionary, codes, address = coding
            self._held.append(codes)
            self._add_patch(patch, address, patch.cells.values.valid)

    def _add_patch(self, patch: Patch, cells: int, valid: np.ndarray | None) -> None:
        rows = patch.rows
        low, high = rows.window(self._first, self._first + self._rows)
        if low == high:
            return
        self._held.append(patch)
        self._has_nulls |= valid is not None
        self.patches.append((rows.rows_at + 4 * low, rows.places_at + 4 * low, high - low, cells, address_or_0(valid)))

    def _values_bytes(self, stream: StreamReader, kinds: set[int]) -> int:
        """Return about how many bytes the values of a dictionary take in all rows."""
        if CODES not in kinds:
            return 0
        average = stream.raw_bytes / max(stream.row_count, 1)
        changed = sum(patch[kernels.PATCH_COUNT] for patch in self.patches)
        about = int(self._rows * average * _MORE) + (changed + BLOCK_ROWS) * self._longest
        return min(about, self._rows * self._longest)

    def has_room(self, string_bytes: int) -> bool:
        """Whether there was room for this many bytes of strings."""
        return string_bytes <= self._capacity

    def reserve(self, capacity: int) -> None:
        """Make room for this many bytes of strings. Raises OverflowError if a vector cannot have so many."""
        self._capacity = check_data_bytes(capacity)
        self._values = RESULTS.allocate(capacity)

    @property
    def fields(self) -> tuple[int, ...]:
        """The column as the kernel takes it."""
        dictionary = self._dictionary
        known = (address_of(dictionary.offsets), address_of(dictionary.data), len(dictionary)) if dictionary else _NONE
        return (
            self.form,
            self._width,
            address_of(self._values),
            address_of(self._ends),
            address_or_0(self._valid),
            self._capacity,
            len(self.parts),
            len(self.patches),
            *known,
            self._longest,
            0,
        )

    def result(self, string_bytes: int) -> Vector:
        """Return the cells that were read."""
        if self.form == kernels.AS_STRINGS:
            base = BytesVector(self._ends, self._values[:string_bytes], self._valid)
            return apply_all(self._later, base, self._first, is_own=True)
        if self._dictionary is not None:
            return DictionaryVector(self._values, self._dictionary, self._valid)
        return FixedVector(self._values, self._valid)


def _room(count: int, dtype: np.dtype) -> np.ndarray:
    """Return memory for the cells of a column."""
    return RESULTS.allocate(count * dtype.itemsize).view(dtype)


_CODE = np.dtype(np.int32)
_NOTHING = np.empty(0, np.int32)
_NONE = (0, 0, 0)
_MORE = 1.125
"""How much longer than on average the strings of a few pages may be until they are written again."""


def read_morsel(
    columns: Sequence[tuple[ColumnSchema, StreamReader | None, Sequence[Patch]]],
    first: int,
    last: int,
    as_strings: bool,
    read: Callable[[ColumnSchema], Vector],
) -> list[Vector]:
    """Return rows [first, last), at least one, of columns with their base (None: without one) and its patches; ``read``
    reads a column the general way.

    With ``as_strings`` the values of dictionaries are copied, else columns keep their codes.
    """
    planned = [_planned(column, stream, first, last, patches, as_strings) for column, stream, patches in columns]
    results = _run([one for one in planned if one], first, last)
    found = iter(results)
    vectors = [None if one is None else next(found) for one in planned]
    return [read(column) if vector is None else vector for (column, _, _), vector in zip(columns, vectors, strict=True)]


def _planned(
    column: ColumnSchema,
    stream: StreamReader | None,
    first: int,
    last: int,
    patches: Sequence[Patch],
    as_strings: bool,
) -> _MorselColumn | None:
    if stream is None or stream.physical is not physical_of(column.logical.arrow):
        return None
    try:
        return _MorselColumn(stream, first, last, patches, as_strings)
    except CannotReadError:
        return None


def _run(columns: list[_MorselColumn], first: int, last: int) -> list[Vector | None]:
    """Return the cells of columns; None for those that turned out to be unreadable."""
    if not columns:
        return []
    table = np.array([column.fields for column in columns], np.int64)
    parts = np.array(list(chain.from_iterable(column.parts for column in columns)), np.int64)
    patches = np.array(list(chain.from_iterable(column.patches for column in columns)), np.int64)
    where = address_of(table), len(columns), address_of(parts), address_of(patches)
    unfinished = kernels.read_morsel(*where, first, last, _SCRATCH.address)
    sizes = table[:, kernels.RESULT].tolist()
    if not unfinished:
        return [column.result(size) for column, size in zip(columns, sizes, strict=True)]
    return [_again(column, size, first, last) for column, size in zip(columns, sizes, strict=True)]


def _again(column: _MorselColumn, size: int, first: int, last: int) -> Vector | None:
    """Return a column's cells if ``size`` says that they were read, or after reading with more room."""
    if size < 0:
        return None
    if column.form == kernels.AS_STRINGS and not column.has_room(size):
        column.reserve(size)
        (vector,) = _run([column], first, last)
        return vector
    return column.result(size)

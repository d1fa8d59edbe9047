"""A column of a morsel: the parts of pages that hold its rows, the patches of its deltas, and the memory of its cells,
as the kernels take them (`kernels.morsel`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from ....schemas.table.column import ColumnSchema
from ...cfile.page import Page
from ...cfile.page_kind import part_of
from ...cfile.stream import StreamReader
from ...codecs.codec import BLOCK_ROWS
from ...delta.patch import Patch, apply_all
from ...kernels.reads import morsel as kernels
from ...kernels.reads.point_read import CODES, NULLS, UNREAD
from ...vectors.gather import check_data_bytes
from ...vectors.memory.huge_pages import RESULTS
from ...vectors.memory.memory import address_of, address_or_0, allocate
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector

ColumnBase = tuple[ColumnSchema, StreamReader | None, Sequence[Patch]]
"""A column, its base (None: without one), and the patches that bring the base to a snapshot."""

_LONGEST = 256
"""Values of a dictionary with a longer one are not copied by the kernel, which needs room for a block of them."""


class CannotReadError(Exception):
    """Kernels cannot read a column: it has to be read as vectors."""


class MorselColumn:
    """A column of a morsel as kernels read it, and the memory of its result."""

    def __init__(
        self, base: ColumnBase, first: int, last: int, as_strings: bool = False, in_windows: bool = False
    ) -> None:
        """With ``in_windows`` there is room for one mini-block only, of numbers or codes.

        Raises CannotReadError.
        """
        column, stream, patches = base
        if stream is None or stream.physical is not physical_of(column.logical.arrow):
            raise CannotReadError
        self._rows, self._first, self._in_windows = last - first, first, in_windows
        self._pages: list[Page] = []
        self.parts: list[tuple[int, ...]] = []
        self._strings_bytes = 0
        self._has_nulls = False
        kinds = {self._add_page(stream, *part) for part in stream.parts(first, last)}
        self._later: Sequence[Patch] = ()
        self.dictionary: BytesVector | None = None
        self._longest = 0
        self._held: list[object] = []
        self.patches: list[tuple[int, ...]] = []
        self._values = self._ends = _NOTHING
        self._capacity = 0
        if stream.physical is not PhysicalType.BYTES:
            self._plan_numbers(stream.physical, patches)
        else:
            self._plan_strings(stream, kinds, patches, as_strings)
        self.valid = self._room(np.dtype(np.bool_)) if self._has_nulls else None

    def _add_page(self, stream: StreamReader, page: Page, start: int, stop: int) -> int:
        """Add rows of a page; return its kind."""
        kind, payload, rows, bitmap = part_of(page, stream.physical)
        if kind == UNREAD:
            raise CannotReadError
        self._pages.append(page)
        self.parts.append((kind, payload, rows, start, stop, bitmap))
        if bitmap or kind == NULLS:
            self._has_nulls = True
        if kind in kernels.TEXT_KINDS:
            self._strings_bytes += kernels.strings_bytes(kind, payload, rows, start, stop)
        return kind

    def _plan_numbers(self, physical: PhysicalType, patches: Sequence[Patch]) -> None:
        dtype = physical.dtype
        self.form, self._width = kernels.AS_NUMBERS, physical.width
        self._values = self._room(dtype)
        for patch in patches:
            cells = patch.cells.of(dtype)
            self._held.append(cells)
            self._add_patch(patch, cells.address, cells.values.valid)

    def _plan_strings(self, stream: StreamReader, kinds: set[int], patches: Sequence[Patch], as_strings: bool) -> None:
        if CODES in kinds:
            self.dictionary = stream.dictionary()
            if not self.dictionary:
                raise CannotReadError
        has_texts = not kernels.TEXT_KINDS.isdisjoint(kinds)
        if has_texts or CODES not in kinds:
            self._later, patches = patches, ()
        self._code_patches(patches)
        self._longest = stream.longest_value if CODES in kinds else 0
        if self.patches and self.dictionary is not None:  # they may have extended it
            offsets = self.dictionary.offsets
            self._longest = int(kernels.longest_string(address_of(offsets), len(self.dictionary)))
        if CODES in kinds and not has_texts and not (as_strings and self._longest <= _LONGEST):
            self.form, self._width = kernels.AS_CODES, 4
            self._values = self._room(_CODE)
            return
        if self._in_windows or self._longest > _LONGEST:
            raise CannotReadError
        self.form, self._width = kernels.AS_STRINGS, 0
        self._ends = RESULTS.allocate(4 * (self._rows + 1)).view(_CODE)
        self.reserve(self._strings_bytes + self._values_bytes(stream, kinds))

    def _code_patches(self, patches: Sequence[Patch]) -> None:
        """Add patches by their codes of one dictionary: each extends that of the one before."""
        for patch in patches:
            assert self.dictionary is not None, "there are codes"
            coding = patch.cells.coded(self.dictionary)
            if coding is None:
                raise CannotReadError
            self.dictionary, codes, address = coding
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

    def _room(self, dtype: np.dtype) -> np.ndarray:
        """Return memory for cells."""
        if self._in_windows:
            return allocate(BLOCK_ROWS, dtype)
        return RESULTS.allocate(self._rows * dtype.itemsize).view(dtype)

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
        dictionary = self.dictionary
        known = (address_of(dictionary.offsets), address_of(dictionary.data), len(dictionary)) if dictionary else _NONE
        return (
            self.form,
            self._width,
            address_of(self._values),
            address_of(self._ends),
            address_or_0(self.valid),
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
            base = BytesVector(self._ends, self._values[:string_bytes], self.valid)
            return apply_all(self._later, base, self._first, is_own=True)
        if self.dictionary is not None:
            return DictionaryVector(self._values, self.dictionary, self.valid)
        return FixedVector(self._values, self.valid)


_CODE = np.dtype(np.int32)
_NOTHING = np.empty(0, np.int32)
_NONE = (0, 0, 0)
_MORE = 1.125
"""How much longer than on average the strings of a few pages may be until they are written again."""


class MorselTables:
    """The tables that describe the columns of a morsel to a kernel."""

    def __init__(self, columns: Sequence[MorselColumn]) -> None:
        self.columns = np.array([column.fields for column in columns], np.int64)
        self._parts = np.array(list(chain.from_iterable(column.parts for column in columns)), np.int64)
        self._patches = np.array(list(chain.from_iterable(column.patches for column in columns)), np.int64)

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """The columns, how many, their parts, and their patches."""
        return address_of(self.columns), len(self.columns), address_of(self._parts), address_of(self._patches)

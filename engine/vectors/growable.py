"""A column that only grows, and that can be read while it grows.

One thread appends (its callers hold a lock); any number of threads take views without a lock. That is safe because

* a row, once appended, is never written again: the appender writes only past the last row;
* when the arrays are full, their rows are copied into larger ones and the reference is replaced; an earlier view keeps
  the old, equal arrays alive; large ones are followed by ones many times larger, which take no memory until they fill;
* a reader requests only rows whose count it received after their append returned, so whichever array it finds has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .gather import MAX_DATA_BYTES
from .memory.huge_pages import HUGE_PAGE_BYTES
from .memory.memory import allocate
from .memory.reserved import COLUMNS, filled_up_to
from .physical import PhysicalType
from .raw_cell import RawCell, raw_number
from .vector import BytesVector, FixedVector, Vector, as_bytes

_FIRST_CAPACITY = 1024
_LOW_HALF = (1 << 64) - 1
_LARGE_BYTES = 1 << 20
"""From this size on, space that is not used yet takes no memory."""
_RESERVED_TIMES = 32


class GrowableColumn:
    """A vector that grows: an append-only column of one physical type; appending is amortised constant per cell."""

    def __init__(self, physical: PhysicalType) -> None:
        self.physical = physical
        self._is_plain = physical is not PhysicalType.BYTES and physical is not PhysicalType.INT128
        """Whether numpy stores raw cells as they are."""
        self._row_count = 0
        self._valid: np.ndarray | None = None  # made at the first NULL
        self._cells = allocate(0, physical.dtype)
        self._offsets = allocate(0, np.int32)
        self._data_bytes = 0
        if physical is PhysicalType.BYTES:
            self._offsets = allocate(1, np.int32)
            self._offsets[0] = 0

    def __del__(self) -> None:
        with suppress(AttributeError):  # an interrupted constructor has set few of them
            self._note_filled()

    def __len__(self) -> int:
        return self._row_count

    @property
    def nbytes(self) -> int:
        """Bytes of memory taken, somewhat more than the rows fill."""
        rows, valid = self._row_count, 0 if self._valid is None else _taken(self._valid, self._row_count)
        if self.physical is PhysicalType.BYTES:
            return _taken(self._cells, self._data_bytes) + _taken(self._offsets, rows + 1) + valid
        return _taken(self._cells, rows) + valid

    @property
    def filled_bytes(self) -> int:
        """Bytes of the present rows, without free space."""
        rows, valid = self._row_count, 0 if self._valid is None else self._row_count
        if self.physical is PhysicalType.BYTES:
            return self._data_bytes + rows * self._offsets.itemsize + valid
        return rows * self._cells.itemsize + valid

    def append(self, vector: Vector) -> None:
        """Append the rows of ``vector``, of this column's physical type. One caller at a time.

        Raises OverflowError, with nothing appended, if the column would hold more than 2**31 - 1 bytes of strings.
        """
        last = self._row_count + len(vector)
        if self.physical is PhysicalType.BYTES:
            self._append_bytes(as_bytes(vector), last)
        else:
            assert isinstance(vector, FixedVector), "a fixed column takes fixed vectors"
            self._cells = _grown(self._cells, self._row_count, last)
            self._cells[self._row_count : last] = vector.values
        if vector.valid is not None or self._valid is not None:
            self._append_valid(vector.valid, last)
        self._row_count = last
        if max(self._cells.nbytes, self._offsets.nbytes) >= _LARGE_BYTES:  # smaller memory is not reserved
            self._note_filled()

    def append_cell(self, cell: RawCell) -> None:
        """Append one raw cell (`raw_cell`). Else as ``append``."""
        row = self._row_count
        if self.physical is PhysicalType.BYTES:
            self._append_string(row, cell or b"")  # pyright: ignore[reportArgumentType]
        else:
            if row == len(self._cells):
                self._cells = _grown(self._cells, row, row + 1)
            if self.physical is PhysicalType.INT128 and cell is not None:
                self._cells[row] = cell & _LOW_HALF, cell >> 64  # pyright: ignore[reportOperatorIssue]
            else:
                self._cells[row] = 0 if cell is None else cell
        if cell is None or self._valid is not None:
            self._append_valid(np.array([cell is not None]), row + 1)
        self._row_count = row + 1

    @staticmethod
    def append_cells(columns: Iterable[GrowableColumn], cells: Sequence[RawCell]) -> None:
        """Append one raw cell to each of as many columns, like ``append_cell``."""
        for column, cell in zip(columns, cells, strict=True):
            row, stored = column._row_count, column._cells
            if cell is None or not column._is_plain or column._valid is not None or row == len(stored):
                column.append_cell(cell)
            else:
                stored[row] = cell
                column._row_count = row + 1

    def view(self, row_count: int) -> FixedVector | BytesVector:
        """Return the first ``row_count`` rows without copying; later appends do not change them."""
        valid = self._valid
        valid = None if valid is None else valid[:row_count]
        if self.physical is PhysicalType.BYTES:
            return BytesVector(self._offsets[: row_count + 1], self._cells, valid)
        return FixedVector(self._cells[:row_count], valid)

    def cell(self, row: int) -> Any:
        """Return the raw cell of one row (`raw_cell`)."""
        if self._valid is not None and not self._valid.item(row):
            return None
        if self.physical is PhysicalType.BYTES:
            start, end = self._offsets.item(row), self._offsets.item(row + 1)
            return self._cells[start:end].tobytes()
        return raw_number(self._cells.item(row))

    def _note_filled(self) -> None:
        if self.physical is PhysicalType.BYTES:
            filled_up_to(self._cells, self._data_bytes)
            filled_up_to(self._offsets, self._row_count + 1)
        else:
            filled_up_to(self._cells, self._row_count)
        if self._valid is not None:
            filled_up_to(self._valid, self._row_count)

    def _append_bytes(self, vector: BytesVector, last: int) -> None:
        start, end = int(vector.offsets[0]), int(vector.offsets[-1])
        data_end = self._data_bytes + end - start
        if data_end > MAX_DATA_BYTES:
            raise OverflowError(f"{data_end} bytes do not fit in one column of {MAX_DATA_BYTES}")
        self._cells = _grown(self._cells, self._data_bytes, data_end)
        self._offsets = _grown(self._offsets, self._row_count + 1, last + 1)
        self._cells[self._data_bytes : data_end] = vector.data[start:end]
        offsets = self._offsets[self._row_count + 1 : last + 1]
        np.add(vector.offsets[1:], self._data_bytes - start, out=offsets)
        self._data_bytes = data_end

    def _append_string(self, row: int, cell: bytes) -> None:
        start, end = self._data_bytes, self._data_bytes + len(cell)
        if end > MAX_DATA_BYTES:
            raise OverflowError(f"{end} bytes do not fit in one column of {MAX_DATA_BYTES}")
        if end > len(self._cells):
            self._cells = _grown(self._cells, start, end)
        if row + 2 > len(self._offsets):
            self._offsets = _grown(self._offsets, row + 1, row + 2)
        self._cells.data[start:end] = cell
        self._offsets[row + 1] = end
        self._data_bytes = end

    def _append_valid(self, valid: np.ndarray | None, last: int) -> None:
        if self._valid is None:
            if valid is None or valid.all():
                return
            grown = allocate(max(last, _FIRST_CAPACITY), np.bool_)
            grown[: self._row_count] = True
        else:
            grown = _grown(self._valid, self._row_count, last)
        grown[self._row_count : last] = True if valid is None else valid
        self._valid = grown


def _taken(array: np.ndarray, used: int) -> int:
    """Return the bytes of memory that an array takes if ``used`` of its cells were written."""
    size = array.nbytes
    return size if size <= _LARGE_BYTES else min(size, -(-used * array.itemsize // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES)


def _grown(array: np.ndarray, used: int, needed: int) -> np.ndarray:
    """Return ``array`` if ``needed`` cells fit, else a larger one with the first ``used`` cells."""
    if needed <= len(array):
        return array
    larger = None
    if array.nbytes >= _LARGE_BYTES:
        with suppress(OSError):
            larger = COLUMNS.reserve(max(needed, _RESERVED_TIMES * len(array)) * array.itemsize).view(array.dtype)
    if larger is None:
        larger = allocate(max(needed, 2 * len(array), _FIRST_CAPACITY), array.dtype)
    larger[:used] = array[:used]
    filled_up_to(array, used)
    return larger

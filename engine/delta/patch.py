"""Patches: new cells for some rows of a column, and their application to the base."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..kernels.cells import deltas as kernels
from ..kernels.cells.gather import patch_strings
from ..vectors.gather import check_data_bytes
from ..vectors.memory.memory import address_of, allocate
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes, validity
from .cells import DeltaCells
from .run import row_window

_OVERWRITE: dict[int, Callable[[int, int, int, int, int, int, int], None]] = {
    1: kernels.overwrite_u8,
    2: kernels.overwrite_u16,
    4: kernels.overwrite_u32,
    8: kernels.overwrite_u64,
    16: kernels.overwrite_u128,
}


class RowPlaces:
    """Rows that deltas change (int32, ascending, distinct), and the places (int32) of their new cells."""

    __slots__ = ("count", "places", "places_at", "rowids", "rows_at")

    def __init__(self, rowids: np.ndarray, places: np.ndarray) -> None:
        self.rowids, self.places, self.count = rowids, places, len(rowids)
        self.rows_at, self.places_at = address_of(rowids), address_of(places)

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.rowids.nbytes + self.places.nbytes

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of positions whose rows are in [first, last)."""
        return row_window(self.rowids, first, last)

    def among(self, rows: np.ndarray) -> RowPlaces:
        """Return those that are among ``rows`` (int64, ascending, distinct), by position in ``rows``."""
        rows, count = np.ascontiguousarray(rows, np.int64), len(rows)
        positions, places = np.empty(count, np.int32), np.empty(count, np.int32)
        found = kernels.match_rows(
            self.rows_at, self.places_at, self.count, address_of(rows), count, address_of(positions), address_of(places)
        )
        return RowPlaces(positions[:found], places[:found])


class Patch:
    """New cells for some rows of a column, from its deltas; those outside the base that it is applied to are
    ignored."""

    __slots__ = ("__weakref__", "cells", "rows")

    def __init__(self, rows: RowPlaces, cells: DeltaCells) -> None:
        self.rows, self.cells = rows, cells

    def apply(self, base: Vector, first_row: int, is_own: bool = False) -> Vector:
        """Return ``base``, whose first cell is row ``first_row``, with the patch's cells.

        ``is_own`` allows overwriting the cells of ``base`` and returning it, as nobody else has them. Validity is never
        overwritten.
        """
        if isinstance(base, FixedVector):
            values = base.values if is_own else _copy(base.values)
            cells = self.cells.of(values.dtype)
            self._overwrite(values, first_row, cells.address)
            valid = self._valid(base, first_row)
            return base if is_own and valid is base.valid else FixedVector(values, valid)
        if isinstance(base, DictionaryVector):
            return self._apply_to_codes(base, first_row, is_own)
        return self._apply_to_bytes(base, first_row, is_own)

    def at(self, rows: np.ndarray) -> Patch:
        """Return the patch for the cells that a gather of ``rows`` (ascending, distinct) made, by position in it."""
        return Patch(self.rows.among(rows), self.cells)

    def _overwrite(self, values: np.ndarray, first_row: int, cells: int) -> None:
        rows = self.rows
        _OVERWRITE[values.dtype.itemsize](
            address_of(values), first_row, first_row + len(values), rows.rows_at, rows.places_at, rows.count, cells
        )

    def _apply_to_codes(self, base: DictionaryVector, first_row: int, is_own: bool) -> Vector:
        coding = self.cells.coded(base.dictionary)
        if coding is None:
            return self._apply_to_bytes(as_bytes(base), first_row, True)
        dictionary, _, address = coding
        codes = base.codes if is_own else _copy(base.codes)
        self._overwrite(codes, first_row, address)
        valid = self._valid(base, first_row)
        if is_own and dictionary is base.dictionary and valid is base.valid:
            return base
        return DictionaryVector(codes, dictionary, valid)

    def _apply_to_bytes(self, base: BytesVector, first_row: int, is_own: bool) -> BytesVector:
        """Overwrite strings by others of the same lengths; else rebuild the data."""
        rows, cells, last_row = self.rows, self.cells.bytes, first_row + len(base)
        window = first_row, last_row, rows.rows_at, rows.places_at, rows.count
        old, new = address_of(base.offsets), address_of(cells.offsets)
        growth = int(kernels.string_growth(old, *window, new))
        valid = self._valid(base, first_row)
        if is_own and growth == 0:
            kernels.overwrite_strings(old, address_of(base.data), *window, new, address_of(cells.data))
            return base if valid is base.valid else BytesVector(base.offsets, base.data, valid)
        low, high = rows.window(first_row, last_row)
        ends = allocate(len(base) + 1, np.int32)
        data = allocate(check_data_bytes(base.data_bytes + (growth >> 1)), np.uint8)
        patch_strings(
            old,
            address_of(base.data),
            len(base),
            first_row,
            rows.rows_at + 4 * low,
            rows.places_at + 4 * low,
            high - low,
            new,
            address_of(cells.data),
            address_of(ends),
            address_of(data),
        )
        return BytesVector(ends, data, valid)

    def _valid(self, base: Vector, first_row: int) -> np.ndarray | None:
        new = self.cells.values.valid
        if base.valid is None and new is None:
            return None
        low, high = self.rows.window(first_row, first_row + len(base))
        if low == high:
            return base.valid
        valid = validity(base).copy()
        valid[self.rows.rowids[low:high] - first_row] = True if new is None else new[self.rows.places[low:high]]
        return valid


def apply_all(patches: Iterable[Patch], base: Vector, first_row: int, is_own: bool) -> Vector:
    """Return ``base`` with all patches, the cells of deltas, applied in order, so that later ones win."""
    for patch in patches:
        patched = patch.apply(base, first_row, is_own)
        is_own = True
        base = patched
    return base


def _copy(cells: np.ndarray) -> np.ndarray:
    copy = allocate(len(cells), cells.dtype)
    copy[:] = cells
    return copy

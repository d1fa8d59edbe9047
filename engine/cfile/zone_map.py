"""Zone maps: bounds of the cells of one page, so that a scan can skip the page.

A zone map never loses rows: ``min`` is at most every cell, ``max`` at least every cell. NULLs are counted and not
compared. NaNs are flagged and not compared: a predicate that a NaN satisfies must check ``has_nan``. A zero becomes
``-0.0`` as min and ``+0.0`` as max, so that pruning is right whether or not the predicate distinguishes the two.

Bytes are cut to ``MAX_VALUE_BYTES``: min to its prefix, max to its prefix with the last byte that can be raised
raised by one (``b"ab\\xff..."`` becomes ``b"ac"``). A prefix of 0xff bytes alone cannot be raised: max is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector

MAX_VALUE_BYTES = 64

ZoneValue = Any
"""An int, a float or bytes, by the column's physical type, or None; Any, so that two of one column compare."""


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """The zone map of one page: bounds of its cells.

    ``min`` is None if there is nothing to compare (every cell is NULL or NaN): no comparison with a number or string
    holds for such a page, except for its NaNs. ``max`` is None then, and also when unbounded with a given ``min``.
    ``exact`` means that min and max are cells of the page, not only bounds. A bool is 0 or 1.
    """

    min: ZoneValue
    max: ZoneValue
    null_count: int
    row_count: int
    exact: bool
    has_nan: bool = False


@dataclass(frozen=True, slots=True)
class PageZones:
    """The zone maps of pages of a stream: their bounds, one by one and as arrays."""

    maps: Sequence[ZoneMap]
    null_counts: np.ndarray
    has_cells: np.ndarray
    """Whether a page has a cell that is not NULL."""
    has_nan: np.ndarray
    numbers: NumberBounds | None
    """The bounds of numbers of up to 8 bytes; None of others."""

    @staticmethod
    def of(maps: Sequence[ZoneMap], physical: PhysicalType) -> PageZones:
        """Return the bounds of pages from those of each."""
        return PageZones(
            maps,
            np.array([zone.null_count for zone in maps], np.int64),
            np.array([zone.null_count < zone.row_count for zone in maps], np.bool_),
            np.array([zone.has_nan for zone in maps], np.bool_),
            None if physical in _NOT_IN_ARRAYS else NumberBounds.of(maps, physical),
        )

    def part(self, pages: slice) -> PageZones:
        """Return those of some pages, in the same memory."""
        return PageZones(
            self.maps[pages],
            self.null_counts[pages],
            self.has_cells[pages],
            self.has_nan[pages],
            self.numbers and self.numbers.part(pages),
        )


@dataclass(frozen=True, slots=True)
class NumberBounds:
    """The zone maps of pages of numbers: their bounds, as arrays of int64 or float64."""

    are_known: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    are_one: np.ndarray
    """Whether all cells that are neither NULL nor NaN are equal."""

    @staticmethod
    def of(maps: Sequence[ZoneMap], physical: PhysicalType) -> NumberBounds:
        """Return the bounds of pages from those of each."""
        dtype, most = (np.float64, np.inf) if physical in _FLOATS else (np.int64, (1 << 63) - 1)
        return NumberBounds(
            np.array([zone.min is not None for zone in maps], np.bool_),
            np.array([zone.min or 0 for zone in maps], dtype),
            np.array([most if zone.max is None else zone.max for zone in maps], dtype),
            np.array([zone.exact and zone.min == zone.max for zone in maps], np.bool_),
        )

    def part(self, pages: slice) -> NumberBounds:
        """Return those of some pages, in the same memory."""
        return NumberBounds(self.are_known[pages], self.lows[pages], self.highs[pages], self.are_one[pages])


_FLOATS = (PhysicalType.FLOAT32, PhysicalType.FLOAT64)
_NOT_IN_ARRAYS = (PhysicalType.INT128, PhysicalType.BYTES)


def zone_map_of(vector: Vector, physical: PhysicalType) -> ZoneMap:
    """Return the zone map of one page: the bounds of its cells."""
    row_count = len(vector)
    null_count = 0 if vector.valid is None else row_count - int(np.count_nonzero(vector.valid))
    if null_count == row_count:
        return ZoneMap(None, None, null_count, row_count, exact=True)
    if isinstance(vector, FixedVector):
        cells = vector.values if null_count == 0 else vector.values[vector.valid]
        low, high, has_nan = _fixed_bounds(cells, physical)
        return ZoneMap(low, high, null_count, row_count, True, has_nan)
    low, high = _bytes_bounds(vector)
    return _truncated(low, high, null_count, row_count)


def _fixed_bounds(cells: np.ndarray, physical: PhysicalType) -> tuple[int | float | None, int | float | None, bool]:
    """Return (min, max, has NaN) of at least one cell, none of them NULL."""
    if physical in _FLOATS:
        return _float_bounds(cells)
    if physical is PhysicalType.INT128:
        return _int128_extreme(cells, np.min), _int128_extreme(cells, np.max), False
    return int(cells.min()), int(cells.max()), False


def _float_bounds(cells: np.ndarray) -> tuple[float | None, float | None, bool]:
    low, high = float(cells.min()), float(cells.max())
    has_nan = math.isnan(low)  # numpy's min and max propagate a NaN
    if has_nan:
        cells = cells[~np.isnan(cells)]
        if not len(cells):
            return None, None, True
        low, high = float(cells.min()), float(cells.max())
    return (-0.0 if low == 0 else low), (0.0 if high == 0 else high), has_nan


def _int128_extreme(cells: np.ndarray, extreme: Callable[[np.ndarray], Any]) -> int:
    """Return the min or max of 128-bit integers: the high words decide, then the low ones."""
    high = extreme(cells["hi"])
    low = extreme(cells["lo"][cells["hi"] == high])
    return (int(high) << 64) | int(low)


def _bytes_bounds(vector: BytesVector | DictionaryVector) -> tuple[bytes, bytes]:
    """Return (min, max) of cells of which at least one is not NULL."""
    if isinstance(vector, DictionaryVector):
        codes = vector.codes if vector.valid is None else vector.codes[vector.valid]
        used = np.zeros(len(vector.dictionary), np.bool_)
        used[codes] = True
        return _arrow_bounds(vector.dictionary, used)
    return _arrow_bounds(vector, vector.valid)


def _arrow_bounds(cells: BytesVector, chosen: np.ndarray | None) -> tuple[bytes, bytes]:
    mask = None if chosen is None else pa.py_buffer(np.packbits(chosen, bitorder="little"))
    buffers = [mask, pa.py_buffer(cells.offsets), pa.py_buffer(cells.data)]
    bounds = pc.call_function("min_max", [pa.Array.from_buffers(pa.binary(), len(cells), buffers)])
    return bounds["min"].as_py(), bounds["max"].as_py()


def _truncated(low: bytes, high: bytes, null_count: int, row_count: int) -> ZoneMap:
    exact = len(low) <= MAX_VALUE_BYTES and len(high) <= MAX_VALUE_BYTES
    bound = high if len(high) <= MAX_VALUE_BYTES else raised_prefix(high)
    return ZoneMap(low[:MAX_VALUE_BYTES], bound, null_count, row_count, exact)


def raised_prefix(value: bytes) -> bytes | None:
    """Return an upper bound for a zone map: the least string of at most ``MAX_VALUE_BYTES`` bytes that is above all
    strings with the prefix of ``value`` of that length; None when there is none."""
    prefix = value[:MAX_VALUE_BYTES].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None

"""The states of a group, from which its measures are computed. A state is a few columns that merge by sum, min or max.

rows              how many rows                     one count
valid             how many cells are not NULL       one count
total, integers   their exact sum                   low and high halves of 32 bits, summed apart
total, 128 bits   their exact sum                   the same of the low and of the high 64 bits
total, floats     their sum                         a float64
bounds            least and greatest cell           the cells; of floats also how many are numbers
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import comparable_type
from ...schemas.table.column import ColumnSchema
from ..kernels.cells import aggregate as kernels
from ..vectors.arrow import to_arrow
from ..vectors.memory.memory import address_of, address_or_0
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, materialize
from .groups import Groups, code_cells

FLOATS = (PhysicalType.FLOAT32, PhysicalType.FLOAT64)
_FEW = 1024
"""More groups are counted in a single table, which takes more of the cache; rows of one group are rarely neighbours."""
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
"""The bounds of no integers: the greatest and the least of none."""


class StateKind(Enum):
    ROWS = "rows"
    VALID = "valid"
    TOTAL = "total"
    BOUNDS = "bounds"


@dataclass(frozen=True, slots=True)
class State:
    """The state of a group of an aggregate, from which measures are computed: that of one column (None: of the
    rows)."""

    kind: StateKind
    column: ColumnSchema | None = None

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The names of its columns, and the Arrow functions that merge them."""
        if self.kind in (StateKind.ROWS, StateKind.VALID):
            return (("count", "sum"),)
        physical = self.physical
        if self.kind is StateKind.TOTAL:
            names = ("total",) if physical in FLOATS else ("low", "high")
            names = ("low", "high", "upper_low", "upper_high") if physical is PhysicalType.INT128 else names
            return tuple((name, "sum") for name in names)
        bounds = (("min", "min"), ("max", "max"))
        return (*bounds, ("numbers", "sum")) if physical in FLOATS else bounds

    @property
    def physical(self) -> PhysicalType:
        """The physical type of its column."""
        assert self.column is not None, "rows have no type"
        return physical_of(self.column.logical.arrow)

    @property
    def bound_type(self) -> pa.DataType:
        """The type in which Arrow compares the cells of its column; it compares neither durations nor half floats."""
        assert self.column is not None, "rows have no bounds"
        return comparable_type(self.column.logical.arrow)

    def fold(self, groups: Groups, vector: Vector | None) -> list[pa.Array]:
        """Return its columns, one slot per group, for the rows in ``groups`` and their cells."""
        row_count = len(groups.numbers)
        if self.kind is StateKind.ROWS:
            return [_counts(groups, None)]
        assert vector is not None and len(vector) == row_count, "as many cells as rows"
        if self.kind is StateKind.VALID:
            return [_counts(groups, vector.valid)]
        if self.kind is StateKind.TOTAL:
            assert isinstance(vector, FixedVector), "numbers are summed"
            return _totals(groups, vector, self.physical)
        assert self.column is not None
        return _bounds(groups, vector, self.physical, self.bound_type)


def _counts(groups: Groups, valid: np.ndarray | None) -> pa.Array:
    row_count = len(groups.numbers)
    if groups.count == 1:
        return pa.array([row_count if valid is None else int(np.count_nonzero(valid))], pa.int64())
    counts = np.zeros((_tables(groups), groups.count), np.int64)
    rows = address_of(groups.numbers), address_or_0(valid), row_count, groups.count
    kernels.count_rows(*rows, address_of(counts), len(counts))
    return pa.array(counts.sum(axis=0))


def _tables(groups: Groups) -> int:
    return tables_for(groups.count)


def tables_for(group_count: int) -> int:
    """Return in how many tables an aggregate adds up the rows of its groups (`kernels.count_rows`)."""
    return kernels.TABLES if 1 < group_count <= _FEW else 1


def _totals(groups: Groups, vector: FixedVector, physical: PhysicalType) -> list[pa.Array]:
    if physical in FLOATS:
        cells = np.ascontiguousarray(vector.values, np.float64)
        totals = np.zeros((_tables(groups), groups.count))
        if groups.count == 1:
            lanes = np.empty(kernels.SUM_LANES)
            kernels.sum_floats(*_only(cells, vector.valid), address_of(totals), address_of(lanes))
        else:
            cells = _known(cells, vector.valid)
            kernels.add_floats(*_places(groups, cells), address_of(totals), len(totals))
        return [pa.array(totals.sum(axis=0))]
    if groups.count > 1 and vector.values.dtype == np.int32:
        sums = np.zeros((_tables(groups), groups.count), np.int64)
        words = _known(np.ascontiguousarray(vector.values), vector.valid)
        kernels.add_words(*_places(groups, words), address_of(sums), len(sums))
        return halves_of(sums.sum(axis=0))
    if physical is not PhysicalType.INT128:
        return _halves(groups, vector.values, vector.valid)
    low = np.ascontiguousarray(vector.values["lo"]).view(np.int64)
    high = vector.values["hi"] + (low < 0)  # the low word is read as signed; the high word makes up for it
    return [*_halves(groups, low, vector.valid), *_halves(groups, high, vector.valid)]


def halves_of(sums: np.ndarray) -> list[pa.Array]:
    """Return the columns of an aggregate's state, the total of integers by group, from sums (int64)."""
    return [pa.array(sums & 0xFFFFFFFF), pa.array(sums >> 32)]


def _halves(groups: Groups, values: np.ndarray, valid: np.ndarray | None) -> list[pa.Array]:
    lows, highs = np.zeros(groups.count, np.int64), np.zeros(groups.count, np.int64)
    cells = np.ascontiguousarray(values, np.int64)
    if groups.count == 1:
        kernels.sum_integers(*_only(cells, valid), address_of(lows), address_of(highs))
    else:
        cells = _known(cells, valid)
        kernels.add_integers(*_places(groups, cells), address_of(lows), address_of(highs))
    return [pa.array(lows), pa.array(highs)]


def _bounds(groups: Groups, vector: Vector, physical: PhysicalType, kind: pa.DataType) -> list[pa.Array]:
    if physical in FLOATS:
        return _float_bounds(groups, vector, kind)
    if isinstance(vector, FixedVector) and physical is not PhysicalType.INT128:
        lows, highs = _integer_bounds(groups, vector.values, vector.valid)
        return integer_bounds(lows, highs, vector.values.dtype, kind)
    return _ranked_bounds(groups, vector, kind)


def _integer_bounds(groups: Groups, values: np.ndarray, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    lows, highs = np.full(groups.count, GREATEST), np.full(groups.count, LEAST)
    cells = np.ascontiguousarray(values, np.int64)
    kernels.bound_integers(*_rows(groups, cells, valid), address_of(lows), address_of(highs))
    return lows, highs


def integer_bounds(lows: np.ndarray, highs: np.ndarray, dtype: np.dtype, kind: pa.DataType) -> list[pa.Array]:
    """Return the columns of an aggregate's state, the bounds of integers by group, given as int64."""
    none = lows > highs
    cells = [np.where(none, 0, bound).astype(dtype) for bound in (lows, highs)]
    return [to_arrow(FixedVector(bound, ~none), kind) for bound in cells]


def _float_bounds(groups: Groups, vector: Vector, kind: pa.DataType) -> list[pa.Array]:
    assert isinstance(vector, FixedVector)
    lows, highs = np.full(groups.count, np.inf), np.full(groups.count, -np.inf)
    numbers = np.zeros(groups.count, np.int64)
    cells = np.ascontiguousarray(vector.values, np.float64)
    places = address_of(lows), address_of(highs), address_of(numbers)
    kernels.bound_floats(*_rows(groups, cells, vector.valid), *places)
    return float_bounds(lows, highs, numbers, kind)


def float_bounds(lows: np.ndarray, highs: np.ndarray, numbers: np.ndarray, kind: pa.DataType) -> list[pa.Array]:
    """Return the columns of an aggregate's state, the bounds of floats by group, given as float64."""
    none = numbers == 0
    bounds = [pa.array(bound, mask=none).cast(kind, safe=False) for bound in (lows, highs)]
    return [*bounds, pa.array(numbers)]


def _ranked_bounds(groups: Groups, vector: Vector, kind: pa.DataType) -> list[pa.Array]:
    """Bounds of cells that the kernels cannot compare: sorts the distinct values and compares their ranks."""
    if isinstance(vector, DictionaryVector) and len(vector.dictionary) <= len(vector):
        codes, values = vector.codes, to_arrow(vector.dictionary, kind)
    else:
        cells = materialize(vector) if isinstance(vector, DictionaryVector) else vector
        coded = code_cells(_without_nulls(cells), kind)
        codes, values = coded.codes, coded.values
    if not len(values):
        return [pa.nulls(groups.count, kind)] * 2
    places = pc.call_function("array_sort_indices", [values]).to_numpy().astype(np.int64)
    ranks = np.empty(len(places), np.int64)
    ranks[places] = np.arange(len(places))
    lows, highs = _integer_bounds(groups, ranks[codes], vector.valid)
    none = lows > highs
    return [values.take(pa.array(places[np.where(none, 0, bound)], mask=none)) for bound in (lows, highs)]


def _without_nulls(vector: FixedVector | BytesVector) -> FixedVector | BytesVector:
    """Return all cells without validity; those under NULL are zero or empty."""
    return FixedVector(vector.values) if isinstance(vector, FixedVector) else BytesVector(vector.offsets, vector.data)


def _known(cells: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
    """Return cells of 4 or 8 bytes, zero where they are NULL."""
    if valid is None:
        return cells
    known = np.empty_like(cells)
    kernels.keep_known(address_of(cells), address_of(valid), len(cells), cells.itemsize, address_of(known))
    return known


def _places(groups: Groups, cells: np.ndarray) -> tuple[int, int, int, int]:
    return address_of(groups.numbers), address_of(cells), len(cells), groups.count


def _rows(groups: Groups, cells: np.ndarray, valid: np.ndarray | None) -> tuple[int, int, int, int, int]:
    return address_of(groups.numbers), address_of(cells), address_or_0(valid), len(cells), groups.count


def _only(cells: np.ndarray, valid: np.ndarray | None) -> tuple[int, int, int]:
    """Return the same for a single group."""
    return address_of(cells), address_or_0(valid), len(cells)

"""Which cells of a page are in a list: the fastest of several ways, chosen once when the filter is bound.

Measured on 65,536 int64: a comparison with each listed cell 6 us (the page stays in the cache); a table of one bool for
each number in the list's range 60 to 90 us, whatever the length of the list; our own hash table 0.1 to 0.6 ms; Arrow's
200 us for short lists and 2 ms for 100,000 cells. numpy's ``isin`` sorts and is slower than all of them.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ..expression.literal import Cell
from ..kernels.keys import membership
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector
from .arrow import array_of, constants_of, mask_of

FEW_CELLS = 8
TABLE_SPAN = 1 << 20
"""The largest table, in numbers and so in bytes."""


class Lookup(Protocol):
    """The list of a filter's IN, ready to be searched for the cells of a page."""

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        """Return one bool a row: whether its cell is listed. Cells under NULL are compared too."""
        ...


def make_lookup(cells: tuple[Cell, ...], physical: PhysicalType) -> Lookup:
    """Return the fastest lookup of the list of a filter's IN: ``cells``, which are ascending, distinct, and not NaN."""
    if physical in (PhysicalType.BYTES, PhysicalType.INT128):
        return HashLookup(constants_of(cells, physical), physical)
    if len(cells) <= FEW_CELLS:
        return FewLookup(cells)
    if physical in (PhysicalType.FLOAT32, PhysicalType.FLOAT64):
        return FloatLookup(constants_of(tuple(float(cell) + 0.0 for cell in cells), physical), physical)
    if int(cells[-1]) - int(cells[0]) < TABLE_SPAN:
        return TableLookup.of(np.array(cells, np.int64))
    return SetLookup.of(np.array(cells, np.int64))


@dataclass(frozen=True, slots=True)
class FewLookup:
    """The list of a filter's IN, searched by one comparison with each listed number."""

    cells: tuple[Cell, ...]

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        assert isinstance(vector, FixedVector)
        found = vector.values == self.cells[0]
        for cell in self.cells[1:]:
            found |= vector.values == cell
        return found


@dataclass(frozen=True, slots=True)
class TableLookup:
    """The list of a filter's IN as a table of the integers from ``lowest`` on: True for listed ones. Its last entry,
    False, serves all numbers outside."""

    lowest: int
    table: np.ndarray

    @classmethod
    def of(cls, cells: np.ndarray) -> "TableLookup":
        """Return the table of ascending int64."""
        table = np.zeros(int(cells[-1]) - int(cells[0]) + 2, np.bool_)
        table[cells - cells[0]] = True
        return cls(int(cells[0]), table)

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        assert isinstance(vector, FixedVector)
        # Unsigned, so that numbers below the lowest wrap around to far above the highest.
        distance = vector.values.astype(np.int64).view(np.uint64)
        distance -= np.uint64(self.lowest % (1 << 64))
        np.minimum(distance, np.uint64(len(self.table) - 1), out=distance)
        return self.table.take(distance.view(np.int64))


@dataclass(frozen=True, slots=True)
class SetLookup:
    """The list of a filter's IN as a hash table of integers with large gaps: see ``kernels/keys/membership.py``."""

    slots: np.ndarray
    empty: int

    @classmethod
    def of(cls, cells: np.ndarray) -> "SetLookup":
        """Return the table of ascending, distinct int64."""
        # The least unlisted number: the first that is not at its place when counted from the least listed one.
        least = -(1 << 63)
        expected = np.arange(least, least + len(cells), dtype=np.int64)
        missing = np.flatnonzero(cells != expected)
        empty = least + (int(missing[0]) if len(missing) else len(cells))
        lookup = cls(allocate(1 << (2 * len(cells)).bit_length(), np.int64), empty)
        lookup.slots[:] = empty
        membership.put_members(address_of(cells), len(cells), *lookup._table)
        return lookup

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        assert isinstance(vector, FixedVector)
        numbers = np.ascontiguousarray(vector.values, np.int64)
        found = allocate(len(numbers), np.bool_)
        membership.find_members(address_of(numbers), len(numbers), *self._table, address_of(found))
        return found

    @property
    def _table(self) -> tuple[int, int, int, int]:
        count = len(self.slots)
        return address_of(self.slots), count, 65 - count.bit_length(), self.empty


@dataclass(frozen=True, slots=True)
class HashLookup:
    """The list of a filter's IN as Arrow's hash table of the cells."""

    listed: pa.Array
    physical: PhysicalType

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        return mask_of(pc.is_in(array_of(vector, self.physical), value_set=self.listed))


@dataclass(frozen=True, slots=True)
class FloatLookup:
    """The list of a filter's IN as Arrow's hash table of floats. It distinguishes -0.0 from 0.0: adding 0.0 to listed
    cells and to those of a page makes both 0.0, and NaN stays NaN."""

    listed: pa.Array
    physical: PhysicalType

    def find(self, vector: FixedVector | BytesVector) -> np.ndarray:
        assert isinstance(vector, FixedVector)
        return mask_of(pc.is_in(array_of(FixedVector(vector.values + 0), self.physical), value_set=self.listed))

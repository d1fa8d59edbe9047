"""Which rows have expired, in tables where a column says when (the option ``ttl``): conditions on cells of this column.

A row expires at the moment in the column plus the table's time; with NULL, never. Nothing happens at that moment: every
read leaves expired rows out by a condition, and every write takes them for absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...schemas.cells.timestamp import LOGICAL_BITS, microseconds_of
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import FixedVector, Vector
from .bound import TRUE, BoundFilter, Compare, Node, NullTest, all_of, any_of
from .compiled import CompiledFilter

_DAY = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class Expiry:
    """The filter that a table's option ``ttl`` means: when its rows expire. All moments are hybrid timestamps."""

    column: ColumnSchema
    """The column that says it."""
    physical: PhysicalType
    """Its type."""
    span: int
    """The microseconds from the moment in the column to the end of the row."""
    unit: int
    """The microseconds of one unit of a cell."""

    @classmethod
    def of(cls, schema: TableSchema) -> Expiry | None:
        """Return when the rows of a table with this schema expire; None: never."""
        if schema.ttl is None:
            return None
        column = schema.by_id[schema.ttl.column]
        unit = _DAY if column.logical.name == "date" else 1
        return cls(column, physical_of(column.logical.arrow), schema.ttl.microseconds, unit)

    def last_gone(self, moment: int) -> int:
        """Return the greatest cell with which a row has expired at a moment."""
        return (microseconds_of(moment) - self.span) // self.unit

    def is_gone(self, cell: RawCell, moment: int) -> bool:
        """Whether a row with this cell has expired at a moment."""
        return cell is not None and cell <= self.last_gone(moment)  # pyright: ignore[reportOperatorIssue]

    def are_gone(self, cells: Vector, moment: int) -> np.ndarray:
        """Return which rows (bool) with these cells have expired at a moment."""
        return _among(cells, _numbers(cells) <= self.last_gone(moment))

    def are_gone_at(self, cells: Vector, moments: np.ndarray) -> np.ndarray:
        """Return the same for a moment (int64) of each row."""
        return _among(cells, _numbers(cells) <= ((moments >> LOGICAL_BITS) - self.span) // self.unit)

    def ends(self, cells: Vector) -> np.ndarray:
        """Return the moment (int64) at which the row of each cell expires, the first one without it; -1: never, or
        before there are moments."""
        numbers = _numbers(cells).astype(np.float64) * self.unit + self.span
        is_moment = (numbers >= 0) & (numbers < float(1 << (63 - LOGICAL_BITS)))
        exact = np.where(is_moment, _numbers(cells), 0) * self.unit + self.span
        return np.where(_among(cells, is_moment), exact << LOGICAL_BITS, -1)

    def alive(self, moment: int) -> Node:
        """Return the condition of rows that have not expired at a moment."""
        later = Compare(self.column.id, self.physical, ">", self.last_gone(moment))
        return any_of([later, NullTest(self.column.id, is_null=True)]) if self.column.nullable else later

    def gone(self, moment: int) -> Node:
        """Return the condition of rows that have expired at a moment."""
        return Compare(self.column.id, self.physical, "<=", self.last_gone(moment))


def unexpired(where: CompiledFilter, schema: TableSchema, moment: int) -> CompiledFilter:
    """Return a filter without the rows that have expired at a moment."""
    expiry = Expiry.of(schema)
    if expiry is None:
        return where
    bound = BoundFilter(all_of([where.bound.root, expiry.alive(moment)]))
    inverse = where.inverse.root if where.inverse else None
    if where.bound.root == TRUE:
        inverse = any_of([])
    return replace(
        where,
        bound=bound,
        inverse=None if inverse is None else BoundFilter(any_of([inverse, expiry.gone(moment)])),
        is_key_range=False,
        few=None,
    )


def _numbers(cells: Vector) -> np.ndarray:
    assert isinstance(cells, FixedVector), "moments are numbers"
    return cells.values.astype(np.int64)


def _among(cells: Vector, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen rows (bool) whose cells are not NULL."""
    return chosen if cells.valid is None else chosen & cells.valid

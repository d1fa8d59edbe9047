"""RowColumns: the columns of a table, as reads of single rows need them."""

from __future__ import annotations

from dataclasses import dataclass

from ...schemas.column import ColumnSchema
from ..vectors.raw_cell import RawCell, raw_cell
from .absent import absent_cells


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns in order, with what is the same for all of their rows. Readers keep things for it: make one a schema."""

    columns: tuple[ColumnSchema, ...]
    ids: tuple[int, ...]
    absent: tuple[RawCell, ...]
    """The raw cell of each column in rows that were written without it."""

    @classmethod
    def of(cls, columns: tuple[ColumnSchema, ...]) -> RowColumns:
        """Return the columns of a schema."""
        absent = tuple(raw_cell(absent_cells(column, 1), 0) for column in columns)
        return cls(columns, tuple(column.id for column in columns), absent)

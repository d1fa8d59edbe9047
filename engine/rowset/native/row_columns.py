"""RowColumns: the columns of a table, as reads of single rows need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....schemas.table.column import ColumnSchema
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.raw_cell import RawCell, raw_cell
from .absent import absent_cells


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns in order for kernels that read single rows, with what is the same for all of their rows. Readers keep
    things for it: make one a schema."""

    columns: tuple[ColumnSchema, ...]
    ids: tuple[int, ...]
    absent: tuple[RawCell, ...]
    """The raw cell of each column in rows that were written without it."""
    physicals: tuple[PhysicalType, ...]
    key_widths: np.ndarray
    """Of the columns of the key, which lead: the bytes of a cell (int64), 0 for strings."""

    @classmethod
    def of(cls, columns: tuple[ColumnSchema, ...], key_columns: int) -> RowColumns:
        """Return the columns of a schema, of which so many are the key's."""
        absent = tuple(raw_cell(absent_cells(column, 1), 0) for column in columns)
        physicals = tuple(physical_of(column.logical.arrow) for column in columns)
        widths = np.array([physical.width for physical in physicals[:key_columns]], np.int64)
        return cls(columns, tuple(column.id for column in columns), absent, physicals, widths)

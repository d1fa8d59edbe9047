"""RowColumns: the columns of a table, as reads of single rows need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....schemas.table.column import ColumnSchema
from ...vectors.batch_form import BatchForm
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.raw_cell import RawCell, raw_cell
from .absent import absent_cells

_OFFSET_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class RowColumns:
    """Columns in order for kernels that read single rows, with what is the same for all of their rows. Readers keep
    things for it: make one a schema."""

    columns: tuple[ColumnSchema, ...]
    ids: tuple[int, ...]
    absent: tuple[RawCell, ...]
    """The raw cell of each column in rows that were written without it."""
    physicals: tuple[PhysicalType, ...]
    row_bytes: int
    """The bytes of a row in columns, with the offsets of its strings, without their bytes."""
    text_sizes: tuple[int, ...]
    """Where, in the sizes that kernels measure, the bytes of each column of strings are."""
    schema: pa.Schema
    """Of batches of the columns."""
    form: BatchForm | None
    """The form of batches of the columns, if the cells of all are Arrow's."""
    key_widths: np.ndarray
    """Of the columns of the key, which lead: the bytes of a cell (int64), 0 for strings."""

    @classmethod
    def of(cls, columns: tuple[ColumnSchema, ...], key_columns: int) -> RowColumns:
        """Return the columns of a schema, of which so many are the key's."""
        absent = tuple(raw_cell(absent_cells(column, 1), 0) for column in columns)
        physicals = tuple(physical_of(column.logical.arrow) for column in columns)
        widths = np.array([physical.width for physical in physicals[:key_columns]], np.int64)
        plain = tuple(_plain_width(column.logical.arrow, kind) for column, kind in zip(columns, physicals, strict=True))
        schema = pa.schema([column.field for column in columns])
        form = None if -1 in plain else BatchForm(schema, plain)
        ids = tuple(column.id for column in columns)
        texts = tuple(2 * i for i, physical in enumerate(physicals) if physical is PhysicalType.BYTES)
        row_bytes = sum(physical.width for physical in physicals) + _OFFSET_BYTES * len(texts)
        return cls(columns, ids, absent, physicals, row_bytes, texts, schema, form, widths)


def _plain_width(arrow_type: pa.DataType, physical: PhysicalType) -> int:
    if physical is PhysicalType.BYTES:
        return 0 if pa.types.is_string(arrow_type) or pa.types.is_binary(arrow_type) else -1
    return physical.width if arrow_type.bit_width == 8 * physical.width else -1

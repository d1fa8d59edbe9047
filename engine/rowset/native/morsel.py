"""Reads consecutive rows of several columns of a base file with their deltas, in one kernel call (`kernels.morsel`).

Columns that the kernel cannot read are read as vectors, by `RowSet.read`: those that were added or widened after the
rows were written, dictionaries with long values or that deltas make too large, damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....schemas.table.column import ColumnSchema
from ...kernels.reads import morsel as kernels
from ...vectors.memory.memory import Scratch
from ...vectors.vector import Vector
from .morsel_column import CannotReadError, ColumnBase, MorselColumn, MorselTables

_SCRATCH = Scratch(kernels.SCRATCH_BYTES)


def read_morsel(
    columns: Sequence[ColumnBase], first: int, last: int, as_strings: bool, read: Callable[[ColumnSchema], Vector]
) -> list[Vector]:
    """Read a morsel by a kernel: return rows [first, last), at least one, of columns; ``read`` reads a column as
    vectors.

    With ``as_strings`` the values of dictionaries are copied, else columns keep their codes.
    """
    planned = [_planned(base, first, last, as_strings) for base in columns]
    results = _run([one for one in planned if one], first, last)
    found = iter(results)
    vectors = [None if one is None else next(found) for one in planned]
    return [read(column) if vector is None else vector for (column, _, _), vector in zip(columns, vectors, strict=True)]


def _planned(base: ColumnBase, first: int, last: int, as_strings: bool) -> MorselColumn | None:
    try:
        return MorselColumn(base, first, last, as_strings)
    except CannotReadError:
        return None


def _run(columns: list[MorselColumn], first: int, last: int) -> list[Vector | None]:
    """Return the cells of columns; None for those that turned out to be unreadable."""
    if not columns:
        return []
    tables = MorselTables(columns)
    unfinished = kernels.read_morsel(*tables.addresses, first, last, _SCRATCH.address)
    sizes = tables.columns[:, kernels.RESULT].tolist()
    if not unfinished:
        return [column.result(size) for column, size in zip(columns, sizes, strict=True)]
    return [_again(column, size, first, last) for column, size in zip(columns, sizes, strict=True)]


def _again(column: MorselColumn, size: int, first: int, last: int) -> Vector | None:
    """Return a column's cells if ``size`` says that they were read, or after reading with more room."""
    if size < 0:
        return None
    if column.form == kernels.AS_STRINGS and not column.has_room(size):
        column.reserve(size)
        (vector,) = _run([column], first, last)
        return vector
    return column.result(size)

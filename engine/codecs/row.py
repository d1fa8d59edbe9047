"""Whole rows as byte strings that stay readable when the table changes: RisingWave's column-aware row encoding.

    | flags u1 | N | column id x N | offset x (N - 1) | datum x N |

A row names its columns by id, so reading it does not need the schema that it was written under. The layout is drawn in
``docs/format/row.md``; source: RisingWave's RFC "Table Schema Change" of 2022, section "Column-aware Row Encoding".
Rows are made and read in batches; the loops are in `nyala.engine.kernels.cells.row`.

As for pages: checksum, then ``check``, then ``decode`` as often as needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..kernels.cells import row as kernels
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector, Vector, as_bytes, patch
from .codec import CorruptPageError, require

COLUMN_ID_MAX = (1 << 32) - 1

_FLOATS = (PhysicalType.FLOAT32, PhysicalType.FLOAT64)


@dataclass(frozen=True, slots=True, eq=False)
class WantedColumn:
    """A column to find in rows in row encoding."""

    column_id: int
    physical: PhysicalType
    """The column's present type: narrower integers and floats in a row are widened to it."""
    absent: Vector | None = None
    """The cell of rows without the column; NULL if None."""


def encode(columns: Mapping[int, Vector], row_count: int) -> BytesVector:
    """Return ``row_count`` rows in row encoding, each with those cells of ``columns``, by id, that are not NULL.

    Raises OverflowError when they take 2 GiB or more, ValueError for an id outside [0, 2**32).
    """
    if columns and not (min(columns) >= 0 and max(columns) <= COLUMN_ID_MAX):
        raise ValueError(f"column ids must be in [0, {COLUMN_ID_MAX}]")
    assert all(len(vector) == row_count for vector in columns.values()), "a cell of each column for each row"
    kept: list[np.ndarray] = []
    table = np.array([_described(*column, kept) for column in sorted(columns.items())], np.int64)
    offsets = allocate(row_count + 1, np.int32)
    start, ends = address_of(table), address_of(offsets)
    size = int(kernels.measure_rows(start, len(columns), row_count, ends))
    if size < 0:
        raise OverflowError("the rows would take 2 GiB or more")
    data = allocate(size, np.uint8)
    kernels.write_rows(start, len(columns), row_count, ends, address_of(data))
    return BytesVector(offsets, data)


def check(rows: BytesVector) -> None:
    """Check rows in row encoding: everything that ``decode`` relies on.

    Raises CorruptPageError if the offsets are outside the bytes, or a row contradicts itself.
    """
    offsets = rows.offsets
    require(len(offsets) > 0 and offsets[0] >= 0, "the rows do not start within the bytes")
    require(offsets[-1] <= len(rows.data), "the rows end after the last byte")
    require((offsets[1:] >= offsets[:-1]).all(), "the offsets of the rows are not in ascending order")
    outcome = kernels.check_rows(address_of(offsets), address_of(rows.data), len(rows))
    if outcome < 0:
        raise CorruptPageError(f"the lengths in row {-1 - outcome} contradict each other")


def decode(rows: BytesVector, wanted: Sequence[WantedColumn]) -> list[Vector]:
    """Return the cells of the wanted columns of rows in row encoding, in their order; skips other columns of the rows.

    The rows must be checked. Raises CorruptPageError for a datum that is not a cell of its column's type.
    """
    count = len(rows)
    order = sorted(range(len(wanted)), key=lambda place: wanted[place].column_id)
    ids = np.array([wanted[place].column_id for place in order], np.int64)
    starts, sizes = np.zeros((len(wanted), count), np.int64), np.zeros((len(wanted), count), np.int32)
    where = address_of(rows.offsets), address_of(rows.data)
    kernels.find_datums(*where, count, address_of(ids), len(ids), address_of(starts), address_of(sizes))
    valid = np.empty((len(wanted), count), np.bool_)
    cells = [_cells(wanted[place], starts[line], sizes[line], valid[line]) for line, place in enumerate(order)]
    found: list[Vector] = list(cells)
    for line, place in enumerate(order):
        found[place] = cells[line] if valid[line].all() else _with_absent(wanted[place], cells[line], valid[line])
    return found


def _described(column_id: int, vector: Vector, kept: list[np.ndarray]) -> tuple[int, ...]:
    """Return a column's line of the table for the kernels; adds arrays that must stay in memory to ``kept``."""

    def place(array: np.ndarray) -> int:
        kept.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        return address_of(kept[-1])

    valid = 0 if vector.valid is None else place(vector.valid)
    if isinstance(vector, FixedVector):
        return column_id, vector.values.dtype.itemsize, place(vector.values), 0, valid
    strings = as_bytes(vector)
    return column_id, 0, place(strings.data), place(strings.offsets), valid


def _cells(column: WantedColumn, starts: np.ndarray, sizes: np.ndarray, valid: np.ndarray) -> FixedVector | BytesVector:
    """Return the cells of a column, zero or empty in rows without it, and write to ``valid`` which rows have it."""
    if column.physical is PhysicalType.BYTES:
        return _strings(column, starts, sizes, valid)
    physical = column.physical
    cells = allocate(len(starts), physical.dtype)
    read = kernels.read_floats if physical in _FLOATS else kernels.read_integers
    places = address_of(starts), address_of(sizes)
    outcome = read(*places, len(starts), physical.width, address_of(cells), address_of(valid))
    _require_cells(int(outcome), column)
    if physical is PhysicalType.BOOL:
        require(cells.max(initial=0) <= 1, f"a cell of column {column.column_id} is neither true nor false")
    return FixedVector(cells)


def _strings(column: WantedColumn, starts: np.ndarray, sizes: np.ndarray, valid: np.ndarray) -> BytesVector:
    offsets = allocate(len(starts) + 1, np.int32)
    ends = address_of(offsets)
    places = address_of(starts), address_of(sizes)
    size = int(kernels.measure_strings(*places, len(starts), ends, address_of(valid)))
    _require_cells(size, column)
    data = allocate(size, np.uint8)
    kernels.read_strings(address_of(starts), len(starts), ends, address_of(data))
    return BytesVector(offsets, data)


def _with_absent(column: WantedColumn, cells: FixedVector | BytesVector, valid: np.ndarray) -> Vector:
    vector = replace(cells, valid=valid)
    if column.absent is None:
        return vector
    absent = np.flatnonzero(~valid)
    return patch(vector, absent, column.absent.take(np.zeros(len(absent), np.int64)))


def _require_cells(outcome: int, column: WantedColumn) -> None:
    if outcome < 0:
        row = -1 - outcome
        raise CorruptPageError(f"row {row}: the cell of column {column.column_id} is not a valid {column.physical}")

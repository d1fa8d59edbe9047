"""Places: where the cells of a column are, as the kernels that read single rows take them (`point_read`)."""

from __future__ import annotations

import numpy as np

from ...kernels.reads import point_read as kernels
from ...vectors.memory.memory import address_of, address_or_0, allocate
from ...vectors.physical import PhysicalType
from ...vectors.vector import FixedVector, Vector, as_bytes
from .scratch import RowScratch

Place = tuple[int, ...]
"""PLACE_FIELDS numbers."""

KEPT: Place = (kernels.KEPT, *([0] * (kernels.PLACE_FIELDS - 1)))
"""Cells that stay as they are."""

_TRUE = np.array([1, 0], np.int64)


def place_of(vector: Vector, held: list[object]) -> Place:
    """Return the place of cells in memory for kernels that read single rows, and add to ``held`` what must live while
    it is used."""
    if not isinstance(vector, FixedVector):
        vector = as_bytes(vector)
        held.append(vector)
        offsets, data = address_of(vector.offsets), address_of(vector.data)
        return kernels.TEXTS, 0, 0, len(vector), 0, 0, offsets, data, 0, address_or_0(vector.valid)
    held.append(vector)
    values = vector.values
    return (
        kernels.FIXED,
        values.dtype.itemsize,
        address_of(values),
        len(vector),
        0,
        0,
        0,
        0,
        0,
        address_or_0(vector.valid),
    )


def place_of_one(vector: Vector, held: list[object]) -> Place:
    """Return the place, for kernels, of a cell that is the same in all rows, from a vector of it alone; see
    ``place_of``."""
    place = place_of(vector, held)
    if vector.valid is not None and not vector.valid[0]:
        return (kernels.NULLS, *([0] * (kernels.PLACE_FIELDS - 1)))
    room = allocate(2 * kernels.CELL_BYTES, np.uint8)
    held.append(room)
    fields, scratch = np.array([place], np.int64), RowScratch()
    address = address_of(room)
    kernels.read_row(address_of(fields), 1, 0, address, address + kernels.CELL_BYTES, scratch.address)
    return _one(address)


def _one(address: int) -> Place:
    return kernels.ONE, 0, address, *([0] * (kernels.PLACE_FIELDS - 3))


TRUE: Place = _one(address_of(_TRUE))
"""The liveness of rows that all exist."""


def is_widened(stored: PhysicalType | None, wanted: PhysicalType) -> bool:
    """Whether cells as stored differ for kernels from the column's by more than their width: floats that became
    doubles."""
    return stored is PhysicalType.FLOAT32 and wanted is PhysicalType.FLOAT64

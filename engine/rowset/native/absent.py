"""Columns that were added to a table after rows were written: those rows show the read default, else NULL."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ....schemas.cells.literal import from_json
from ....schemas.table.column import ColumnSchema
from ...cfile.leaf_zones import Path, leaf_zone_map
from ...cfile.zone_map import ZoneMap, zone_map_of
from ...vectors.arrow import from_arrow
from ...vectors.physical import PhysicalType, physical_of
from ...vectors.vector import DictionaryVector, Vector, as_bytes, nulls


def absent_cells(column: ColumnSchema, row_count: int) -> Vector:
    """Return a column's cells of rows that were written without it: one value for all, stored once."""
    kind = column.logical.arrow
    physical = physical_of(kind)
    value = from_json(column.read_default, column.logical, f"the read_default of column {column.name!r}:")
    if value is None:
        return nulls(physical, row_count)
    cell = from_arrow(pa.array([value], kind), physical)
    repeats = np.zeros(row_count, np.int32)
    if physical is PhysicalType.BYTES:
        return DictionaryVector(repeats, as_bytes(cell))
    return cell.take(repeats)


def absent_bytes(column: ColumnSchema) -> float:
    """Return the bytes of one cell of an absent column when it is materialised."""
    cell = absent_cells(column, 1)
    return float(cell.nbytes)


def absent_zone_map(column: ColumnSchema, row_count: int) -> ZoneMap:
    """Return the zone map of ``row_count`` cells of an absent column: only the read default, or only NULL."""
    one = _zone_map_of_one(column)
    return replace(one, null_count=one.null_count * row_count, row_count=row_count)


def absent_leaf_zone_map(column: ColumnSchema, path: Path, row_count: int) -> ZoneMap | None:
    """Return the zone map of a leaf of an absent struct column, as ``absent_zone_map`` does of a column; None if it has
    no bounds."""
    one = _leaf_zone_map_of_one(column, path)
    return one and replace(one, null_count=one.null_count * row_count, row_count=row_count)


@lru_cache(maxsize=1024)
def _leaf_zone_map_of_one(column: ColumnSchema, path: Path) -> ZoneMap | None:
    return leaf_zone_map(absent_cells(column, 1), column.logical.arrow, path)


@lru_cache(maxsize=1024)
def _zone_map_of_one(column: ColumnSchema) -> ZoneMap:
    return zone_map_of(absent_cells(column, 1), physical_of(column.logical.arrow))

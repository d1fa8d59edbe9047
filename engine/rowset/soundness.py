"""Checks of a rowset that somebody else wrote, or long ago: that its rows are what a rowset's rows must be."""

from __future__ import annotations

import numpy as np

from ...schemas.errors import CorruptionError
from ...schemas.table import TableSchema
from ..cfile.reader import CFileReader
from ..partition.router import Router
from ..vectors.keys import hash_keys, key_bytes, keys_ascend
from .diskrowset import DiskRowSet

_ROWS_AT_ONCE = 1 << 18


def verify_keys(rowset: DiskRowSet) -> None:
    """Check that the rows stand in the order of their keys, without repeats, from the first key to the last, and that
    the filter lets all of them through."""
    previous = b""
    for first in range(0, len(rowset), _ROWS_AT_ONCE):
        keys = rowset.keys_in(first, min(first + _ROWS_AT_ONCE, len(rowset)))
        lowest = key_bytes(keys, 0)
        if not keys_ascend(keys) or (first and lowest <= previous):
            raise CorruptionError(rowset.path, 0, f"rows from {first} on are not in the order of their keys")
        if first == 0 and lowest != rowset.min_key:
            raise CorruptionError(rowset.path, 0, "the first key is not the one in the footer")
        if rowset.key_filter and not rowset.key_filter.may_hold(hash_keys(keys)).all():
            raise CorruptionError(rowset.path, 0, f"the filter of the keys denies a key of the rows from {first} on")
        previous = key_bytes(keys, len(keys) - 1)
    if previous != rowset.max_key:
        raise CorruptionError(rowset.path, 0, "the last key is not the one in the footer")


def verify_partition(schema: TableSchema, router: Router, number: int, rowset: DiskRowSet) -> None:
    """Check that all rows belong to the tablet in which they are, by its ``number`` among the table's."""
    for first in range(0, len(rowset), _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, len(rowset))
        cells = {column.id: rowset.base(column, first, last) for column in schema.key}
        strays = np.flatnonzero(router.numbers_of_cells(cells, last - first) != number)
        if len(strays):
            raise CorruptionError(rowset.path, 0, f"row {first + int(strays[0])} belongs to another tablet")


def verify_nulls(schema: TableSchema, reader: CFileReader) -> None:
    """Check that there is no NULL where none may be, by zone maps that are right."""
    for key in reader.streams():
        column = schema.by_id.get(key.column_id)
        if key.role != "base" or column is None or column.nullable:
            continue
        if any(zone.null_count for zone in reader.stream(key).zone_maps):
            raise CorruptionError(reader.path, 0, f"column {column.name!r} has a NULL, though it is not nullable")

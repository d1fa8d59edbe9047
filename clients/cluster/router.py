"""TabletRouter: finds the tablet of each row on the client, by its range and by that range's hash buckets."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.literal import from_json
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema
from .hashing import mix_bytes, mix_ints, mix_longs
from .key_cells import any_value, big_endian, integers, stored_cells

NOWHERE = -1
"""The tablet of a row that no range covers."""
SPARK_SEED = 42
_LONG_DIGITS = 18


class TabletRouter:
    """Numbers the tablets of a table in the order of ``PartitionSchema.tablets``. Immutable."""

    def __init__(self, partitions: PartitionSchema, columns: Sequence[ColumnSchema]) -> None:
        """``columns`` are those of the table."""
        self.partitions = partitions
        self._by_id = {column.id: column for column in columns}
        counts = [prod(level.buckets for level in partitions.hash_of(each)) for each in partitions.ranges]
        self._first = np.cumsum([0, *counts])
        used = {
            column_id for each in partitions.ranges for level in partitions.hash_of(each) for column_id in level.columns
        }
        self.column_ids = sorted(used | set(partitions.range_columns))
        """The columns that decide the tablet."""

    def numbers_of(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the tablet number of each row (int64), NOWHERE for rows without one. Columns are found by name.

        Raises:
            InvalidArgumentError: a column's type never fits.
        """
        columns = [self._by_id[column_id] for column_id in self.column_ids]
        cells = {column.id: stored_cells(rows.column(column.name), column) for column in columns}
        numbers = np.full(rows.num_rows, NOWHERE, np.int64)
        ranges = self._ranges_of(cells, rows.num_rows)
        schemes: dict[tuple[HashSchema, ...], np.ndarray] = {}
        for place in np.unique(ranges[ranges != NOWHERE]).tolist():
            levels = self.partitions.hash_of(self.partitions.ranges[place])
            if levels not in schemes:
                schemes[levels] = self._combined(levels, cells, rows.num_rows)
            mine = ranges == place
            numbers[mine] = self._first[place] + schemes[levels][mine]
        return numbers

    def _combined(self, levels: Sequence[HashSchema], cells: dict[int, pa.Array], count: int) -> np.ndarray:
        """Return each row's combination of buckets as one number, the last level fastest."""
        combined = np.zeros(count, np.int64)
        for level in levels:
            combined = combined * level.buckets + self._buckets(level, cells, count)
        return combined

    def _buckets(self, level: HashSchema, cells: dict[int, pa.Array], count: int) -> np.ndarray:
        states = np.full(count, SPARK_SEED, np.uint64)
        if level.seed:
            states = mix_ints(np.full(count, level.seed, np.int32), states)
        for column_id in level.columns:
            states = _mixed(cells[column_id], self._by_id[column_id], states)
        return states.view(np.int64) % level.buckets

    def _ranges_of(self, cells: dict[int, pa.Array], count: int) -> np.ndarray:
        """Return the index of each row's range, NOWHERE in a gap."""
        ranges, columns = self.partitions.ranges, self.partitions.range_columns
        if not columns:
            return np.zeros(count, np.int64)
        keys = [self._by_id[column_id] for column_id in columns]
        values = [cells[column_id] for column_id in columns]
        begun = _bounds_up_to([each.lower for each in ranges], values, keys)
        ended = _bounds_up_to([each.upper for each in ranges if each.upper], values, keys)
        return np.where(begun - 1 == ended, ended, NOWHERE)


def _mixed(cells: pa.Array, column: ColumnSchema, states: np.ndarray) -> np.ndarray:
    kind = column.logical
    if kind.is_variable:
        return mix_bytes(cells, states)
    if kind.name == "decimal" and kind.precision > _LONG_DIGITS:
        return mix_bytes(big_endian(cells), states)
    is_long = kind.name in ("decimal", "int64", "timestamp[us]")
    return mix_longs(integers(cells), states) if is_long else mix_ints(integers(cells), states)


def _bounds_up_to(
    bounds: Sequence[tuple[Any, ...]], cells: Sequence[pa.Array], columns: Sequence[ColumnSchema]
) -> np.ndarray:
    """Return for each row how many of the ascending ``bounds`` are at or below it.

    A bound has values for the leading columns; missing ones count as the smallest.
    """
    column = columns[0]
    is_plain = len(columns) == 1 and not column.logical.is_variable and column.logical.name != "decimal"
    if is_plain and all(bounds):
        ends = pa.array([from_json(bound[0], column.logical) for bound in bounds], column.logical.arrow)
        return np.searchsorted(integers(ends), integers(cells[0]), "right")
    return _sorted_in(bounds, cells, columns)


def _sorted_in(
    bounds: Sequence[tuple[Any, ...]], cells: Sequence[pa.Array], columns: Sequence[ColumnSchema]
) -> np.ndarray:
    """Do the same for any columns: sort rows and bounds together, each bound before the rows equal to it."""
    count = len(cells[0])
    keys: dict[str, pa.Array] = {}
    for place, (values, column) in enumerate(zip(cells, columns, strict=True)):
        ends = [from_json(bound[place], column.logical) if place < len(bound) else None for bound in bounds]
        given = [end is not None for end in ends]
        keys[f"given {place}"] = pa.array(np.array([*given, *([True] * count)], np.int8))
        keys[str(place)] = pa.concat_arrays([pa.array(ends, column.logical.arrow).fill_null(any_value(column)), values])
    keys["row"] = pa.array((np.arange(len(bounds) + count) >= len(bounds)).astype(np.int8))
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    counts = np.empty(len(order), np.int64)
    counts[order] = np.cumsum(order < len(bounds))
    return counts[len(bounds) :]

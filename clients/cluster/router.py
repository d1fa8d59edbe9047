"""TabletRouter: finds the tablet of each row on the client, by its range and by that range's hash buckets.

It routes batches by numpy, and single rows by their Python values: numpy's calls for one row take longer than its
request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.literal import from_json
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema
from .hashing import hash_bytes, hash_integer, mix_bytes, mix_ints, mix_longs
from .key_cells import any_value, big_endian, integers, stored_cells

NOWHERE = -1
"""The tablet of a row that no range covers."""
_SPARK_SEED = 42
_LONG_DIGITS = 18
_Bound = tuple[Any, ...]
"""Python values of the leading range columns; missing ones count as the smallest."""


class TabletRouter:
    """Finds the tablet of each row on the client, to send the row to its server: numbers the tablets of a table in the
    order of ``PartitionSchema.tablets``. Immutable."""

    def __init__(self, partitions: PartitionSchema, columns: Sequence[ColumnSchema]) -> None:
        """``columns`` are those of the table."""
        self._levels = [partitions.hash_of(each) for each in partitions.ranges]
        self._first = [0, *accumulate(prod(level.buckets for level in levels) for levels in self._levels)]
        hashed = {column_id for levels in self._levels for level in levels for column_id in level.columns}
        by_id = {column.id: column for column in columns}
        self.columns = [by_id[column_id] for column_id in sorted(hashed | set(partitions.range_columns))]
        """The columns that decide the tablet."""
        self._places = {column.id: place for place, column in enumerate(self.columns)}
        self._kinds = [_kind(column) for column in self.columns]
        self._range_places = [self._places[column_id] for column_id in partitions.range_columns]
        keys = [self.columns[place].logical for place in self._range_places]
        bound = lambda cells: tuple(from_json(cell, kind) for cell, kind in zip(cells, keys, strict=False))  # noqa: E731
        self._lowers = [bound(each.lower) for each in partitions.ranges]
        self._uppers = [bound(each.upper) for each in partitions.ranges if each.upper]

    def number_of(self, values: Sequence[Any]) -> int | None:
        """Return the tablet number of a row by Python values of ``columns``, NOWHERE for a row without one; None if
        only ``numbers_of`` can tell: for values of other types, and columns of decimals and moments."""
        for kind, value in zip(self._kinds, values, strict=True):
            if kind is None or type(value) is not kind[0]:
                return None
            if kind[0] is int and not -1 <= value >> (kind[1] - 1) <= 0:
                return None
        place = self._range_of(values)
        if place == NOWHERE:
            return NOWHERE
        combined = 0
        for level in self._levels[place]:
            combined = combined * level.buckets + self._bucket(level, values)
        return self._first[place] + combined

    def _range_of(self, values: Sequence[Any]) -> int:
        if not self._range_places:
            return 0
        cells = tuple(values[place] for place in self._range_places)
        begun = bisect_right(self._lowers, cells) - 1
        return begun if begun == bisect_right(self._uppers, cells) else NOWHERE

    def _bucket(self, level: HashSchema, values: Sequence[Any]) -> int:
        state = hash_integer(level.seed, _SPARK_SEED, 4) if level.seed else _SPARK_SEED
        for column_id in level.columns:
            place = self._places[column_id]
            value, kind = values[place], self._kinds[place]
            if kind is not None and kind[0] is int:
                state = hash_integer(value, state, 8 if kind[1] == 64 else 4)
            else:
                state = hash_bytes(value.encode() if type(value) is str else value, state)
        return (state - (1 << 64) if state >> 63 else state) % level.buckets

    def numbers_of(self, rows: pa.RecordBatch) -> np.ndarray:
        """Return the tablet number of each row (int64), NOWHERE for rows without one. Columns are found by name.

        Raises:
            InvalidArgumentError: a column's type never fits.
        """
        cells = [stored_cells(rows.column(column.name), column) for column in self.columns]
        numbers = np.full(rows.num_rows, NOWHERE, np.int64)
        ranges = self._ranges_of(cells, rows.num_rows)
        schemes: dict[tuple[HashSchema, ...], np.ndarray] = {}
        for place in np.unique(ranges[ranges != NOWHERE]).tolist():
            levels = self._levels[place]
            if levels not in schemes:
                schemes[levels] = self._combined(levels, cells, rows.num_rows)
            mine = ranges == place
            numbers[mine] = self._first[place] + schemes[levels][mine]
        return numbers

    def _combined(self, levels: Sequence[HashSchema], cells: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return each row's combination of buckets as one number, the last level fastest."""
        combined = np.zeros(count, np.int64)
        for level in levels:
            combined = combined * level.buckets + self._buckets(level, cells, count)
        return combined

    def _buckets(self, level: HashSchema, cells: Sequence[pa.Array], count: int) -> np.ndarray:
        states = np.full(count, _SPARK_SEED, np.uint64)
        if level.seed:
            states = mix_ints(np.full(count, level.seed, np.int32), states)
        for column_id in level.columns:
            place = self._places[column_id]
            states = _mixed(cells[place], self.columns[place], states)
        return states.view(np.int64) % level.buckets

    def _ranges_of(self, cells: Sequence[pa.Array], count: int) -> np.ndarray:
        """Return the index of each row's range, NOWHERE in a gap."""
        if not self._range_places:
            return np.zeros(count, np.int64)
        keys = [self.columns[place] for place in self._range_places]
        values = [cells[place] for place in self._range_places]
        begun = _bounds_up_to(self._lowers, values, keys)
        ended = _bounds_up_to(self._uppers, values, keys)
        return np.where(begun - 1 == ended, ended, NOWHERE)


def _mixed(cells: pa.Array, column: ColumnSchema, states: np.ndarray) -> np.ndarray:
    kind = column.logical
    if kind.is_variable:
        return mix_bytes(cells, states)
    if kind.name == "decimal" and kind.precision > _LONG_DIGITS:
        return mix_bytes(big_endian(cells), states)
    is_long = kind.name in ("decimal", "int64", "timestamp[us]")
    return mix_longs(integers(cells), states) if is_long else mix_ints(integers(cells), states)


def _bounds_up_to(bounds: Sequence[_Bound], cells: Sequence[pa.Array], columns: Sequence[ColumnSchema]) -> np.ndarray:
    """Return for each row how many of the ascending ``bounds`` are at or below it."""
    column = columns[0]
    is_plain = len(columns) == 1 and not column.logical.is_variable and column.logical.name != "decimal"
    if is_plain and all(bounds):
        ends = pa.array([bound[0] for bound in bounds], column.logical.arrow)
        return np.searchsorted(integers(ends), integers(cells[0]), "right")
    return _sorted_in(bounds, cells, columns)


def _sorted_in(bounds: Sequence[_Bound], cells: Sequence[pa.Array], columns: Sequence[ColumnSchema]) -> np.ndarray:
    """Do the same for any columns: sort rows and bounds together, each bound before the rows equal to it."""
    count = len(cells[0])
    keys: dict[str, pa.Array] = {}
    for place, (values, column) in enumerate(zip(cells, columns, strict=True)):
        ends = [bound[place] if place < len(bound) else None for bound in bounds]
        given = [end is not None for end in ends]
        keys[f"given {place}"] = pa.array(np.array([*given, *([True] * count)], np.int8))
        keys[str(place)] = pa.concat_arrays([pa.array(ends, column.logical.arrow).fill_null(any_value(column)), values])
    keys["row"] = pa.array((np.arange(len(bounds) + count) >= len(bounds)).astype(np.int8))
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]).to_numpy()
    counts = np.empty(len(order), np.int64)
    counts[order] = np.cumsum(order < len(bounds))
    return counts[len(bounds) :]


def _kind(column: ColumnSchema) -> tuple[type, int] | None:
    """Return the Python type of a column's cells and, of integers, their bits; None if a cell is not its own value."""
    kind = column.logical
    if kind.is_integer:
        return int, kind.arrow.bit_width
    if kind.name in ("string", "binary"):
        return (str if kind.is_text else bytes), 0
    return None

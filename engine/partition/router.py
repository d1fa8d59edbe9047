"""Router: the tablet of each row, by its range and by the hash buckets of that range.

The sorted bounds of all ranges divide the encoded values of the range columns into segments, each of which is a range
or a gap. One binary search per row finds the segment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from ...schemas.cells.literal import from_json
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema, RangePartition, TabletPartition
from ...schemas.table.table import TableSchema
from ..expression.literal import place
from ..kernels.keys import bounds as kernels
from ..vectors.arrow import from_arrow
from ..vectors.keys.keys import KeyEncoder, KeyVector, U64Keys
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import physical_of
from ..vectors.raw_cell import RawCell
from ..vectors.vector import Vector
from .bucket import bucket_of, buckets_of

NOWHERE = -1
"""The tablet of a row that no range covers."""


def encoded(cells: Sequence[Any], columns: Sequence[ColumnSchema], encoder: KeyEncoder) -> bytes:
    """Encode the bound of a range of partitions as a router compares it with the keys of rows: one JSON value for each
    of the leading ``columns``."""
    return encoder.encode_bound([cell_of(cell, column) for cell, column in zip(cells, columns, strict=False)])


def cell_of(value: Any, column: ColumnSchema) -> int | bytes:
    """Return the physical cell of a JSON value in the bound of a range, as a router compares it."""
    cell = place(from_json(value, column.logical), column.logical).cell
    assert isinstance(cell, int | bytes), "a key column holds neither NULL nor a float"
    return cell


def encoder_of(columns: Sequence[ColumnSchema]) -> KeyEncoder:
    """Return a router's encoder of the bounds of ranges over some key columns."""
    return KeyEncoder([physical_of(column.logical.arrow) for column in columns])


class Router:
    """Finds the tablets of rows by their partitions: numbers the tablets of a table in the given order, and finds the
    number of each row. Immutable."""

    def __init__(self, partitions: PartitionSchema, schema: TableSchema, tablets: Sequence[TabletPartition]) -> None:
        self._schema = schema
        self._partitions = partitions
        self._is_single = len(tablets) == 1 and not partitions.range_columns
        numbers = {(each.lower, each.upper, each.buckets): number for number, each in enumerate(tablets)}
        self._ranges = [
            _Range(partitions.hash_of(each), _numbers(each, partitions, numbers)) for each in partitions.ranges
        ]
        self._line = _Line(partitions, schema) if partitions.range_columns else None
        self._by_range = None
        """By range and combination of buckets, if all ranges have the same buckets; the last row is for the gaps."""
        if len({each.hash for each in self._ranges}) == 1:
            rows = [each.numbers for each in self._ranges]
            self._by_range = np.stack([*rows, np.full_like(rows[0], NOWHERE)])
        used = {column_id for each in self._ranges for level in each.hash for column_id in level.columns}
        used |= set(partitions.range_columns)
        self._columns = [column for column in schema.key if column.id in used]

    def numbers_of(self, rows: pa.RecordBatch) -> np.ndarray | None:
        """Return the tablet number of each row (int64), NOWHERE for those without; None if all are in tablet 0.

        ``rows`` needs the key columns, named by id.
        """
        if self._is_single:
            return None
        cells = {
            column.id: from_arrow(rows.column(str(column.id)), physical_of(column.logical.arrow))
            for column in self._columns
        }
        return self.numbers_of_cells(cells, rows.num_rows)

    def number_of_cells(self, key: Sequence[RawCell]) -> int:
        """Return the tablet number of a key, given the raw cells of all key columns; NOWHERE if it has none."""
        if self._is_single:
            return 0
        cells = {column.id: cell for column, cell in zip(self._schema.key, key, strict=True)}
        number = 0 if self._line is None else self._line.segment_of(cells)
        return NOWHERE if number == NOWHERE else self._ranges[number].number_of(cells, self._schema)

    def numbers_of_key(self, key: Sequence[Vector]) -> np.ndarray | None:
        """Return the same as ``numbers_of``, given all key columns."""
        if self._is_single:
            return None
        return self.numbers_of_cells(
            dict(zip([column.id for column in self._schema.key], key, strict=True)), len(key[0])
        )

    def numbers_of_cells(self, cells: Mapping[int, Vector], count: int) -> np.ndarray:
        """Return the same as ``numbers_of`` for key cells by column id."""
        if self._line is None:
            return self._ranges[0].numbers_of(cells, count, self._schema)
        segments = self._line.segments_of(cells)
        if self._by_range is not None:
            return self._by_range[segments, self._ranges[0].combined(cells, count, self._schema)]
        numbers = np.full(count, NOWHERE, np.int64)
        for number in np.unique(segments[segments != NOWHERE]).tolist():
            rows, found = np.flatnonzero(segments == number), self._ranges[number]
            own = {column_id: cells[column_id].take(rows) for level in found.hash for column_id in level.columns}
            numbers[rows] = found.numbers_of(own, len(rows), self._schema)
        return numbers


class _Range:
    def __init__(self, levels: tuple[HashSchema, ...], numbers: np.ndarray) -> None:
        self.hash = levels
        self.numbers = numbers
        """The tablet number of each combination of buckets, the last level varying fastest."""

    def numbers_of(self, cells: Mapping[int, Vector], count: int, schema: TableSchema) -> np.ndarray:
        return self.numbers[self.combined(cells, count, schema)]

    def number_of(self, cells: Mapping[int, RawCell], schema: TableSchema) -> int:
        """Return the tablet number of one row, given its raw cells by column id."""
        combined = 0
        for level in self.hash:
            columns = [schema.by_id[column_id] for column_id in level.columns]
            bucket = bucket_of(level, [cells[column.id] for column in columns], columns)
            combined = combined * level.buckets + bucket
        return self.numbers.item(combined)

    def combined(self, cells: Mapping[int, Vector], count: int, schema: TableSchema) -> np.ndarray:
        """Return each row's combination of buckets as one number."""
        combined = np.zeros(count, np.int64)
        for level in self.hash:
            columns = [schema.by_id[column_id] for column_id in level.columns]
            combined = combined * level.buckets + buckets_of(level, cells, columns)
        return combined


class _Line:
    """The sorted bounds of all ranges, and the segments between them."""

    def __init__(self, partitions: PartitionSchema, schema: TableSchema) -> None:
        self._columns = partitions.range_keys(schema)
        self._encoder = encoder_of(self._columns)
        bounds: list[bytes] = []
        segments = [NOWHERE]
        for number, each in enumerate(partitions.ranges):
            lower = encoded(each.lower, self._columns, self._encoder)
            if not each.lower or (bounds and bounds[-1] == lower and segments[-1] == NOWHERE):
                segments[-1] = number
            else:
                bounds.append(lower)
                segments.append(number)
            if each.upper:
                bounds.append(encoded(each.upper, self._columns, self._encoder))
                segments.append(NOWHERE)
        self._bounds = bounds
        self._segments = np.array(segments, np.int64)
        self._offsets = np.cumsum([0, *map(len, bounds)]).astype(np.int32)
        self._data = np.frombuffer(b"".join(bounds) or b"\0", np.uint8)
        self._words = _words(bounds, self._encoder.width) if self._encoder.is_u64 else np.empty(0, np.uint64)

    def segments_of(self, cells: Mapping[int, Vector]) -> np.ndarray:
        """Return the number of each row's range, NOWHERE in a gap."""
        keys = self._encoder.encode([cells[column.id] for column in self._columns])
        return self._segments[self._bounds_before(keys)]

    def segment_of(self, cells: Mapping[int, RawCell]) -> int:
        """Return the same for one row, given its raw cells by column id."""
        key = self._encoder.encode_bound([cells[column.id] for column in self._columns])  # pyright: ignore
        return self._segments.item(bisect_right(self._bounds, key))

    def _bounds_before(self, keys: KeyVector) -> np.ndarray:
        if isinstance(keys, U64Keys):
            return np.searchsorted(self._words, keys.values, "right")
        found = allocate(len(keys), np.int32)
        kernels.count_bounds(
            address_of(self._offsets),
            address_of(self._data),
            len(self._offsets) - 1,
            address_of(keys.offsets),
            address_of(keys.data),
            len(keys),
            address_of(found),
        )
        return found


def _words(bounds: list[bytes], width: int) -> np.ndarray:
    """Return bounds in the form of keys that are one integer: a prefix is padded with the least values."""
    return np.array([int.from_bytes(bound.ljust(width, b"\0"), "big") for bound in bounds], np.uint64)


def _numbers(
    each: RangePartition, partitions: PartitionSchema, numbers: Mapping[tuple[tuple, tuple, tuple[int, ...]], int]
) -> np.ndarray:
    levels = partitions.hash_of(each)
    combinations = product(*(range(level.buckets) for level in levels))
    return np.array([numbers[each.lower, each.upper, buckets] for buckets in combinations], np.int64)

"""KeyRouter: finds the tablet of one row by its Python values: numpy's calls for one row take longer than its request.

The results are those of `router.TabletRouter`, which routes batches. The package xxhash hashes single cells, with the
hash of one column as the seed of the next, as `hashing` does for whole columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

try:
    import xxhash
except ModuleNotFoundError:
    need = "a client of several servers needs xxhash: pip install 'nyala[servers]'"
    raise ModuleNotFoundError(need, name="xxhash") from None

from ...schemas.cells.literal import from_json
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema
from .router import NOWHERE, SPARK_SEED


class KeyRouter:
    """Numbers the tablets of a table as ``TabletRouter`` does. Immutable."""

    def __init__(self, partitions: PartitionSchema, columns: Sequence[ColumnSchema]) -> None:
        """``columns`` are those that decide the tablet, in the order in which their values are given."""
        self._partitions = partitions
        self._kinds = [_kind(column) for column in columns]
        self._places = {column.id: place for place, column in enumerate(columns)}
        self._range_places = [self._places[column_id] for column_id in partitions.range_columns]
        kinds = [columns[place].logical for place in self._range_places]
        bound = lambda cells: tuple(from_json(cell, kind) for cell, kind in zip(cells, kinds, strict=False))  # noqa: E731
        self._lowers = [bound(each.lower) for each in partitions.ranges]
        self._uppers = [bound(each.upper) for each in partitions.ranges if each.upper]
        self._levels = [partitions.hash_of(each) for each in partitions.ranges]
        self._first = [0, *accumulate(prod(level.buckets for level in levels) for levels in self._levels)]

    def number_of(self, values: Sequence[Any]) -> int | None:
        """Return the tablet of a row by Python values of its columns, NOWHERE for a row without one; None if only
        ``TabletRouter`` can tell: for values of other types, and columns of decimals and moments."""
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
        state = _int_hash(level.seed, SPARK_SEED, 4) if level.seed else SPARK_SEED
        for column_id in level.columns:
            place = self._places[column_id]
            value, kind = values[place], self._kinds[place]
            if kind is not None and kind[0] is int:
                state = _int_hash(value, state, 8 if kind[1] == 64 else 4)
            else:
                state = xxhash.xxh64_intdigest(value.encode() if type(value) is str else value, state)
        return (state - (1 << 64) if state >> 63 else state) % level.buckets


def _kind(column: ColumnSchema) -> tuple[type, int] | None:
    """Return the Python type of a column's cells and, of integers, their bits; None if a cell is not its own value."""
    kind = column.logical
    if kind.is_integer:
        return int, kind.arrow.bit_width
    if kind.name in ("string", "binary"):
        return (str if kind.is_text else bytes), 0
    return None


def _int_hash(value: int, seed: int, length: int) -> int:
    """Return the hash of an integer of ``length`` bytes, seeded with ``seed``."""
    unsigned = value & ((1 << 8 * length) - 1)
    return xxhash.xxh64_intdigest(unsigned.to_bytes(length, "little"), seed)

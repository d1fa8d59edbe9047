"""KeyRouter: finds the tablet of one row in plain Python: numpy's calls for one row take longer than its request.

The results are those of `router.TabletRouter`, which routes batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

from ...schemas.cells.literal import from_json
from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema
from . import hashing
from .router import NOWHERE, SPARK_SEED

_BYTES_MAX = 128
"""Longer cells go to numpy."""
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = map(int, (hashing.P1, hashing.P2, hashing.P3, hashing.P4, hashing.P5))


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
        ``TabletRouter`` can tell: for values of other types, long ones, and columns of decimals and moments."""
        for kind, value in zip(self._kinds, values, strict=True):
            if kind is None or type(value) is not kind[0]:
                return None
            if not (-kind[1] <= value < kind[1] if kind[0] is int else len(value) <= kind[1]):
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
        state = _mix_int(level.seed, SPARK_SEED) if level.seed else SPARK_SEED
        for column_id in level.columns:
            place = self._places[column_id]
            value, kind = values[place], self._kinds[place]
            if kind is not None and kind[0] is int:
                state = _mix_long(value, state) if kind[2] else _mix_int(value, state)
            else:
                state = _mix_bytes(value.encode() if type(value) is str else value, state)
        return (state - (1 << 64) if state >> 63 else state) % level.buckets


def _kind(column: ColumnSchema) -> tuple[type, int, bool] | None:
    """Return the Python type of a column's cells, their bound, and whether they are hashed as longs; None if a cell is
    not its own value."""
    kind = column.logical
    if kind.is_integer:
        bits = kind.arrow.bit_width
        return int, 1 << (bits - 1), bits == 64
    if kind.name in ("string", "binary"):
        return (str if kind.is_text else bytes), _BYTES_MAX, False
    return None


def _mix_int(value: int, state: int) -> int:
    """Return the XXH64 of a 32-bit integer, seeded with ``state``."""
    return _avalanche(_mix_4((state + _P5 + 4) & _MASK, value & 0xFFFFFFFF))


def _mix_long(value: int, state: int) -> int:
    """Return the XXH64 of a 64-bit integer, seeded with ``state``."""
    return _avalanche(_mix_8((state + _P5 + 8) & _MASK, value & _MASK))


def _mix_bytes(data: bytes, state: int) -> int:
    """Return the XXH64 of bytes, seeded with ``state``."""
    length = len(data)
    at = length - length % hashing.STRIPE
    mixed = _mix_stripes(data[:at], state) if at else state + _P5
    mixed = (mixed + length) & _MASK
    while at + 8 <= length:
        mixed = _mix_8(mixed, int.from_bytes(data[at : at + 8], "little"))
        at += 8
    if at + 4 <= length:
        mixed = _mix_4(mixed, int.from_bytes(data[at : at + 4], "little"))
        at += 4
    for byte in data[at:]:
        mixed = _rotated(mixed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    return _avalanche(mixed)


def _mix_stripes(data: bytes, seed: int) -> int:
    lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
    for at in range(0, len(data), 8):
        lane = at // 8 % 4
        lanes[lane] = _round(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
    mixed = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    for lane in lanes:
        mixed = ((mixed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    return mixed


def _mix_4(mixed: int, word: int) -> int:
    return (_rotated(mixed ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK


def _mix_8(mixed: int, word: int) -> int:
    return (_rotated(mixed ^ _round(0, word), 27) * _P1 + _P4) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _avalanche(mixed: int) -> int:
    mixed = (mixed ^ mixed >> 33) * _P2 & _MASK
    mixed = (mixed ^ mixed >> 29) * _P3 & _MASK
    return mixed ^ mixed >> 32

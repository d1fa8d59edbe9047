"""Which tablets a filter leaves: by hash and by range, each level separately.

A range is skipped if no row in it can match: its bounds are a zone map of the range columns, and the encoded range
columns of all matches are in one interval. A hash level needs the values of all its columns, by equality or IN; their
combinations are hashed, and the other buckets are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

import numpy as np

from ...schemas.table.column import ColumnSchema
from ...schemas.table.partition_schema import HashSchema, PartitionSchema, RangePartition, TabletPartition
from ...schemas.table.table import TableSchema
from ..cfile.zone_map import ZoneMap
from ..expression.literal import Cell, bounds
from ..filter.arrow import constants_of
from ..filter.bound import And, BoundFilter, Compare, Node, OneOf, Or, Test
from ..filter.prune import KeyRange, columns_range, may_match
from ..vectors.arrow import from_arrow
from ..vectors.physical import PhysicalType, physical_of
from ..vectors.vector import FixedVector, Vector
from .bucket import buckets_of
from .router import cell_of, encoded, encoder_of

COMBINATIONS_MAX = 1 << 16
"""The most combinations of values to hash; with more, a level skips nothing."""


@dataclass(frozen=True, slots=True)
class LevelCount:
    """How many of its tablets one level of a table's partitions leaves."""

    level: str
    tablets: int
    left: int
    why: str

    def explained(self) -> dict[str, str | int]:
        return {"level": self.level, "tablets": self.tablets, "tablets_left": self.left, "why": self.why}


@dataclass(frozen=True, slots=True)
class Pruned:
    """The tablets of a partitioned table that pruning leaves: the numbers of those that may have a match, and the
    effect of each level."""

    left: list[int]
    levels: list[LevelCount]


def prune(
    bound: BoundFilter, partitions: PartitionSchema, schema: TableSchema, tablets: Sequence[TabletPartition]
) -> Pruned:
    """Return which of ``tablets`` a filter leaves."""
    ranges = {(each.lower, each.upper): each for each in partitions.ranges}
    owners = [ranges[each.lower, each.upper] for each in tablets]
    levels: list[LevelCount] = []
    kept = np.ones(len(tablets), np.bool_)
    for scheme in dict.fromkeys(map(partitions.hash_of, partitions.ranges)):
        of_scheme = np.array([partitions.hash_of(owner) == scheme for owner in owners], np.bool_)
        for position, level in enumerate(scheme):
            found, why = _buckets_left(bound, level, schema)
            passes = np.array(
                [not is_of or each.buckets[position] in found for is_of, each in zip(of_scheme, tablets, strict=True)],
                np.bool_,
            )
            levels.append(_count(f"hash({_names(level.columns, schema)})", of_scheme, passes, why))
            kept &= passes
    if partitions.range_columns:
        left = _RangeTest(bound, partitions, schema)
        may_hold = {key: left.may_hold(each) for key, each in ranges.items()}
        passes = np.array([may_hold[each.lower, each.upper] for each in tablets], np.bool_)
        levels.append(
            _count(f"range({_names(partitions.range_columns, schema)})", np.ones_like(kept), passes, left.why)
        )
        kept &= passes
    return Pruned(np.flatnonzero(kept).tolist(), levels)


def _count(level: str, concerned: np.ndarray, passes: np.ndarray, why: str) -> LevelCount:
    return LevelCount(level, int(concerned.sum()), int((concerned & passes).sum()), why)


def _names(column_ids: Sequence[int], schema: TableSchema) -> str:
    return ", ".join(schema.by_id[column_id].name for column_id in column_ids)


# Hash levels


def _buckets_left(bound: BoundFilter, level: HashSchema, schema: TableSchema) -> tuple[set[int], str]:
    """Return the buckets that may have a match, and the reason."""
    everything = set(range(level.buckets))
    columns = [schema.by_id[column_id] for column_id in level.columns]
    values = [_values(bound.root, column.id) for column in columns]
    unknown = [column.name for column, found in zip(columns, values, strict=True) if found is None]
    if unknown:
        return everything, f"no equality or IN on {', '.join(unknown)}"
    known = [sorted(found) for found in values if found is not None]
    count = prod(map(len, known))
    if count > COMBINATIONS_MAX:
        return everything, f"{count:,} combinations of values are too many to hash"
    if not count:
        return set(), "no values are left"
    cells = _combinations(known, columns)
    found = set(buckets_of(level, cells, columns).tolist())
    return (
        found,
        f"{count:,} combination{'s' if count > 1 else ''} of values in {len(found):,} of {level.buckets:,} buckets",
    )


def _combinations(known: Sequence[Sequence[Cell]], columns: Sequence[ColumnSchema]) -> dict[int, Vector]:
    """Return the cells of every combination of the columns' values, by column id."""
    total, after = prod(map(len, known)), 1
    cells: dict[int, Vector] = {}
    for column, values in zip(reversed(columns), reversed(known), strict=True):
        rows = np.tile(np.repeat(np.arange(len(values)), after), total // (after * len(values)))
        cells[column.id] = _vector(values, physical_of(column.logical.arrow)).take(rows)
        after *= len(values)
    return cells


def _vector(values: Sequence[Cell], physical: PhysicalType) -> Vector:
    if physical in (PhysicalType.BYTES, PhysicalType.INT128):
        return from_arrow(constants_of(tuple(values), physical), physical)
    return FixedVector(np.array(values, physical.dtype))


def _values(node: Node, column_id: int) -> frozenset[Cell] | None:
    """Return the only cells that a column can have in rows that ``node`` selects; None if unknown."""
    if isinstance(node, And):
        known = [found for part in node.parts if (found := _values(part, column_id)) is not None]
        return frozenset.intersection(*known) if known else None
    if isinstance(node, Or):
        parts = [_values(part, column_id) for part in node.parts]
        known = [found for found in parts if found is not None]
        return None if len(known) < len(parts) else frozenset().union(*known)
    if not isinstance(node, Test) and node.column_id == column_id:
        if isinstance(node, Compare) and node.op == "=":
            return frozenset((node.cell,))
        if isinstance(node, OneOf) and not node.negated:
            return frozenset(node.cells)
    return None


# The range level


class _RangeTest:
    """Tests whether ranges may have a row that a filter selects."""

    def __init__(self, bound: BoundFilter, partitions: PartitionSchema, schema: TableSchema) -> None:
        self._bound = bound
        self._columns = partitions.range_keys(schema)
        self._encoder = encoder_of(self._columns)
        self._keys = columns_range(bound, self._columns, self._encoder)
        ids = {column.id for column in self._columns}
        names = ", ".join(column.name for column in self._columns)
        used = ids.intersection(bound.column_ids)
        self.why = f"the filter's values of {names} beside the bounds" if used else f"nothing is known of {names}"

    def may_hold(self, each: RangePartition) -> bool:
        """Return False only if no row of the range can match."""
        lower = encoded(each.lower, self._columns, self._encoder)
        upper = encoded(each.upper, self._columns, self._encoder) if each.upper else None
        if _is_apart(self._keys, lower, upper):
            return False
        zones = self._zones(each)
        return may_match(self._bound, zones.get, 1)

    def _zones(self, each: RangePartition) -> dict[int, ZoneMap]:
        """Return the bounds of the leading range columns, up to the first in which lower and upper differ."""
        zones: dict[int, ZoneMap] = {}
        for position, column in enumerate(self._columns):
            low = _at(each.lower, position, column)
            high = _at(each.upper, position, column)
            # The last value of an upper bound is exclusive; bytes have no greatest cell below it.
            is_past = position == len(each.upper) - 1 and isinstance(high, int)
            zones[column.id] = _zone(low, high - is_past if isinstance(high, int) else high, column)
            if low is None or low != high:
                break
        return zones


def _is_apart(keys: KeyRange, lower: bytes, upper: bytes | None) -> bool:
    if keys.is_empty or (keys.upper is not None and keys.upper <= lower):
        return True
    return upper is not None and keys.lower is not None and keys.lower >= upper


def _at(cells: Sequence[object], position: int, column: ColumnSchema) -> Cell | None:
    value = next(islice(cells, position, None), None)
    return None if value is None else cell_of(value, column)


def _zone(low: Cell | None, high: Cell | None, column: ColumnSchema) -> ZoneMap:
    """Return the zone map of cells from ``low`` to ``high``, both inclusive; None is unbounded."""
    ends = bounds(column.logical)
    least = low if low is not None else ends[0] if ends else b""
    return ZoneMap(least, high, null_count=0, row_count=1, exact=False)

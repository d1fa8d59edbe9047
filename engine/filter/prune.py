"""What a filter says about unread rows: by zone maps, whether a page may have a match; by the columns of the primary
key, the range of encoded keys of all matches.

Both err on the safe side: where ``may_match`` is False, and outside of ``key_range``, no row matches.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..cfile.zone_map import NumberBounds, PageZones, ZoneMap
from ..expression.literal import Cell
from ..vectors.keys.keys import KeyEncoder
from .bound import And, BoundFilter, Compare, Leaf, LikeMatch, Node, NullTest, OneOf, Or, StructLeaf, Test
from .like import prefix_end

ZoneOf = Callable[[int], ZoneMap | None]
LeafZoneOf = Callable[[StructLeaf], ZoneMap | None]


def _no_leaf_zone(leaf: StructLeaf) -> ZoneMap | None:
    return None


def may_match(
    bound: BoundFilter, zone_map_of: ZoneOf, row_count: int, leaf_zone_of: LeafZoneOf = _no_leaf_zone
) -> bool:
    """Return whether the filter may be true for one of the ``row_count`` rows of a page.

    ``zone_map_of`` gives the zone map of a column's cells in that page by column id, ``leaf_zone_of`` that of a field
    of structs; None if unknown.
    """
    return row_count > 0 and _may_match(bound.root, zone_map_of, leaf_zone_of)


def _may_match(node: Node, zone_map_of: ZoneOf, leaf_zone_of: LeafZoneOf = _no_leaf_zone) -> bool:
    if isinstance(node, And):
        return all(_may_match(part, zone_map_of, leaf_zone_of) for part in node.parts)
    if isinstance(node, Or):
        return any(_may_match(part, zone_map_of, leaf_zone_of) for part in node.parts)
    if isinstance(node, Test):
        return node.leaf is None or _test_may_match(node.leaf, leaf_zone_of(node.leaf))
    zone = zone_map_of(node.column_id)
    return zone is None or _leaf_may_match(node, zone)


def _test_may_match(leaf: StructLeaf, zone: ZoneMap | None) -> bool:
    return zone is None or _may_match(leaf.condition, lambda _: zone)


LeafZonesOf = Callable[[StructLeaf], Sequence[ZoneMap | None]]


def pages_may_match(
    bound: BoundFilter, zones: Mapping[int, PageZones], leaf_zones_of: LeafZonesOf | None = None
) -> np.ndarray:
    """Return for each page, one bool, what `may_match` says: ``zones`` has those of the filter's columns by their ids,
    at least one column, and of each the same pages, as ``leaf_zones_of`` has; without it nothing is known of fields of
    structs."""
    return _pages_may_match(bound.root, zones, leaf_zones_of)


def _pages_may_match(node: Node, zones: Mapping[int, PageZones], leaf_zones_of: LeafZonesOf | None) -> np.ndarray:
    if isinstance(node, And | Or):
        how, pages = (np.logical_and, True) if isinstance(node, And) else (np.logical_or, False)
        found = np.full(len(next(iter(zones.values())).maps), pages)
        for part in node.parts:
            how(found, _pages_may_match(part, zones, leaf_zones_of), out=found)
        return found
    if isinstance(node, Test):
        if node.leaf is None or leaf_zones_of is None:
            return np.full(len(next(iter(zones.values())).maps), True)
        return np.array([_test_may_match(node.leaf, zone) for zone in leaf_zones_of(node.leaf)], np.bool_)
    pages = zones[node.column_id]
    if not isinstance(node, Compare) or pages.numbers is None:
        return np.array([_leaf_may_match(node, zone) for zone in pages.maps], np.bool_)
    found = _compare_pages(node, pages.numbers)
    found[~pages.numbers.are_known] = True
    found[pages.has_nan & (node.matches_nan | ~pages.numbers.are_known)] = node.matches_nan
    return found & pages.has_cells


def _compare_pages(leaf: Compare, pages: NumberBounds) -> np.ndarray:
    """Return for each page with known bounds whether a number of it may satisfy a comparison."""
    assert not isinstance(leaf.cell, bytes), "a number"
    match leaf.op:
        case "=":
            return (pages.lows <= leaf.cell) & (pages.highs >= leaf.cell)
        case "<":
            return pages.lows < leaf.cell
        case "<=":
            return pages.lows <= leaf.cell
        case ">":
            return pages.highs > leaf.cell
        case ">=":
            return pages.highs >= leaf.cell
    return ~(pages.are_one & (pages.lows == leaf.cell))


def _leaf_may_match(leaf: Leaf, zone: ZoneMap) -> bool:
    cell_count = zone.row_count - zone.null_count
    if isinstance(leaf, NullTest):
        return zone.null_count > 0 if leaf.is_null else cell_count > 0
    if cell_count == 0:
        return False
    if zone.has_nan and _takes_nan(leaf):
        return True
    if zone.min is None:  # every cell is NaN; without one, nothing is known
        return not zone.has_nan
    if isinstance(leaf, Compare):
        return _compare_may_match(leaf, zone)
    if isinstance(leaf, OneOf):
        return _one_of_may_match(leaf, zone)
    return leaf.negated or _reaches(zone, leaf.prefix, prefix_end(leaf.prefix))


def _takes_nan(leaf: Compare | OneOf | LikeMatch) -> bool:
    return leaf.matches_nan if isinstance(leaf, Compare) else leaf.negated


def _compare_may_match(leaf: Compare, zone: ZoneMap) -> bool:
    low, high, cell = zone.min, zone.max, leaf.cell
    match leaf.op:
        case "=":
            return low <= cell and (high is None or cell <= high)  # pyright: ignore[reportOptionalOperand]
        case "<":
            return low < cell  # pyright: ignore[reportOptionalOperand]
        case "<=":
            return low <= cell  # pyright: ignore[reportOptionalOperand]
        case ">":
            return high is None or high > cell
        case ">=":
            return high is None or high >= cell
    return not (_holds_one_value(zone) and low == cell)


def _one_of_may_match(leaf: OneOf, zone: ZoneMap) -> bool:
    first = bisect_left(leaf.cells, zone.min)
    if leaf.negated:
        is_listed = first < len(leaf.cells) and leaf.cells[first] == zone.min
        return not (_holds_one_value(zone) and is_listed)
    return first < len(leaf.cells) and (zone.max is None or leaf.cells[first] <= zone.max)


def _holds_one_value(zone: ZoneMap) -> bool:
    """Whether all cells that are neither NULL nor NaN are equal to ``min``."""
    return zone.exact and zone.min == zone.max


def _reaches(zone: ZoneMap, low: bytes, end: bytes | None) -> bool:
    """Whether a cell of the zone may be in [low, end)."""
    assert isinstance(zone.min, bytes) and not isinstance(zone.max, int | float)
    return (zone.max is None or zone.max >= low) and (end is None or zone.min < end)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The range of keys that a filter can select: encoded keys from ``lower`` (inclusive; None: the first) to ``upper``
    (exclusive; None: the last)."""

    lower: bytes | None
    upper: bytes | None

    @property
    def is_empty(self) -> bool:
        """Whether the range has no keys."""
        return self.upper is not None and (self.lower or b"") >= self.upper

    def intersection(self, other: "KeyRange") -> "KeyRange":
        """Return the keys that are in both."""
        lower = max((end for end in (self.lower, other.lower) if end is not None), default=None)
        upper = min((end for end in (self.upper, other.upper) if end is not None), default=None)
        return KeyRange(lower, upper)


ALL_KEYS = KeyRange(None, None)
NO_KEYS = KeyRange(b"", b"")


def key_range(bound: BoundFilter, schema: TableSchema, encoder: KeyEncoder) -> KeyRange:
    """Return a range with the encoded keys of all rows that the filter can select.

    Leading key columns with a single value form a prefix; the first column with an interval, or without bounds, ends
    it. Intervals come from any mixture of AND and OR: AND intersects, OR takes the hull.
    """
    return columns_range(bound, schema.key, encoder)


def is_key_range(bound: BoundFilter, schema: TableSchema) -> bool:
    """Whether the filter selects exactly the rows with keys in its ``key_range``: it compares leading columns of the
    key, all but the last of them for equality."""
    parts = bound.root.parts if isinstance(bound.root, And) else (bound.root,)
    ops: dict[int, set[str]] = {}
    for part in parts:
        if not isinstance(part, Compare) or part.op == "<>":
            return False
        ops.setdefault(part.column_id, set()).add(part.op)
    leading = [column.id for column in schema.key[: len(ops)]]
    return ops.keys() == set(leading) and all("=" in ops[column_id] for column_id in leading[:-1])


def columns_range(bound: BoundFilter, columns: Sequence[ColumnSchema], encoder: KeyEncoder) -> KeyRange:
    """Return the range that a filter leaves of the encoding of any NOT NULL columns, as ``key_range`` does of the
    key."""
    prefix: list[Any] = []
    last = _Interval()
    for column in reversed(columns):  # reads every column: an empty interval in any of them leaves no keys
        if (interval := _interval(bound.root, column.id)) is None:
            return NO_KEYS
        prefix, last = ([interval.point, *prefix], last) if interval.point is not None else ([], interval)
    return cells_range(prefix, last.low, last.high, columns, encoder)


@dataclass(frozen=True, slots=True)
class _Interval:
    """Cells from ``low`` to ``high``, each None if unbounded.

    ``low`` is (cell, whether it is excluded), ``high`` is (cell, whether it is included): so tuples compare like ends.
    """

    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None

    @property
    def point(self) -> Cell | None:
        """The cell of an interval with a single one."""
        return self.low[0] if self.low and self.high and self.low[0] == self.high[0] else None

    @property
    def is_empty(self) -> bool:
        return _has_none(self.low, self.high)


def _has_none(low: tuple[Any, bool] | None, high: tuple[Any, bool] | None) -> bool:
    """Whether no cell is from ``low`` to ``high``."""
    if low is None or high is None:
        return False
    return low[0] > high[0] or (low[0] == high[0] and (low[1] or not high[1]))


def _interval(node: Node, column_id: int) -> _Interval | None:
    """Return the interval of a column's cells in the rows that ``node`` selects; None if it selects none."""
    if isinstance(node, And):
        return _intersection([_interval(part, column_id) for part in node.parts])
    if isinstance(node, Or):
        return _hull([_interval(part, column_id) for part in node.parts])
    if isinstance(node, Test) or node.column_id != column_id:
        return _Interval()
    if isinstance(node, Compare):
        return _of_compare(node)
    if isinstance(node, OneOf) and not node.negated:
        return _Interval((node.cells[0], False), (node.cells[-1], True))
    if isinstance(node, LikeMatch) and not node.negated and (end := prefix_end(node.prefix)):
        return _Interval((node.prefix, False), (end, False))
    return _Interval()


def _of_compare(leaf: Compare) -> _Interval:
    match leaf.op:
        case "=":
            return _Interval((leaf.cell, False), (leaf.cell, True))
        case "<" | "<=":
            return _Interval(high=(leaf.cell, leaf.op == "<="))
        case ">" | ">=":
            return _Interval(low=(leaf.cell, leaf.op == ">"))
    return _Interval()


def _intersection(intervals: list[_Interval | None]) -> _Interval | None:
    there = [interval for interval in intervals if interval]
    low = max((interval.low for interval in there if interval.low), default=None)
    high = min((interval.high for interval in there if interval.high), default=None)
    both = _Interval(low, high)
    return None if both.is_empty or len(there) < len(intervals) else both


def _hull(intervals: list[_Interval | None]) -> _Interval | None:
    there = [interval for interval in intervals if interval]
    if not there:
        return None
    lows = [interval.low for interval in there if interval.low]
    highs = [interval.high for interval in there if interval.high]
    return _Interval(
        min(lows) if len(lows) == len(there) else None,
        max(highs) if len(highs) == len(there) else None,
    )


def cells_range(
    prefix: list[Any],
    low: tuple[Any, bool] | None,
    high: tuple[Any, bool] | None,
    columns: Sequence[ColumnSchema],
    encoder: KeyEncoder,
) -> KeyRange:
    """Return the range of keys that begin with the cells of ``prefix``, followed by a cell from ``low`` to ``high``:
    each is None, or a cell and whether it is excluded, or included."""
    if _has_none(low, high):
        return NO_KEYS

    def end(cells: list[Any], is_past: bool) -> bytes | None:
        """The first key that begins with ``cells``, or the first past all of them; None if there is none."""
        encoded = encoder.encode_bound(tuple(cells))
        if not is_past:
            return encoded
        is_raw = len(cells) == len(columns) and columns[-1].logical.is_variable
        # Only the last component has no end of its own: the key that follows b"ab" is b"ab\0", not b"ac".
        return encoded + b"\0" if is_raw else prefix_end(encoded)

    lower = upper = None
    if prefix or low:
        lower = end([*prefix, low[0]], low[1]) if low else end(prefix, False)
        if lower is None:  # above the greatest key
            return NO_KEYS
    if prefix or high:
        upper = end([*prefix, high[0]], high[1]) if high else end(prefix, True)
    return KeyRange(lower, upper)

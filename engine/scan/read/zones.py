"""The verdict of zone maps on a rowset's chunks before they are read: whether a row may match, and whether all do.

Most chunks are a page of each column of the filter: then each comparison is made for all these pages at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat

import numpy as np

from ....schemas.table.column import ColumnSchema
from ...cfile.zone_map import PageZones, ZoneMap
from ...codecs.codec import PAGE_ROWS
from ...filter.bound import BoundFilter, StructLeaf
from ...filter.prune import may_match, pages_may_match
from ...rowset.diskrowset import DiskRowSet
from ...rowset.native.absent import absent_leaf_zone_map, absent_zone_map
from ...rowset.rowset import RowSet

Verdict = tuple[bool, bool]
"""Whether a row of a chunk may match by the base cells, and whether all rows do."""


def verdicts(
    rowset: RowSet,
    ranges: Sequence[tuple[int, int]],
    where: BoundFilter | None,
    inverse: BoundFilter | None,
    columns: Sequence[ColumnSchema],
) -> Iterable[Verdict]:
    """Return the verdict of a filter of these columns on ranges of rows that a scan may read, in order, none of them
    empty.

    ``inverse`` is NOT ``where``; without it no verdict is that all rows match.
    """
    if where is None:
        return repeat((True, False), len(ranges))
    zones = _zones_of_pages(rowset, columns)
    if not zones or any((last - 1) // PAGE_ROWS != first // PAGE_ROWS for first, last in ranges):
        return (_on_rows(rowset, rows, where, inverse, columns) for rows in ranges)
    first_page, last_page = ranges[0][0] // PAGE_ROWS, (ranges[-1][1] - 1) // PAGE_ROWS
    pages = slice(first_page, last_page + 1)
    asked = {column_id: of_column.part(pages) for column_id, of_column in zones.items()}

    def leaf_zones_of(leaf: StructLeaf) -> list[ZoneMap | None]:
        return _leaf_zones(rowset, leaf, columns)[pages]

    on_pages = _on_pages(asked, leaf_zones_of, where, inverse)
    return (on_pages[first // PAGE_ROWS - first_page] for first, _ in ranges)


def _zones_of_pages(rowset: RowSet, columns: Sequence[ColumnSchema]) -> dict[int, PageZones] | None:
    """Return the zone maps of columns, by their ids, if all have pages of PAGE_ROWS."""
    if not isinstance(rowset, DiskRowSet):
        return None
    zones: dict[int, PageZones] = {}
    for column in columns:
        stream = rowset.base_stream(column.id) if rowset.has_base(column.id) else None
        if stream is None or stream.page_rows != PAGE_ROWS or not stream.zone_maps:
            return None
        zones[column.id] = stream.page_zones
    return zones


def _on_pages(
    zones: dict[int, PageZones],
    leaf_zones_of: Callable[[StructLeaf], list[ZoneMap | None]],
    where: BoundFilter,
    inverse: BoundFilter | None,
) -> list[Verdict]:
    """Return the verdict on each page."""
    some = pages_may_match(where, zones, leaf_zones_of)
    every = np.zeros_like(some)
    if inverse is not None:
        every = some & ~pages_may_match(inverse, zones, leaf_zones_of)
        for column in zones.values():
            every &= column.null_counts == 0
        for leaf in (*where.struct_leaves, *inverse.struct_leaves) if every.any() else ():
            every &= np.array([zone is not None and not zone.null_count for zone in leaf_zones_of(leaf)], np.bool_)
    return list(zip(some.tolist(), every.tolist(), strict=True))


def _on_rows(
    rowset: RowSet,
    rows: tuple[int, int],
    where: BoundFilter,
    inverse: BoundFilter | None,
    columns: Sequence[ColumnSchema],
) -> Verdict:
    """Return the verdict on any range of rows."""
    first, last = rows
    known: dict[int, ZoneMap | None] = {}

    def zone_map_of(column_id: int) -> ZoneMap | None:
        if column_id not in known:
            (column,) = (column for column in columns if column.id == column_id)
            known[column_id] = _zone_map(rowset, column, first, last)
        return known[column_id]

    def leaf_zone_of(leaf: StructLeaf) -> ZoneMap | None:
        return _leaf_zone(rowset, leaf, columns, first, last)

    if not may_match(where, zone_map_of, last - first, leaf_zone_of):
        return False, False
    if inverse is None or may_match(inverse, zone_map_of, last - first, leaf_zone_of):
        return True, False
    zones = [zone_map_of(column.id) for column in columns]
    zones += [leaf_zone_of(leaf) for leaf in (*where.struct_leaves, *inverse.struct_leaves)]
    return True, all(zone is not None and not zone.null_count for zone in zones)


def _leaf_zones(rowset: RowSet, leaf: StructLeaf, columns: Sequence[ColumnSchema]) -> list[ZoneMap | None]:
    """Return the bounds of a leaf in each page of its column, which has base cells; None where they are unknown."""
    assert isinstance(rowset, DiskRowSet)
    (column,) = (column for column in columns if column.id == leaf.column_id)
    stream = rowset.base_stream(column.id)
    return stream.leaf_zone_maps(column.type, leaf.path) or [None] * stream.page_count


def _leaf_zone(
    rowset: RowSet, leaf: StructLeaf, columns: Sequence[ColumnSchema], first: int, last: int
) -> ZoneMap | None:
    """Return the bounds of a leaf in the base cells of rows [first, last); None if unknown."""
    if not isinstance(rowset, DiskRowSet):
        return None
    (column,) = (column for column in columns if column.id == leaf.column_id)
    if not rowset.has_base(column.id):
        return absent_leaf_zone_map(column, leaf.path, last - first)
    stream = rowset.base_stream(column.id)
    zones = _leaf_zones(rowset, leaf, columns)[stream.page_of(first) : stream.page_of(last - 1) + 1]
    return None if None in zones else joined([zone for zone in zones if zone])


def _zone_map(rowset: RowSet, column: ColumnSchema, first: int, last: int) -> ZoneMap | None:
    """Return the bounds of the base cells of rows [first, last); None if unknown."""
    if isinstance(rowset, DiskRowSet) and not rowset.has_base(column.id):
        return absent_zone_map(column, last - first)
    return joined(rowset.zone_maps(column.id, first, last))


def joined(zones: Sequence[ZoneMap]) -> ZoneMap | None:
    """Return the zone maps of all pages that a scan may read as one; None if there are none."""
    if len(zones) < 2:
        return zones[0] if zones else None
    with_values = [zone for zone in zones if zone.min is not None]
    unbounded = any(zone.max is None for zone in with_values)
    lows = [zone.min for zone in with_values if zone.min is not None]
    highs = [zone.max for zone in with_values if zone.max is not None]
    return ZoneMap(
        min(lows, default=None),
        None if unbounded else max(highs, default=None),
        sum(zone.null_count for zone in zones),
        sum(zone.row_count for zone in zones),
        exact=all(zone.exact for zone in zones),
        has_nan=any(zone.has_nan for zone in zones),
    )

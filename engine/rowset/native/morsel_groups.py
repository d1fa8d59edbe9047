"""Folds consecutive rows of a base file with their deltas into the states of their groups, in one kernel call
(`kernels.morsel_groups`), without decoding more than a mini-block at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....schemas.table.column import ColumnSchema
from ...aggregate.slot_pool import SlotPool
from ...aggregate.slots import Key, NoSlotsError, has_slots
from ...cfile.zone_map import ZoneMap
from ...filter.bound import BoundFilter
from ...filter.steps import NoStepsError, Steps, has_steps
from ...kernels.reads import morsel_groups as kernels
from ...kernels.reads.windows import COLUMNS_MAX
from ...vectors.memory.memory import Scratch, address_or_0
from ...vectors.physical import PhysicalType, physical_of
from .morsel_column import CannotReadError, ColumnBase, MorselColumn, MorselTables

_SPAN_MAX = 4096
"""The most integers, from the least to the greatest, that are numbers of groups without a search."""


_SCRATCH = Scratch(kernels.SCRATCH_BYTES)


def fold_rows(
    pool: SlotPool,
    where: BoundFilter | None,
    columns: Sequence[ColumnBase],
    zones_of: Callable[[int], Sequence[ZoneMap]],
    first: int,
    last: int,
    among: np.ndarray | None,
) -> int | None:
    """Fold the rows [first, last) of a morsel, at least one, that match a filter and are True in ``among`` (None: all)
    into slots of a pool, by a kernel; return how many they are, or None if they have to be folded over vectors.

    ``columns`` are those of the plan, then what else the filter reads; ``zones_of`` gives the zone maps of the pages
    that hold a column's base.
    """
    plan = pool.plan
    if len(columns) > COLUMNS_MAX or not has_slots(plan) or not (where is None or has_steps(where)):
        return None
    numbers = {column.id: number for number, (column, _, _) in enumerate(columns)}
    try:
        planned = [MorselColumn(base, first, last, in_windows=True) for base in columns]
        keys = [_key(column, numbers[column.id], planned[numbers[column.id]], zones_of) for column in plan.group_by]
        steps = where and Steps(where, numbers, lambda column_id: planned[numbers[column_id]].dictionary, last - first)
        without_null = {column.id for column, one in zip(plan.columns, planned, strict=False) if one.valid is None}
        slots = pool.take(keys, numbers, without_null)
    except (CannotReadError, NoSlotsError, NoStepsError):
        return None
    tables = MorselTables(planned)
    saved = slots.saved()
    found = kernels.fold_morsel(
        *(steps.addresses if steps else (0, 0)),
        *slots.addresses,
        len(plan.columns),
        *tables.addresses,
        first,
        last,
        address_or_0(among),
        _SCRATCH.address,
    )
    if found < 0:
        slots.restore(saved)
    else:
        slots.row_count += int(found)
    pool.give(slots)
    return None if found < 0 else int(found)


def _key(column: ColumnSchema, number: int, planned: MorselColumn, zones_of: Callable[[int], Sequence[ZoneMap]]) -> Key:
    kind, has_null = column.logical.arrow, planned.valid is not None
    if planned.dictionary is not None:
        return Key(number, kind, has_null, planned.dictionary)
    physical = physical_of(kind)
    if physical is PhysicalType.INT128:
        raise NoSlotsError
    low, high = (0, 1) if physical is PhysicalType.BOOL else _integer_range(zones_of(column.id))
    return Key(number, kind, has_null, None, low, high, physical.dtype)


def _integer_range(zones: Sequence[ZoneMap]) -> tuple[int, int]:
    """Return the least and the greatest integer of some pages. Raises NoSlotsError if they are unknown or far apart."""
    ends = [(zone.min, zone.max) for zone in zones if zone.null_count < zone.row_count]
    integers = [(low, high) for low, high in ends if isinstance(low, int) and isinstance(high, int)]
    if not integers or len(integers) < len(ends):
        raise NoSlotsError
    low, high = min(low for low, _ in integers), max(high for _, high in integers)
    if high - low >= _SPAN_MAX:
        raise NoSlotsError
    return low, high

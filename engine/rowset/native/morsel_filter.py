"""Evaluates a part of a filter on consecutive rows of a base file with their deltas, in one kernel call
(`kernels.morsel_filter`), without decoding more than a mini-block at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...filter.bound import BoundFilter
from ...filter.steps import NoStepsError, Steps
from ...kernels.reads import morsel_filter as kernels
from ...kernels.reads.windows import COLUMNS_MAX
from ...vectors.memory.memory import Scratch, address_of, address_or_0, allocate
from .morsel_column import CannotReadError, ColumnBase, MorselColumn, MorselTables


class Chosen(NamedTuple):
    """Rows of a morsel that a filter left: one bool a row, and how many are True."""

    mask: np.ndarray
    count: int


_SCRATCH = Scratch(kernels.SCRATCH_BYTES)


def choose_rows(
    bound: BoundFilter, columns: Sequence[ColumnBase], first: int, last: int, among: np.ndarray | None
) -> Chosen | None:
    """Evaluate a filter by a kernel: return which of the rows [first, last), at least one, match it, which `has_steps`,
    of these columns; None if it has to be evaluated over vectors. Only rows that are True in ``among`` (None: all) can
    match."""
    if len(columns) > COLUMNS_MAX:
        return None
    places = {column.id: number for number, (column, _, _) in enumerate(columns)}
    try:
        planned = [MorselColumn(base, first, last, in_windows=True) for base in columns]
        steps = Steps(bound, places, lambda column_id: planned[places[column_id]].dictionary, last - first)
    except (CannotReadError, NoStepsError):
        return None
    tables = MorselTables(planned)
    mask = allocate(last - first, np.bool_)
    count = kernels.choose_rows(
        *steps.addresses, *tables.addresses, first, last, address_or_0(among), address_of(mask), _SCRATCH.address
    )
    return None if count < 0 else Chosen(mask, int(count))

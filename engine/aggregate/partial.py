"""Partial answers: the groups of some rows with their states, as an Arrow table that `merge` takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..vectors.vector import Vector
from .groups import group_rows
from .plan import ROWS, AggregatePlan
from .states import State, StateKind


def aggregate_rows(plan: AggregatePlan, cells: Callable[[int], Vector], row_count: int) -> pa.Table:
    """Aggregate ``row_count`` rows to a partial answer; ``cells`` gives those of a column by its id."""
    keys = [(cells(column.id), column.logical.arrow) for column in plan.group_by]
    groups = group_rows(keys, row_count)
    states: dict[State, list[pa.Array]] = {}
    for state in plan.states:
        vector = None if state.column is None else cells(state.column.id)
        is_rows = state.kind is StateKind.VALID and vector is not None and vector.valid is None
        states[state] = states[ROWS] if is_rows else state.fold(groups, vector)
    if not plan.group_by:
        return pa.Table.from_arrays([part for parts in states.values() for part in parts], names=plan.names)
    (counts,) = states[ROWS]
    present = np.flatnonzero(counts.to_numpy())
    chosen = None if len(present) == groups.count else pa.array(present)
    parts = [part if chosen is None else part.take(chosen) for parts in states.values() for part in parts]
    return pa.Table.from_arrays([*groups.keys(present), *parts], names=plan.names)


def partial_of(plan: AggregatePlan, parts: dict[State, list[pa.Array]]) -> pa.Table:
    """Return an aggregate's partial answer for the single group of all rows, from states known without reading."""
    return pa.Table.from_arrays([part for state in plan.states for part in parts[state]], names=plan.names)

"""The memory of the states of a morsel's groups, into which a kernel folds cells (`kernels.morsel_groups`)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..kernels.reads import morsel_groups as kernels
from ..vectors.arrow import to_arrow
from ..vectors.memory.memory import address_of
from ..vectors.physical import PhysicalType
from ..vectors.vector import BytesVector, FixedVector
from .groups import DENSE, Coded, Groups
from .plan import ROWS, AggregatePlan
from .states import (
    FLOATS,
    GREATEST,
    LEAST,
    State,
    StateKind,
    float_bounds,
    halves_of,
    integer_bounds,
    tables_for,
)

_LONG = np.dtype(np.int64)
_REAL = np.dtype(np.float64)


class NoSlotsError(Exception):
    """The states of an aggregate cannot be in slots for the kernel: they have to be folded over vectors."""


@dataclass(frozen=True, slots=True)
class Key:
    """A column to group by, as numbers: of the codes of ``values``, or of the integers from ``low`` to ``high``."""

    column_number: int
    kind: pa.DataType
    has_null: bool
    values: BytesVector | None
    low: int = 0
    high: int = -1
    dtype: np.dtype = _LONG

    @property
    def count(self) -> int:
        """How many numbers there are, without NULL's."""
        return self.high - self.low + 1 if self.values is None else len(self.values)

    def covers(self, other: Key) -> bool:
        """Whether all cells with numbers in ``other``, of the same column, have numbers here."""
        is_same = self.has_null == other.has_null and self.values is other.values
        return is_same and self.low <= other.low and other.high <= self.high

    @property
    def fields(self) -> tuple[int, int, int, int]:
        """The column as the kernel takes it; the number of NULL is the last."""
        return self.column_number, self.count + self.has_null, self.low, self.count

    @property
    def coded(self) -> Coded:
        """The cells that the numbers mean."""
        cells = self.values
        if cells is None:
            cells = FixedVector(np.arange(self.low, self.high + 1, dtype=np.int64).astype(self.dtype))
        values = to_arrow(cells, self.kind)
        if self.has_null:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        return Coded(_NO_CODES, values)


_NO_CODES = np.empty(0, np.int32)


def has_slots(plan: AggregatePlan) -> bool:
    """Whether the kernel has all states of an aggregate, as far as that does not depend on its columns' pages."""
    try:
        return all(_memory(state, bool(plan.group_by)) for state in plan.states)
    except NoSlotsError:
        return False


class StateSlots:
    """The states of an aggregate for the groups of some key columns."""

    def __init__(
        self, plan: AggregatePlan, keys: list[Key], numbers: Mapping[int, int], without_null: Collection[int]
    ) -> None:
        """``numbers`` has the number of each column in the kernel's call, by its id, ``without_null`` the ids of those
        without NULL; the plan `has_slots`.

        Raises NoSlotsError if the groups are many."""
        self._plan, self._keys, self._without_null = plan, keys, without_null
        self.row_count = 0
        """How many rows were folded."""
        self.group_count = _group_count(keys)
        if not 0 < self.group_count <= DENSE:
            raise NoSlotsError
        self.tables = tables_for(self.group_count)
        self._slots: dict[State, _Slot] = {}
        for state in plan.states:
            counted = _counted(state, without_null)
            if counted not in self._slots:
                self._slots[counted] = _Slot(counted, self.group_count, self.tables, bool(keys))
            self._slots[state] = self._slots[counted]
        self._distinct = list(dict.fromkeys(self._slots.values()))
        self._states = np.array([slot.fields(numbers) for slot in self._distinct], np.int64)
        self._key_fields = np.array([key.fields for key in keys], np.int64)
        self.size_bytes = sum(result.nbytes for slot in self._distinct for result in slot.results)
        """The memory of the states."""

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """The states and how many, the key columns and how many, the number of groups, and of their tables."""
        states, keys = self._states, self._key_fields
        return address_of(states), len(states), address_of(keys), len(keys), self.group_count, self.tables

    def have(self, keys: list[Key], without_null: Collection[int]) -> bool:
        """Whether these slots do for others of the plan: they have their groups, and at most as many besides."""
        is_same = self._without_null == without_null
        is_enough = is_same and all(mine.covers(key) for mine, key in zip(self._keys, keys, strict=True))
        return is_enough and self.group_count <= 2 * _group_count(keys)

    def saved(self) -> list[list[np.ndarray]]:
        """Return a copy of the states for `restore`."""
        return [[result.copy() for result in slot.results] for slot in self._distinct]

    def restore(self, saved: list[list[np.ndarray]]) -> None:
        """Bring back what `saved` returned, after rows could not be folded."""
        for slot, states in zip(self._distinct, saved, strict=True):
            for result, before in zip(slot.results, states, strict=True):
                result[...] = before

    def partial(self) -> pa.Table:
        """Return the partial answer."""
        parts = [part for state in self._plan.states for part in self._slots[state].arrays()]
        if not self._keys:
            return pa.Table.from_arrays(parts, names=self._plan.names)
        present = np.flatnonzero(self._slots[ROWS].arrays()[0].to_numpy())
        groups = Groups(_NO_CODES, self.group_count, tuple(key.coded for key in self._keys), None)
        chosen = [part.take(pa.array(present)) for part in parts]
        return pa.Table.from_arrays([*groups.keys(present), *chosen], names=self._plan.names)


def _group_count(keys: list[Key]) -> int:
    return math.prod(key.count + key.has_null for key in keys)


def _counted(state: State, without_null: Collection[int]) -> State:
    """Return the state that has the same results: cells of a column without NULL are as many as rows."""
    assert state.column is not None or state is ROWS
    is_rows = state.kind is StateKind.VALID and state.column is not None and state.column.id in without_null
    return ROWS if is_rows else state


class _Slot:
    """The memory of one state."""

    def __init__(self, state: State, group_count: int, tables: int, has_groups: bool) -> None:
        self.state = state
        self.fold, results = _memory(state, has_groups)
        shape = (tables, group_count) if self.fold in _IN_TABLES else (1, group_count)
        self.results = [np.full(shape, start, dtype) for start, dtype in results]
        """What the kernel adds to."""

    def fields(self, numbers: Mapping[int, int]) -> tuple[int, ...]:
        """The state as the kernel takes it."""
        column = self.state.column
        places = [address_of(result) for result in self.results]
        number = -1 if column is None else numbers[column.id]
        return (self.fold, number, *places, *[0] * (3 - len(places)))

    def arrays(self) -> list[pa.Array]:
        """Return the columns of the state."""
        with np.errstate(invalid="ignore"):  # infinities of both signs
            results = [result.sum(axis=0) if self.fold in _IN_TABLES else result[0] for result in self.results]
        if self.fold == kernels.ADD_WORDS:
            return halves_of(results[0])
        if self.state.kind is not StateKind.BOUNDS:
            return [pa.array(result) for result in results]
        assert self.state.column is not None
        kind = self.state.bound_type
        if self.fold == kernels.BOUND_FLOATS:
            lows, highs, counts = results
            return float_bounds(lows, highs, counts, kind)
        lows, highs = results
        return integer_bounds(lows, highs, self.state.physical.dtype, kind)


_IN_TABLES = {kernels.COUNT, kernels.ADD_WORDS, kernels.ADD_FLOATS}
_ZERO = 0, _LONG


def _memory(state: State, has_groups: bool) -> tuple[int, list[tuple[float, np.dtype]]]:
    """Return what the kernel does for a state, and what its results are before."""
    if state.kind in (StateKind.ROWS, StateKind.VALID):
        return kernels.COUNT, [_ZERO]
    physical, is_total = state.physical, state.kind is StateKind.TOTAL
    if physical in (PhysicalType.INT128, PhysicalType.BYTES):
        raise NoSlotsError
    if physical in FLOATS:
        if is_total:
            return kernels.ADD_FLOATS, [(0.0, _REAL)]
        return kernels.BOUND_FLOATS, [(np.inf, _REAL), (-np.inf, _REAL), _ZERO]
    if not is_total:
        return kernels.BOUND_INTEGERS, [(GREATEST, _LONG), (LEAST, _LONG)]
    if physical is PhysicalType.INT32 and has_groups:
        return kernels.ADD_WORDS, [_ZERO]
    return kernels.ADD_INTEGERS, [_ZERO, _ZERO]

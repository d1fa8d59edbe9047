"""Merges partial answers, and computes the measures from the states."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.budget import BudgetShare
from ...schemas.rows.aggregate import AggregateFunction
from ..vectors.arrow import to_arrow
from ..vectors.physical import INT128_DTYPE, PhysicalType
from ..vectors.vector import FixedVector
from .plan import AggregatePlan, Measure
from .states import State, StateKind

_MERGE_ROWS = 1 << 18
"""The most groups of partial answers to keep before a merge."""
_WAITING_SHARE = 8
"""A merge is due when partial answers have this part of the memory that they may have, as a divisor."""

_HALF = (1 << 32) - 1


class Merger:
    """Merges the partial answers of an aggregate. Memory depends on the number of groups, which is limited."""

    def __init__(self, plan: AggregatePlan, bytes_max: int, memory: BudgetShare, may_repeat: bool = False) -> None:
        """``memory`` is taken until its owner gives it back. ``may_repeat``: a group may be in several batches of the
        answer, for others to combine."""
        self._plan = plan
        self._held = memory
        self._held_before = memory.taken
        self._bytes_max = bytes_max
        self._may_repeat = may_repeat
        self._merged: pa.Table | None = None
        self._merged_bytes = 0
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0

    def add(self, partial: pa.Table) -> pa.RecordBatch | None:
        """Add a partial answer; return a batch of the answer if groups may repeat and are too many to keep.

        Raises:
            InvalidArgumentError: there are more groups than memory allows.
            UnavailableError: others hold too much.
        """
        size = partial.get_total_buffer_size()
        self._take(size)
        self._waiting.append(_carried(partial, self._plan))
        self._waiting_rows += partial.num_rows
        self._waiting_bytes += size
        merged_rows = self._merged.num_rows if self._merged else 0
        is_due = self._waiting_bytes > max(self._held.most // _WAITING_SHARE, self._merged_bytes)
        if is_due or self._waiting_rows > max(_MERGE_ROWS, merged_rows):
            rows = self._waiting_rows + merged_rows
            merged = self._merge()
            gains_little = is_due or 2 * merged.num_rows > rows  # nearly each row is a group
            if self._may_repeat and (gains_little or self._merged_bytes > self._bytes_max):
                self._merged, self._merged_bytes = None, 0
                self._held.keep(self._held_before)
                return self._answer(merged)
        return None

    def finish(self) -> pa.RecordBatch:
        """Return the answer, or the rest of it. Without a key it has one row, even for no rows. Raises as ``add``."""
        merged = self._merge() if self._waiting else self._merged
        return _of_nothing(self._plan) if merged is None else self._answer(merged)

    def _answer(self, merged: pa.Table) -> pa.RecordBatch:
        states = {
            state: [merged[name].combine_chunks() for name in self._plan.part_names(state)]
            for state in self._plan.states
        }
        keys = [merged[self._plan.key_name(place)].combine_chunks() for place in range(len(self._plan.group_by))]
        measures = [_measure(measure, states) for measure in self._plan.measures]
        return pa.RecordBatch.from_arrays([*keys, *measures], schema=self._plan.schema)

    def _merge(self) -> pa.Table:
        plan = self._plan
        self._take(self._merged_bytes + self._waiting_bytes)  # while they are grouped
        whole = pa.concat_tables([*([self._merged] if self._merged else []), *self._waiting])
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        functions = [
            (name, how) for state in plan.states for name, how in zip(plan.part_names(state), _hows(state), strict=True)
        ]
        keys = plan.names[: len(plan.group_by)]
        if keys:
            merged = whole.group_by(keys, use_threads=False).aggregate(functions)
            merged = merged.select([*keys, *(f"{name}_{how}" for name, how in functions)]).rename_columns(plan.names)
        else:
            cells = [pc.call_function(how, [whole[name]]) for name, how in functions]
            merged = pa.Table.from_arrays([pa.repeat(cell, 1) for cell in cells], names=plan.names)
        self._merged = merged = _carried(merged, plan)
        self._merged_bytes = merged.nbytes
        self._held.keep(self._held_before + self._merged_bytes)
        if self._merged_bytes > self._bytes_max and not self._may_repeat:
            raise _too_many(merged.num_rows, self._merged_bytes, self._bytes_max, "limits.aggregate_bytes")
        return merged

    def _take(self, size: int) -> None:
        """Take memory. Raises InvalidArgumentError: so much is never there; UnavailableError: others have it."""
        if not self._held.taken or self._held.fits(size):
            self._held.take(size)
        elif not self._may_repeat:  # else the groups are about to go
            rows = self._waiting_rows + (self._merged.num_rows if self._merged else 0)
            raise _too_many(rows, self._held.taken + size, self._held.most, "reads_bytes")


def _too_many(groups: int, size: int, most: int, limit: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the aggregate has {groups:,} groups so far, which use {size:,} bytes of the {most:,} allowed ({limit}); "
        "group by fewer columns, or scan the rows instead"
    )


def _carried(partial: pa.Table, plan: AggregatePlan) -> pa.Table:
    """Return a partial answer in which lower halves of totals have 32 bits again: added up further, they would
    overflow after some billions of rows."""
    for state in plan.states:
        names = plan.part_names(state)
        if state.kind is not StateKind.TOTAL or len(names) == 1:
            continue
        for low_name, high_name in zip(names[::2], names[1::2], strict=True):
            low, high = partial[low_name].to_numpy(), partial[high_name].to_numpy()
            if len(low) and low.max() > _HALF:
                for name, half in ((low_name, low & _HALF), (high_name, high + (low >> 32))):
                    partial = partial.set_column(partial.schema.get_field_index(name), name, pa.array(half))
    return partial


def _hows(state: State) -> list[str]:
    return [how for _, how in state.parts]


def _of_nothing(plan: AggregatePlan) -> pa.RecordBatch:
    if plan.group_by:
        return pa.RecordBatch.from_pylist([], schema=plan.schema)
    row = {
        field.name: 0 if measure.function is AggregateFunction.COUNT else None
        for field, measure in zip(plan.schema, plan.measures, strict=True)
    }
    return pa.RecordBatch.from_pylist([row], schema=plan.schema)


def _measure(measure: Measure, states: dict[State, list[pa.Array]]) -> pa.Array:
    parts, *rest = [states[state] for state in measure.states]
    if measure.function is AggregateFunction.COUNT:
        return parts[0]
    valid = rest[0][0].to_numpy()
    state = measure.states[0]
    if state.kind is StateKind.BOUNDS:
        assert state.column is not None
        return _bound(measure, parts, valid).cast(state.column.logical.arrow)
    if measure.function is AggregateFunction.AVG:
        return _average(state, parts, valid)
    return _sum(state, parts, valid)


def _bound(measure: Measure, parts: list[pa.Array], valid: np.ndarray) -> pa.Array:
    """For floats, NaN if every cell is NaN; else NaNs are ignored."""
    bound = parts[0] if measure.function is AggregateFunction.MIN else parts[1]
    if len(parts) == 2:
        return bound
    is_nan = pa.array((parts[2].to_numpy() == 0) & (valid > 0))
    return pc.call_function("if_else", [is_nan, pa.scalar(float("nan"), bound.type), bound])


def _average(state: State, parts: list[pa.Array], valid: np.ndarray) -> pa.Array:
    assert state.column is not None
    numbers = [part.to_numpy() for part in parts]
    total = numbers[0] if len(numbers) == 1 else _as_floats(numbers)
    mean = np.divide(total, valid * 10.0**state.column.logical.scale, where=valid > 0, out=np.zeros(len(valid)))
    return pa.array(mean, mask=valid == 0)


def _sum(state: State, parts: list[pa.Array], valid: np.ndarray) -> pa.Array:
    assert state.column is not None
    kind = state.column.logical
    numbers = [part.to_numpy() for part in parts]
    if len(numbers) == 1:
        return pa.array(numbers[0], mask=valid == 0)
    if kind.is_integer and not kind.sum_is_wide:
        return pa.array(numbers[0] + (numbers[1] << 32), mask=valid == 0)
    wide = _wide(*numbers)
    if state.physical is PhysicalType.INT128:
        _check_digits(numbers, wide, state.column.name)
    return to_arrow(FixedVector(wide, valid > 0), pa.decimal128(38, kind.scale))


def _as_floats(numbers: list[np.ndarray]) -> np.ndarray:
    """Return sums of integers as the nearest floats, or the next to them."""
    about, wide = _about(numbers), _wide(*numbers)
    # A small negative sum has limbs that are nearly 2 to the 32, which floats would round up: so take its magnitude.
    is_negative = wide["hi"] < 0
    low = np.where(is_negative, ~wide["lo"] + np.uint64(1), wide["lo"])
    high = np.where(is_negative, ~wide["hi"] + (wide["lo"] == 0), wide["hi"])
    exact = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    return np.where(np.abs(about) < _NEARLY_128_BITS, np.where(is_negative, -exact, exact), about)


_NEARLY_128_BITS = 2.0**126.9


def _about(numbers: list[np.ndarray]) -> np.ndarray:
    """Return sums of integers as floats that are near those of the largest limbs."""
    return np.sum([number.astype(np.float64) * 2.0 ** (32 * place) for place, number in enumerate(numbers)], axis=0)


def _wide(low: np.ndarray, high: np.ndarray, *upper: np.ndarray) -> np.ndarray:
    """Return low + high * 2**32 + (upper[0] + upper[1] * 2**32) * 2**64 in 128 bits. ``low`` is not negative."""
    wide = np.empty(len(low), INT128_DTYPE)
    bottom = high.view(np.uint64) << np.uint64(32)
    wide["lo"] = bottom + low.view(np.uint64)
    wide["hi"] = (high >> 32) + (wide["lo"] < bottom)
    if upper:
        wide["hi"] += upper[0] + (upper[1] << 32)
    return wide


def _check_digits(numbers: list[np.ndarray], wide: np.ndarray, name: str) -> None:
    """Reject sums of more than 38 digits: by their size if they may not even fit in ``wide``, else exactly."""
    if ((np.abs(_about(numbers)) >= _NEARLY_128_BITS) | _is_outside(wide, 10**38)).any():
        raise InvalidArgumentError(f"the sum of column {name!r} has more than 38 digits; ask for its avg")


def _is_outside(wide: np.ndarray, bound: int) -> np.ndarray:
    """Return which numbers are not between ``-bound`` and ``bound``, both excluded."""
    high, low = wide["hi"], wide["lo"]
    ends = [(end >> 64, np.uint64(end & (1 << 64) - 1)) for end in (1 - bound, bound - 1)]
    (least_high, least_low), (most_high, most_low) = ends
    is_below = (high < least_high) | ((high == least_high) & (low < least_low))
    return is_below | (high > most_high) | ((high == most_high) & (low > most_low))

"""An aggregate bound to a table: its states, and how the measures follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...schemas.rows.aggregate import ALL_ROWS, AggregateFunction, aggregate_schema
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from .states import State, StateKind

ROWS = State(StateKind.ROWS)


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of an aggregate: a computed column of its answer."""

    function: AggregateFunction
    column: ColumnSchema | None

    @property
    def states(self) -> tuple[State, ...]:
        """The states that it is computed from."""
        if self.column is None:
            return (ROWS,)
        valid = State(StateKind.VALID, self.column) if self.column.nullable else ROWS
        match self.function:
            case AggregateFunction.COUNT:
                return (valid,)
            case AggregateFunction.MIN | AggregateFunction.MAX:
                return (State(StateKind.BOUNDS, self.column), valid)
        return (State(StateKind.TOTAL, self.column), valid)


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan:
    """An aggregate bound to a table: what a scan computes instead of rows."""

    group_by: tuple[ColumnSchema, ...]
    measures: tuple[Measure, ...]
    states: tuple[State, ...]
    """Distinct; the rows of a group are always counted."""
    schema: pa.Schema
    """Arrow schema of the answer."""

    @classmethod
    def of(cls, measures: Mapping[str, tuple[str, str]], group_by: Sequence[str], table: TableSchema) -> AggregatePlan:
        """Bind an aggregate.

        Raises:
            NotFoundError, InvalidArgumentError: see ``aggregate_schema``.
        """
        schema = aggregate_schema(table.arrow, measures, group_by)
        bound = tuple(
            Measure(AggregateFunction(function), None if column == ALL_ROWS else table.column(column))
            for column, function in measures.values()
        )
        states = dict.fromkeys([ROWS, *(state for measure in bound for state in measure.states)])
        return cls(tuple(table.column(name) for name in group_by), bound, tuple(states), schema)

    @property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """The columns that are read, each once."""
        measured = [state.column for state in self.states if state.column]
        return tuple({column.id: column for column in (*self.group_by, *measured)}.values())

    def key_name(self, place: int) -> str:
        """Return the name in partial answers of the key column at ``place``."""
        return f"key{place}"

    def part_names(self, state: State) -> list[str]:
        """Return the names in partial answers of a state's columns."""
        place = self.states.index(state)
        return [f"state{place}_{name}" for name, _ in state.parts]

    @property
    def names(self) -> list[str]:
        """The columns of a partial answer."""
        keys = [self.key_name(place) for place in range(len(self.group_by))]
        return keys + [name for state in self.states for name in self.part_names(state)]

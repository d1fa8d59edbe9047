"""The state machine: random operations on a store and on the model, compared after every step.

After Kudu's fuzz-itest: few keys, the test owns every background action, every error must be the expected one. After
each step the table is read now and at three earlier moments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import cycle, product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.operation import Operation

from .aggregates import functions_of
from .oracle import Key
from .predicates import COMPARISONS, Between, Both, Compare, Either, Filter, In, IsNull, Not
from .session import Session
from .shapes import Shape
from .subjects import Stop, Subject

FLUSHES = ["flush", "flush", "flush_deltas"]
COMPACTIONS = ["compact", *(kind.value for kind in MaintenanceKind if "flush" not in kind)]


def machine_of(shape: Shape, subject_of: Callable[[Shape], Subject]) -> type[RuleBasedStateMachine]:
    """Return the state machine for a table and what holds it."""

    class TableMachine(RuleBasedStateMachine):
        @initialize(rowsets=_rowsets(shape))
        def start(self, rowsets: list[list[tuple]]) -> None:
            self.session = Session(shape, subject_of(shape))
            _fill(self.session, rowsets)

        @rule(write=writes(shape), atomic=st.sampled_from([False, False, True]))
        def write(self, write: tuple[str, tuple[str, ...], list[tuple]], atomic: bool) -> None:
            self.session.write(*write, atomic=atomic)

        @rule(write=writes(shape), back=st.none() | st.integers(0, 20))
        def write_what_is_unchanged(self, write: tuple[str, tuple[str, ...], list[tuple]], back: int | None) -> None:
            self.session.write(*write, unchanged=None if back is None else max(0, len(self.session.moments) - 1 - back))

        @rule(several=st.lists(writes(shape), max_size=4), truncate=st.sampled_from([False, False, False, True]))
        def transact(self, several: list[tuple[str, tuple[str, ...], list[tuple]]], truncate: bool) -> None:
            self.session.transact(several, truncate)

        @rule(op=st.sampled_from(FLUSHES) | st.sampled_from(COMPACTIONS))
        def maintain(self, op: str) -> None:
            self.session.maintain(op)

        @rule(stop=st.sampled_from(["close", "kill", "power"]), seed=st.integers(0, 1 << 16))
        def restart(self, stop: Stop, seed: int) -> None:
            self.session.restart(stop, seed)

        @rule(seconds=st.integers(0, 8))
        def advance(self, seconds: int) -> None:
            self.session.advance(seconds)
            self.session.note_now()

        @rule(scan=_scans(shape), back=st.none() | st.integers(0, 1 << 16))
        def scan(self, scan: dict[str, Any], back: int | None) -> None:
            self.session.scan(**scan, moment=None if back is None else back % len(self.session.moments))

        @rule(aggregate=_aggregates(shape), back=st.none() | st.integers(0, 1 << 16))
        def aggregate(self, aggregate: dict[str, Any], back: int | None) -> None:
            self.session.aggregate(**aggregate, moment=None if back is None else back % len(self.session.moments))

        @rule(feed=_feeds(shape), ends=st.tuples(st.integers(0, 1 << 16), st.integers(0, 1 << 16)))
        def changes(self, feed: dict[str, Any], ends: tuple[int, int]) -> None:
            since, until = sorted(end % len(self.session.moments) for end in ends)
            self.session.changes(since, until, **feed)

        @rule(keys=st.lists(_keys(shape), max_size=6))
        def get(self, keys: list[Key]) -> None:
            self.session.get(keys)

        @precondition(lambda self: hasattr(self, "session"))
        @invariant()
        def agrees(self) -> None:
            self.session.check_unless_read()

        def teardown(self) -> None:
            if hasattr(self, "session"):
                self.session.subject.close()

    return _dividing(TableMachine, shape) if shape.ranges.is_ranged else TableMachine


def _dividing(machine: type[RuleBasedStateMachine], shape: Shape) -> type[RuleBasedStateMachine]:
    """Return the machine with one thing more that happens: ranges are divided and emptied."""

    class DividingMachine(machine):
        session: Session

        @rule(at=_keys(shape), empty=st.sampled_from([False, False, True]))
        def alter(self, at: Key, empty: bool) -> None:
            self.session.empty_range(at) if empty else self.session.split(at)

    return DividingMachine


def _fill(session: Session, rowsets: list[list[tuple]]) -> None:
    for rows in rowsets:
        session.write("insert_ignore", session.shape.model.columns, rows)
        session.maintain("flush")


def _keys(shape: Shape) -> st.SearchStrategy[Key]:
    return st.tuples(*(st.sampled_from([c for c in shape.cells[name] if c is not None]) for name in shape.model.key))


def _rowsets(shape: Shape) -> st.SearchStrategy[list[list[tuple]]]:
    """Rows on disk to begin with, none or with keys that alternate: by chance there are seldom rowsets to be merged."""
    choices = [
        [cell for cell in shape.cells[name] if cell is not None or name not in shape.model.not_null]
        for name in shape.model.columns
    ]
    key_length = len(shape.model.key)
    keys = list(product(*choices[:key_length]))[:12]
    values = [tuple(cells[number % len(cells)] for cells in choices[key_length:]) for number in range(len(keys))]
    rows = [key + cells for key, cells in zip(keys, values, strict=True)]

    def placed(homes: tuple[int, ...]) -> list[list[tuple]]:
        """Return the rows of each rowset, the keys going round ``homes``; those of home 0 are nowhere."""
        places = list(zip(rows, cycle(homes), strict=False))
        return [[row for row, home in places if home == number] for number in range(1, max(homes) + 1)]

    return st.sampled_from([(0,), (1,), (1, 2), (1, 2, 3), (1, 2, 0), (1, 1, 2), (2, 1, 1, 3)]).map(placed)


def writes(shape: Shape) -> st.SearchStrategy[tuple[str, tuple[str, ...], list[tuple]]]:
    """Operation, columns, rows; NULL in a key now and then, as one more thing to be refused."""
    model = shape.model
    values = tuple(model.defaults)
    required = tuple(name for name in values if name in model.not_null or name == model.order)
    order = () if model.order is None else (model.order,)
    full = st.just(model.columns)
    some = st.sets(st.sampled_from(values), max_size=3).map(
        lambda chosen: model.key + tuple(name for name in values if name in chosen or name in required)
    )
    partial = st.sets(st.sampled_from(values), min_size=1, max_size=3).map(
        lambda chosen: model.key + tuple(name for name in values if name in chosen)
    )
    keys_only, with_order = st.just(model.key), st.just(model.key + order)
    ordered = partial.map(lambda columns: columns + tuple(name for name in order if name not in columns))
    columns_of = {
        "insert": st.one_of(full, some, ordered),
        "upsert": st.one_of(full, some, ordered, with_order),
        "update": st.one_of(partial, full),
        "delete": st.one_of(keys_only, with_order),
    }
    null_keys = st.tuples(*(st.sampled_from([*shape.cells[name], None]) for name in model.key))
    sound_keys = _keys(shape)
    keys = st.integers(0, 19).flatmap(lambda chance: null_keys if chance == 0 else sound_keys)

    @cache  # to make a strategy costs more than to draw from it, and this is drawn from in most steps
    def rows(op: Operation, columns: tuple[str, ...]) -> st.SearchStrategy[tuple[str, tuple[str, ...], list[tuple]]]:
        cells = [st.sampled_from(shape.cells[name]) for name in columns[len(model.key) :]]
        row = st.tuples(keys, st.tuples(*cells)).map(lambda parts: parts[0] + parts[1])
        return st.lists(row, min_size=1, max_size=5).map(lambda found: (op.value, columns, found))

    @cache
    def of(op: Operation) -> st.SearchStrategy[tuple[str, tuple[str, ...], list[tuple]]]:
        return columns_of[op.base].flatmap(lambda columns: rows(op, columns))

    return st.sampled_from(sorted(Operation)).flatmap(of)


def _scans(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    columns = st.lists(st.sampled_from(shape.model.columns), unique=True, max_size=4).map(tuple)
    return st.fixed_dictionaries(
        {
            "columns": columns | st.just(shape.model.columns),
            "where": st.none() | _filters(shape),
            "ordered": st.booleans(),
            "limit": st.none() | st.integers(0, 4),
        }
    )


def _aggregates(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    known = [(name, function) for name in shape.filtered for function in functions_of(shape.arrow.field(name))]
    measures = st.lists(st.sampled_from([("*", "count"), *known]), min_size=1, max_size=4)
    return st.fixed_dictionaries(
        {
            "measures": measures.map(lambda chosen: {f"m{at}": measure for at, measure in enumerate(chosen)}),
            "group_by": st.lists(st.sampled_from(shape.filtered), unique=True, max_size=2).map(tuple),
            "where": st.none() | _filters(shape),
        }
    )


def _feeds(shape: Shape) -> st.SearchStrategy[dict[str, Any]]:
    columns = st.lists(st.sampled_from(shape.model.columns), unique=True, max_size=4).map(tuple)
    return st.fixed_dictionaries(
        {
            "every": st.booleans(),
            "before": st.booleans(),
            "columns": columns | st.none(),
            "where": st.none() | _filters(shape),
            "ordered": st.booleans(),
        }
    )


def _filters(shape: Shape) -> st.SearchStrategy[Filter]:
    @cache
    def atoms(name: str) -> st.SearchStrategy[Filter]:
        value = st.sampled_from([cell for cell in shape.cells[name] if cell is not None])
        return st.one_of(
            st.builds(Compare, st.just(name), st.sampled_from(COMPARISONS), value),
            st.builds(IsNull, st.just(name)),
            st.builds(In, st.just(name), st.lists(value, min_size=1, max_size=3)),
            st.builds(Between, st.just(name), value, value),
        )

    leaves = st.sampled_from(shape.filtered).flatmap(atoms)
    return st.recursive(
        leaves,
        lambda parts: st.one_of(st.builds(Not, parts), st.builds(Both, parts, parts), st.builds(Either, parts, parts)),
        max_leaves=3,
    )

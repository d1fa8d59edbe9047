"""Session: a store and its model side by side, each step checked; a failure carries its steps as a test to paste."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec

import pyarrow as pa
import pytest

from nyala.schemas.errors import InvalidArgumentError, SnapshotTooOldError
from tests.campaigns.options import current

from . import shapes
from .aggregates import Measure, aggregated, agree
from .feed import feed
from .oracle import Key, Oracle, Row
from .predicates import Filter
from .ranges import within
from .shapes import Shape
from .subjects import Stop, Subject, exact_row, rows_of

P = ParamSpec("P")
READS = frozenset({"scan", "aggregate", "changes", "get"})
"""Steps that compare what they read by themselves, and change nothing."""


def recorded(step: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
    """Write a step down before it is done; when it fails, tell all the steps so far."""

    @functools.wraps(step)
    def run(self: Session, *args: P.args, **kwargs: P.kwargs) -> None:
        words = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
        self.steps.append(f"session.{step.__name__}({', '.join(words)})")
        self.has_only_read = step.__name__ in READS
        try:
            step(self, *args, **kwargs)
        except Exception as error:
            error.add_note(self.script())
            raise

    return run


class Session:
    """One table, held by a store and by the model."""

    def __init__(self, shape: Shape, subject: Subject) -> None:
        self.shape = shape
        self.subject = subject
        self.oracle = Oracle(shape.model)
        if shape.model.ttl:
            self.oracle.clock = subject.now
        self.ranges = shape.ranges
        self.moments: list[int] = [subject.now()]
        self.steps: list[str] = []
        self.has_only_read = False
        """Whether the last step was a read: the one before it was checked."""
        self.checks = 0
        self.forgotten = 0
        """What came before this moment may have been forgotten."""

    @recorded
    def write(
        self, op: str, columns: tuple[str, ...], rows: list[tuple], atomic: bool = False, unchanged: int | None = None
    ) -> None:
        """Write rows of ``columns``; the answer must be the model's, to the position of each error.

        With ``unchanged``, a position in ``moments``, rows that changed since then must be left alone.
        """
        given = [dict(zip(columns, row, strict=True)) for row in rows]
        since = None if unchanged is None else self.moments[unchanged]
        plan = self.oracle.plan(op, given, atomic, since)
        try:
            result = self.subject.write(op, self.shape.batch(columns, given), atomic, since)
        except SnapshotTooOldError:
            assert since is not None and since < self.forgotten
            return
        assert since is None or since >= self.subject.history_mark(), "history that is too old was relied on"
        errors = [(error.row, error.code) for error in result.errors]
        assert (result.rows, result.applied, result.ignored, errors) == plan.answer and result.stale == plan.stale
        assert result.error_count == len(errors)
        self.oracle.commit(plan, result.timestamp)
        self.moments.append(result.timestamp)

    @recorded
    def transact(self, writes: list[tuple[str, tuple[str, ...], list[tuple]]], truncate: bool) -> None:
        """Write several times in one commit, after deleting all rows if asked to; any error refuses all."""
        given = [(op, columns, [dict(zip(columns, row, strict=True)) for row in rows]) for op, columns, rows in writes]
        plan = self.oracle.plan_many([(op, rows) for op, _, rows in given], truncate)
        batches = [(op, self.shape.batch(columns, rows)) for op, columns, rows in given]
        result = self.subject.transact(batches, truncate)
        errors = [(error.row, error.code) for error in result.errors]
        assert (result.rows, result.applied, result.ignored, errors) == plan.answer and result.stale == plan.stale
        self.oracle.commit(plan, result.timestamp)
        self.moments.append(result.timestamp)

    @recorded
    def split(self, at: Key) -> None:
        """Divide the range that ``at`` lies in; nobody may notice."""
        ranges = self.ranges.split(at)
        alteration = self.subject.alteration().split_partition(at)
        if ranges is None:
            with pytest.raises(InvalidArgumentError):
                alteration.apply()
            return
        alteration.apply()
        self.ranges = ranges

    @recorded
    def empty_range(self, at: Key) -> None:
        """Drop the range that ``at`` lies in and add it again, in one change: its rows are gone at every moment."""
        ends = self.ranges.around(at)
        self.subject.alteration().drop_range_partition(*ends).add_range_partition(*ends).apply()
        for key in [key for key in self.oracle.versions if within(key, ends)]:
            del self.oracle.versions[key]
        for key in [key for key in self.oracle.orders if within(key, ends)]:
            del self.oracle.orders[key]

    @recorded
    def maintain(self, op: str) -> None:
        self.subject.maintain(op)

    @recorded
    def restart(self, stop: Stop, seed: int = 0) -> None:
        self.subject.restart(stop, seed)
        self.forgotten = max(self.forgotten, self.subject.history_mark())

    @recorded
    def advance(self, seconds: int) -> None:
        """Let time pass, and history with it."""
        self.subject.advance(seconds)
        self.forgotten = max(self.forgotten, self.subject.history_mark())

    @recorded
    def note_now(self) -> None:
        """Take a moment at which nothing was written."""
        self.moments.append(self.subject.now())

    @recorded
    def scan(
        self,
        columns: tuple[str, ...],
        where: Filter | None = None,
        ordered: bool = False,
        limit: int | None = None,
        moment: int | None = None,
    ) -> None:
        """Read at ``moment`` (a position in ``moments``; None is now) and compare with the model."""
        self._compare(columns, where, ordered, limit, moment)

    @recorded
    def aggregate(
        self,
        measures: dict[str, Measure],
        group_by: tuple[str, ...] = (),
        where: Filter | None = None,
        moment: int | None = None,
    ) -> None:
        """Compare what is worked out of the rows at ``moment``."""
        as_of = None if moment is None else self.moments[moment]
        text = None if where is None else str(where)
        try:
            table = self.subject.aggregate(measures, list(group_by), text, as_of)
        except SnapshotTooOldError:
            assert as_of is not None and as_of < self.forgotten
            return
        assert as_of is None or as_of >= self.subject.history_mark(), "history that is too old was read"
        assert table.schema.names == [*group_by, *measures]
        found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        expected = aggregated([row for _, row in self._rows(where, as_of)], measures, group_by)
        assert agree(found, expected), (found, expected)

    @recorded
    def changes(
        self,
        since: int,
        until: int,
        every: bool = False,
        before: bool = False,
        columns: tuple[str, ...] | None = None,
        where: Filter | None = None,
        ordered: bool = True,
    ) -> None:
        """Compare what changed between two of ``moments``, named by their positions."""
        text = None if where is None else str(where)
        first, last = self.moments[since], self.moments[until]
        chosen = self.shape.model.columns if columns is None else columns
        spec = {"columns": list(chosen), "where": text, "ordered": ordered, "before": before, "every": every}
        try:
            table = self.subject.changes(since=first, until=last, **spec)
        except SnapshotTooOldError:
            assert first < self.forgotten
            return
        assert first >= self.subject.history_mark(), "history that is too old was read"
        earlier = [f"_before_{name}" for name in chosen] if before else []
        assert table.schema.names == ["_op", "_timestamp", *chosen, *earlier]
        expected = [exact_row(change.cells(chosen, before)) for change in feed(self.oracle, first, last, every, where)]
        found = rows_of(table)
        if ordered:
            assert found == expected
        else:
            assert sorted(found, key=repr) == sorted(expected, key=repr)

    @recorded
    def get(self, keys: list[Key]) -> None:
        """Look up keys, which come back in the order asked; absent ones are left out."""
        columns = self.shape.model.columns
        expected = [exact_row([row[name] for name in columns]) for row in self.oracle.get(keys)]
        table = self.subject.get(keys)
        assert table.schema.names == list(columns)
        assert rows_of(table) == expected

    @recorded
    def check(self) -> None:
        """Compare the whole table, now and at three earlier moments that wander through the history.

        Two of the four are read as a client does, now always, and two in the engine.
        """
        self.checks += 1
        count = len(self.moments)
        picks = {self.checks * 7 % count, self.checks * 13 % count, max(0, count - 2)}
        for number, moment in enumerate([None, *sorted(picks)]):
            ordered = (self.checks + number) % 2 == 0
            scan = self.subject.scan if number in {0, 1 + self.checks % len(picks)} else self.subject.scan_in_engine
            self._compare(self.shape.model.columns, None, ordered, None, moment, scan)

    def check_unless_read(self) -> None:
        """Check after a step that may have changed something."""
        if not self.has_only_read:
            self.check()

    def script(self) -> str:
        """Return the steps so far as a test."""
        name = next(name for name, shape in vars(shapes).items() if shape is self.shape)
        lines = [f"session = Session({name}, {type(self.subject).__name__}({name}))", *self.steps]
        drawn = str(current())
        if drawn:
            lines = [f"with in_force({drawn!r}):", *(f"    {line}" for line in lines)]
        return "\n".join(["def test_pinned() -> None:", *(f"    {line}" for line in lines)])

    def _compare(
        self,
        columns: tuple[str, ...],
        where: Filter | None,
        ordered: bool,
        limit: int | None,
        moment: int | None,
        scan: Callable[..., pa.Table] | None = None,
    ) -> None:
        as_of = None if moment is None else self.moments[moment]
        text = None if where is None else str(where)
        spec = {"columns": list(columns), "where": text, "ordered": ordered, "limit": limit, "as_of": as_of}
        try:
            table = (scan or self.subject.scan)(**spec)
        except SnapshotTooOldError:
            assert as_of is not None and as_of < self.forgotten
            return
        assert as_of is None or as_of >= self.subject.history_mark(), "history that is too old was read"
        assert table.schema.names == list(columns)
        expected = [exact_row([row[name] for name in columns]) for _, row in self._rows(where, as_of)]
        found = rows_of(table) if columns else [()] * table.num_rows
        if ordered:
            assert found == expected[:limit]
        else:
            _check_unordered(found, expected, limit)

    def _rows(self, where: Filter | None, as_of: int | None) -> list[tuple[Key, Row]]:
        state = self.oracle.now() if as_of is None else self.oracle.as_of(as_of)
        return [(key, row) for key, row in sorted(state.items()) if where is None or where.holds(row) is True]


def _check_unordered(found: list[tuple], expected: list[tuple], limit: int | None) -> None:
    if limit is None:
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        return
    assert len(found) == min(limit, len(expected))
    left = list(expected)
    for row in found:
        assert row in left
        left.remove(row)

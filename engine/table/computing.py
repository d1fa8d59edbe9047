"""Computing: cells of written rows that the store computes: default expressions, and merges with live rows.

It comes after the decision which rows are stored and which live rows change, under the same locks. The results are
logged as cells, so a replay, a replica and the answer to a repeated write know nothing of expressions.

The rows of a key in a merge apply one after the other. Where all rules are associative, such as sums, they are combined
in pairs, and so in as many steps as the logarithm of their number; else step by step, of a limited number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.operation import Operation
from ...schemas.rows.write import ROW_ERRORS_MAX
from ...schemas.table.column import ColumnSchema
from ..expression.rows import Rows
from ..tablet.outcome import APPLIED, REFUSED, Outcome
from .call_rules import CallRules
from .checked_batch import checked_cells
from .formulas import EXCLUDED, Formula, MergeRules
from .table_version import TableVersion
from .tablet_change import taken, whole_rows

STEPS_MAX = 1_000
"""The most rows of one key in one batch of a merge whose rules are not associative."""
_FAILURES_MAX = 100
"""With more rows whose cells cannot be computed, the whole batch is refused."""
Newest = Callable[[ColumnSchema, np.ndarray, np.ndarray], pa.Array]
"""Returns the newest cells of a column in live rows: those of some rows of a batch, at some locations."""
Cells = Mapping[int, pa.Array]
"""Cells of some rows, by column id."""
Failures = list[tuple[int, str]]
"""Rows of a batch whose cells cannot be computed, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """What is to be computed for the rows of one batch."""

    version: TableVersion
    limits: Limits
    defaults: Mapping[int, Formula]
    """Those of columns that the batch lacks, by the id of their column."""
    rules: MergeRules | None
    """Those of the merge that apply; None: the batch is no merge."""

    def default(self, column: ColumnSchema, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the default of a column in new rows, of which ``rows`` has the columns of the batch; None: it has no
        expression. Raises InvalidArgumentError: it cannot be computed, or does not fit."""
        if (formula := self.defaults.get(column.id)) is None:
            return None
        by_name, defaults = self.version.schema.by_name, self.version.defaults

        def cells(name: str) -> pa.Array:
            number = by_name[name].id
            if str(number) in rows.schema.names:
                return rows.column(str(number))
            return pa.repeat(defaults[number], rows.num_rows)

        computed = formula.cells(Rows(rows.num_rows, cells))
        return checked_cells(computed, column, self.version.schema, self.limits, formula.what)

    def resolved(self, rows: pa.RecordBatch, first: np.ndarray, decided: Outcome, newest: Newest) -> Outcome:
        """Return the outcome of a batch with the computed cells. A row whose cells cannot be computed is refused, and
        so are the others of its key.

        Args:
            rows: of the batch, in one tablet; columns are named by id.
            first: for each row, the first one with its key.
            decided: what becomes of them.
            newest: reads live rows.

        Raises:
            InvalidArgumentError: that holds for too many rows, or a key has too many for rules that are not
                associative.
        """
        failures: Failures = []
        if self.rules is None:
            outcome = self._stored(rows, decided, failures)
        else:
            outcome = _KeyMerge(self, self.rules, rows, first, decided, newest).outcome(failures)
        return _refused(outcome, first, failures) if failures else outcome

    def _stored(self, rows: pa.RecordBatch, decided: Outcome, failures: Failures) -> Outcome:
        def stored(places: np.ndarray) -> pa.RecordBatch:
            some, first = taken(rows, decided.stores[places]), taken(rows, decided.store_leaders[places])
            return whole_rows(self.version, some, first, self)

        return _with_stored(decided, *_tried(len(decided.stores), stored, decided.stores, failures))


def computing_of(
    version: TableVersion,
    operation: Operation,
    texts: Mapping[str, str] | None,
    sent: Collection[int],
    now: int,
    limits: Limits,
) -> Computing | None:
    """Return what is to be computed at the moment ``now`` for a batch with the columns ``sent`` (ids); None: nothing.

    ``texts`` are the rules of a merge by column; None: those of the table's columns.

    Raises:
        InvalidArgumentError: a rule is invalid, or needs a column that the batch lacks.
    """
    makes_rows = operation.base in (Operation.INSERT, Operation.UPSERT)
    missing = version.formulas.keys() - set(sent) if makes_rows and version.formulas else ()
    defaults = {number: version.formulas[number].at(now) for number in missing}
    rules = _rules(version, texts, sent, now) if operation is Operation.MERGE else None
    return Computing(version, limits, defaults, rules) if defaults or rules is not None else None


def _rules(version: TableVersion, texts: Mapping[str, str] | None, sent: Collection[int], now: int) -> MergeRules:
    """Return the rules that apply to a batch: those whose values come with it."""
    schema = version.schema
    rules = version.rules if texts is None else version.plans[CallRules].of(texts)
    chosen: dict[int, Formula] = {}
    for number, rule in rules.items():
        lacking = sorted(name for name in rule.new if schema.by_name[name].id not in sent)
        if lacking and (texts is not None or number in sent):
            raise InvalidArgumentError(f"{rule.what} needs {EXCLUDED}.{lacking[0]}: the data has no such column")
        if not lacking:
            chosen[number] = rule.at(now)
    return chosen


class _KeyMerge:
    """The merge of the rows of a batch in one tablet."""

    def __init__(
        self,
        computing: Computing,
        rules: MergeRules,
        rows: pa.RecordBatch,
        first: np.ndarray,
        decided: Outcome,
        newest: Newest,
    ) -> None:
        self._computing = computing
        self._rules = {number: rule for number, rule in rules.items() if not rule.keeps}
        self._rows = rows
        self._first = first
        self._decided = decided
        self._newest = newest
        self._is_associative = all(rule.is_associative for rule in self._rules.values())
        schema, immutable = computing.version.schema, computing.version.immutable
        sent = [int(name) for name in rows.schema.names]
        key = [column.id for column in schema.key]
        self._plain = [number for number in sent if not (number in rules or number in immutable or number in key)]
        changed = {*self._rules, *self._plain, *key}
        self._changed = [column.id for column in schema.columns if column.id in changed]
        own = {schema.by_name[name].id for rule in self._rules.values() for name in rule.own}
        self._read = [column for column in schema.values if column.id in own]
        # The rows that apply, grouped by key in their order.
        applied = np.flatnonzero(decided.status == APPLIED)
        keys = first[applied]
        if (keys == applied).all():  # each key once
            self._order = self._leaders = applied
            self._starts, self._counts = np.arange(len(applied)), np.ones(len(applied), np.int64)
            return
        self._order = applied[np.argsort(keys, kind="stable")]
        self._leaders, self._starts = np.unique(first[self._order], return_index=True)
        self._counts = np.diff(np.append(self._starts, len(self._order)))

    def outcome(self, failures: Failures) -> Outcome:
        """Return the outcome, with new rows and changes as they are after all rows of their keys."""
        decided = self._decided
        good, stored = _tried(len(decided.stores), self._stored, decided.stores, failures)
        decided = _with_stored(decided, good, stored)
        good, updated = _tried(len(decided.updates), self._updated, decided.updates, failures)
        updates, locations = decided.updates[good], decided.update_locations[good]
        return replace(decided, updates=updates, update_locations=locations, updated=updated)

    def _stored(self, places: np.ndarray) -> pa.RecordBatch:
        """Return new rows: the first of each key, merged with the others."""
        keys = self._keys_of(self._decided.stores[places])
        some = taken(self._rows, self._order[self._starts[keys]])
        whole = whole_rows(self._computing.version, some, some, self._computing)
        if (self._counts[keys] == 1).all():
            return whole
        cells = self._merged(keys, _by_id(whole), 1)
        return _batch({int(name): cells[int(name)] for name in whole.schema.names})

    def _updated(self, places: np.ndarray) -> pa.RecordBatch:
        """Return the keys and the new cells of live rows."""
        decided, schema = self._decided, self._computing.version.schema
        rows, locations = decided.updates[places], decided.update_locations[places]
        actors = taken(self._rows, rows)
        own = {column.id: actors.column(str(column.id)) for column in schema.key}
        own |= {column.id: self._newest(column, rows, locations) for column in self._read}
        cells = self._merged(self._keys_of(rows), own, 0)
        return _batch({number: cells[number] for number in self._changed})

    def _keys_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._leaders, self._first[rows])

    def _merged(self, keys: np.ndarray, own: Cells, skipped: int) -> Cells:
        """Return the cells of keys after all of their rows but ``skipped`` at the front; ``own`` are those before."""
        cells = None
        if self._is_associative and int(self._counts[keys].max()) > skipped + 1:
            with suppress(InvalidArgumentError):  # a sum of some rows may be too large, and that of all not
                cells = self._in_pairs(keys, own, skipped)
        cells = cells or self._one_by_one(keys, own, skipped)
        schema, limits = self._computing.version.schema, self._computing.limits
        for number, rule in self._rules.items():
            checked_cells(cells[number], schema.by_id[number], schema, limits, rule.what)
        return cells

    def _in_pairs(self, keys: np.ndarray, own: Cells, skipped: int) -> Cells:
        counts = self._counts[keys] - skipped
        keys_with, key_of = np.flatnonzero(counts), np.repeat(np.arange(len(keys)), counts)
        starts = np.cumsum(counts) - counts
        places = np.arange(len(key_of)) - starts[key_of] + (self._starts[keys] + skipped)[key_of]
        rows = _by_id(taken(self._rows, self._order[places]))
        while len(key_of) > len(keys_with):
            place = np.arange(len(key_of)) - np.searchsorted(key_of, key_of)
            second = np.flatnonzero(place % 2 == 1)
            merged = self._step(_rows_of(rows, second - 1), _rows_of(rows, second), len(second))
            stays = np.flatnonzero(place % 2 == 0)
            rows = _laid_over(_rows_of(rows, stays), np.searchsorted(stays, second - 1), merged)
            key_of = key_of[stays]
        merged = self._step(_rows_of(own, keys_with), rows, len(keys_with))
        return _laid_over(own, keys_with, merged)

    def _one_by_one(self, keys: np.ndarray, own: Cells, skipped: int) -> Cells:
        most = int(self._counts[keys].max())
        if most > STEPS_MAX:
            raise InvalidArgumentError(
                f"{most:,} rows have the same key, but with rules other than sum, min, max and append a merge takes at "
                f"most {STEPS_MAX:,} rows of a key: split the data"
            )
        cells = own
        for number in range(skipped, most):
            left = np.flatnonzero(self._counts[keys] > number)
            new = _by_id(taken(self._rows, self._order[self._starts[keys[left]] + number]))
            cells = _laid_over(cells, left, self._step(_rows_of(cells, left), new, len(left)))
        return cells

    def _step(self, own: Cells, new: Cells, count: int) -> Cells:
        """Return the cells of ``own`` rows that change when each is merged with a ``new`` one."""
        by_name = self._computing.version.schema.by_name

        def cells(name: str) -> pa.Array:
            if name != EXCLUDED:
                return own[by_name[name].id]
            names = sorted({name for rule in self._rules.values() for name in rule.new})
            return pa.StructArray.from_arrays([new[by_name[name].id] for name in names], names)

        rows = Rows(count, cells)
        return {number: new[number] for number in self._plain} | {
            number: rule.cells(rows) for number, rule in self._rules.items()
        }


def _tried(
    count: int, compute: Callable[[np.ndarray], pa.RecordBatch], actors: np.ndarray, failures: Failures
) -> tuple[np.ndarray, pa.RecordBatch | None]:
    """Compute rows for the places of so many keys. Return the places that succeed, and their rows; None for no rows.
    The others are added to ``failures``, as the rows ``actors`` of the batch."""
    parts: list[pa.RecordBatch] = []
    good = np.ones(count, np.bool_)
    waiting = [np.arange(count)] if count else []
    while waiting:
        places = waiting.pop()
        try:
            parts.append(compute(places))
        except InvalidArgumentError as error:
            if len(places) > 1:
                half = len(places) // 2
                waiting += [places[half:], places[:half]]
                continue
            good[places] = False
            failures.append((int(actors[places[0]]), error.message))
            if len(failures) > _FAILURES_MAX:
                raise InvalidArgumentError(
                    f"more than {_FAILURES_MAX} rows cannot be written: {error.message}"
                ) from None
    return np.flatnonzero(good), pa.concat_batches(parts) if parts else None


def _with_stored(decided: Outcome, good: np.ndarray, stored: pa.RecordBatch | None) -> Outcome:
    """Return an outcome with only the ``good`` of its new rows, which are ``stored``."""
    return replace(
        decided,
        stores=decided.stores[good],
        store_locations=decided.store_locations[good],
        store_leaders=decided.store_leaders[good],
        stored=stored,
    )


def _refused(decided: Outcome, first: np.ndarray, failures: Failures) -> Outcome:
    """Return an outcome in which all rows are refused whose key is that of a row that failed."""
    status, reasons = decided.status.copy(), dict[int, str]()
    for row, message in failures:
        rows = np.flatnonzero((first == first[row]) & (status == APPLIED))
        status[rows] = REFUSED
        reasons |= dict.fromkeys(rows[:ROW_ERRORS_MAX].tolist(), message)
    return replace(decided, status=status, reasons=reasons)


def _by_id(rows: pa.RecordBatch) -> dict[int, pa.Array]:
    return {int(name): cells for name, cells in zip(rows.schema.names, rows.columns, strict=True)}


def _batch(cells: Cells) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(cells.values()), names=[str(number) for number in cells])


def _rows_of(cells: Cells, places: np.ndarray) -> Cells:
    chosen = pa.array(places)
    return {number: each.take(chosen) for number, each in cells.items()}


def _laid_over(cells: Cells, places: np.ndarray, new: Cells) -> Cells:
    """Return cells of rows with those at ``places`` (ascending, distinct) replaced, in the columns of ``new``."""
    count = len(next(iter(cells.values())))
    if len(places) == count:
        return {**cells, **new}
    at = np.arange(count)
    at[places] = count + np.arange(len(places))
    chosen = pa.array(at)
    return {
        number: pa.concat_arrays([each, new[number]]).take(chosen) if number in new else each
        for number, each in cells.items()
    }

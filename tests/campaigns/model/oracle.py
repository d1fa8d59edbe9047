"""What a table must hold: a dictionary of versions, written without a look at the engine.

    key -> [(timestamp, row), (timestamp, None), ...]      None: the key is dead from then on

``plan`` says what must become of a batch, row by row, by the words of the contract; ``commit`` makes it so at the
timestamp that the store gave. ``as_of`` reads any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Key = tuple[Any, ...]
Row = dict[str, Any]

REQUIRED = object()
"""Stands for the default of a column that is not nullable and has none."""


@dataclass(frozen=True)
class ModelSchema:
    """``defaults`` has every value column: what a new row gets without it, or REQUIRED."""

    key: tuple[str, ...]
    defaults: Mapping[str, Any]
    not_null: frozenset[str] = frozenset()
    lengths: Mapping[str, int] = field(default_factory=dict)
    """Characters that a varchar column keeps."""
    immutable: frozenset[str] = frozenset()
    order: str | None = None
    """The column that orders the changes of a row."""
    merges: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    """How a merge combines the cell of a live row with the one that comes."""
    computed: Mapping[str, Callable[[Row], Any]] = field(default_factory=dict)
    """What a new row gets without the column, by the rest of the row."""
    ttl: tuple[str, timedelta] | None = None
    """The column and the time after it at which a row expires."""

    def end(self, row: Row | None) -> int | None:
        """Return the moment at which a row expires; None: never."""
        if row is None or self.ttl is None or (begin := row[self.ttl[0]]) is None:
            return None
        at = begin if isinstance(begin, datetime) else datetime(begin.year, begin.month, begin.day)
        return (at + self.ttl[1] - datetime(1970, 1, 1)) // timedelta(microseconds=1) << 12

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.key, *self.defaults)


@dataclass
class Plan:
    """What must become of a batch, and what the table holds afterwards."""

    rows: int
    applied: int = 0
    ignored: int = 0
    stale: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)
    changes: dict[Key, Row | None] = field(default_factory=dict)
    orders: dict[Key, Any] = field(default_factory=dict)
    """The ordering values that keys get, those without a row included."""
    truncates: bool = False

    @property
    def answer(self) -> tuple[int, int, int, list[tuple[int, str]]]:
        return self.rows, self.applied, self.ignored, self.errors


class Oracle:
    """One table."""

    def __init__(self, schema: ModelSchema) -> None:
        self.schema = schema
        self.versions: dict[Key, list[tuple[int, Row | None]]] = {}
        self.orders: dict[Key, Any] = {}
        """The newest ordering value of each key."""
        self._ordered: dict[Key, int] = {}
        """When the key got it: a delete of a key that has no row is a change, too."""
        self.last_timestamp = 0
        self.clock: Callable[[], int] = lambda: 0
        """The newest moment, for rows that expire."""

    def plan(self, op: str, rows: Sequence[Row], atomic: bool = False, since: int | None = None) -> Plan:
        """Say what must become of ``rows``, which all have the same columns and must not have changed ``since``."""
        plan = Plan(0)
        self._add(plan, op, rows, since)
        if atomic and plan.errors:
            return Plan(len(rows), errors=plan.errors)
        return plan

    def plan_many(self, writes: Iterable[tuple[str, Sequence[Row]]], truncate: bool) -> Plan:
        """Say what must become of a transaction of writes, the first error of which refuses all."""
        plan = Plan(0, truncates=truncate)
        if truncate:
            plan.changes.update(dict.fromkeys(self.now()))
        for op, rows in writes:
            self._add(plan, op, rows, None)
        for key in [key for key, row in plan.changes.items() if row is None and self._live(key) is None]:
            del plan.changes[key]  # it was born and died in the transaction: it never was
        return Plan(plan.rows, errors=plan.errors) if plan.errors else plan

    def _add(self, plan: Plan, op: str, rows: Sequence[Row], since: int | None) -> None:
        for position, given in enumerate(rows, plan.rows):
            outcome = self._decide(op, given, plan, since)
            if outcome == "APPLIED":
                plan.applied += 1
            elif outcome == "IGNORED":
                plan.ignored += 1
            elif outcome == "STALE":
                plan.stale += 1
            else:
                plan.errors.append((position, outcome))
        plan.rows += len(rows)

    def commit(self, plan: Plan, timestamp: int) -> None:
        """Make a plan the state of the table from ``timestamp`` on."""
        assert timestamp > self.last_timestamp, f"{timestamp} does not come after {self.last_timestamp}"
        self.last_timestamp = timestamp
        for key, row in plan.changes.items():
            self.versions.setdefault(key, []).append((timestamp, row))
        self.orders.update(plan.orders)
        self._ordered.update(dict.fromkeys(plan.orders, timestamp))

    def as_of(self, timestamp: int) -> dict[Key, Row]:
        """Return the rows that live at ``timestamp``."""
        found = ((key, self._latest(history, timestamp)) for key, history in self.versions.items())
        return {key: row for key, row in found if row is not None}

    def now(self) -> dict[Key, Row]:
        """Return the rows that live."""
        return self.as_of(max(self.clock(), self.last_timestamp))

    def get(self, keys: Iterable[Key]) -> list[Row]:
        """Return the live rows of ``keys`` in the order asked."""
        live = self.now()
        return [live[key] for key in keys if key in live]

    def _decide(self, op: str, given: Row, plan: Plan, since: int | None) -> str:
        """Carry out one row on ``plan`` and return APPLIED, IGNORED, STALE or the code of its error."""
        given = {name: self._stored(name, cell) for name, cell in given.items()}
        if any(given[name] is None for name in given if name in self.schema.not_null):
            return "INVALID_ARGUMENT"
        key = tuple(given[name] for name in self.schema.key)
        base, ignores = "upsert" if op == "merge" else op.removesuffix("_ignore"), op.endswith("_ignore")
        order = self.schema.order
        is_ordered, place = order in given, None if order is None else given.get(order)
        if is_ordered and base == "delete" and place is None:
            return "INVALID_ARGUMENT"
        if since is not None and self._changed_after(key, since):
            return "IGNORED" if ignores else "CONFLICT"
        old = plan.changes[key] if key in plan.changes else self._live(key, since)
        if is_ordered and self._is_stale(key, place, plan):
            return "STALE"
        if is_ordered and base == "delete":
            plan.orders[key] = place
            if old is not None:
                plan.changes[key] = None
            return "APPLIED"
        if base == "insert" and old is not None:
            return "IGNORED" if ignores else "ALREADY_PRESENT"
        if base in ("update", "delete") and old is None:
            return "IGNORED" if ignores else "NOT_FOUND"
        if base in ("update", "upsert") and old is not None and not self.schema.immutable.isdisjoint(given):
            if not ignores:
                return "IMMUTABLE"
            given = {name: cell for name, cell in given.items() if name not in self.schema.immutable}
            if len(given) == len(key):
                return "IGNORED"
        if op == "merge" and old is not None:
            merges = self.schema.merges
            given = {name: merges[name](old[name], cell) if name in merges else cell for name, cell in given.items()}
        row = None if base == "delete" else {**(self.schema.defaults if old is None else old), **given}
        if row is not None and any(cell is REQUIRED for cell in row.values()):
            return "INVALID_ARGUMENT"
        if old is None and row is not None:
            row |= {name: compute(row) for name, compute in self.schema.computed.items() if name not in given}
        if old is None or row is None or len(given) > len(key):  # an upsert of a live row's key alone is no change
            plan.changes[key] = row
        if is_ordered:
            plan.orders[key] = place
        return "APPLIED"

    def _is_stale(self, key: Key, value: Any, plan: Plan) -> bool:
        standing = plan.orders.get(key, None if plan.truncates else self.orders.get(key))
        return standing is not None and (value is None or value < standing)

    def _changed_after(self, key: Key, moment: int) -> bool:
        history = self.versions.get(key)
        return max(history[-1][0] if history else 0, self._ordered.get(key, 0)) > moment

    def _stored(self, name: str, cell: Any) -> Any:
        length = self.schema.lengths.get(name)
        return cell[:length] if length is not None and cell is not None else cell

    def _live(self, key: Key, seen: int | None = None) -> Row | None:
        """Return the newest row of a key, unless it is dead, or has expired now, or when it was ``seen``."""
        row = self.versions[key][-1][1] if key in self.versions else None
        end = self.schema.end(row)
        now = max(self.clock(), self.last_timestamp) if seen is None else seen
        return row if end is None or end > now else None

    def _latest(self, history: list[tuple[int, Row | None]], timestamp: int) -> Row | None:
        row = next((row for committed, row in reversed(history) if committed <= timestamp), None)
        end = self.schema.end(row)
        return row if end is None or end > timestamp else None

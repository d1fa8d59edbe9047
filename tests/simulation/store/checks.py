"""Checks: a history must be one that a store that does all at once, in the order of its timestamps, could have.

Each write that was answered has a timestamp. In their order the writes are done on a model: each answer, to the
position of each refused row, must be the model's. A write that began after another had ended must come later. Each
read must show the model at its moment, or, if it read "now", at some moment between the writes that had ended before
it began and the writes that had begun before it ended. A read that may be behind ("stale") must show the writes that
had ended so long before. This is strict serializability of single calls: the order is given, so no search is needed
(Kingsbury and Alvaro, Elle, VLDB 2020, infer it).

A write that a crash cut short has no timestamp: the change feed of the next life tells whether it happened. Its changes
must be those of one such write, whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.campaigns.model.feed import feed
from tests.campaigns.model.oracle import Oracle, Plan, Row

from . import tables
from .history import NEVER, Call, History
from .plan import TABLES

_WRITES = ("write", "transact", "update_where", "delete_where")
Change = tuple[str, str, int]
"""Table, operation and key."""


class ViolationError(AssertionError):
    """A history that no correct store could have."""


@dataclass
class Planned:
    """What a write must do, by table, and the answer to it."""

    plans: dict[str, Plan] = field(default_factory=dict)
    answer: tuple[Any, ...] = ()


class Checker:
    """Checks the history of a run, over its lives."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._models = {name: tables.oracle() for name in TABLES}
        self._times: list[int] = []
        """The timestamps of all commits, ascending."""

    def check(self, recovered: dict[int, list[tuple[str, dict[str, Any]]]]) -> None:
        """Check all calls. ``recovered``: what each commit changed, that the feed of a later life shows.

        Raises:
            ViolationError: with the call that is wrong.
        """
        cut = [call for call in self._history.calls if call.ended == NEVER and call.step.kind in _WRITES]
        answered = {call.answer.timestamp: call for call in self._answered()}
        if len(answered) != sum(1 for _ in self._answered()):
            raise ViolationError("two writes have one timestamp")
        for moment in sorted({*answered, *recovered}):
            if (call := answered.get(moment)) is not None:
                if _has_changed(call):
                    self._apply(call, moment)
            else:
                cut.remove(self._applied_of(cut, moment, recovered[moment]))
            self._times.append(moment)
        self._check_order()
        for call in self._answered():
            if not _has_changed(call):
                self._check_refused(call)
        for call in self._history.calls:
            if call.ended != NEVER and call.error is None and call.step.kind not in _WRITES:
                self._check_read(call)

    def _answered(self) -> Iterator[Call]:
        return (call for call in self._history.calls if call.step.kind in _WRITES and call.answer is not None)

    def _check_order(self) -> None:
        """A write that began after another had ended has the later timestamp."""
        begins = [(call.began, False, call) for call in self._answered()]
        ends = [(call.ended, True, call) for call in self._answered()]
        newest = 0
        for _, is_end, call in sorted(begins + ends, key=lambda event: event[0]):
            if is_end:
                newest = max(newest, call.answer.timestamp)
            elif call.answer.timestamp <= newest:
                raise ViolationError(f"{call} has a timestamp before {newest}, which was answered before it began")

    # Writes

    def _planned(self, call: Call, moment: int | None = None) -> Planned:
        models = (
            self._models if moment is None else {name: tables.at(model, moment) for name, model in self._models.items()}
        )
        step = call.step
        if step.kind == "write":
            op, rows, is_atomic, _ = step.given
            plan = models[step.table].plan(op, tables.given_of(op, rows, call.number), is_atomic, call.moment)
            return Planned({step.table: plan}, plan.answer)
        if step.kind == "transact":
            return self._planned_transaction(call, models)
        plan = Plan(0)
        for key, row in models[step.table].now().items():
            if step.kind == "update_where" and step.given[0] <= key[0] < step.given[1]:
                plan.changes[key] = {"k": key[0], "v": call.number, "n": (row["n"] or 0) + 1}
            elif step.kind == "delete_where" and row["n"] == step.given[0]:
                plan.changes[key] = None
        count = len(plan.changes)
        return Planned({step.table: plan}, (count, count, 0, []))

    def _planned_transaction(self, call: Call, models: dict[str, Oracle]) -> Planned:
        writes, is_truncating = call.step.given
        plans: dict[str, Plan] = {}
        errors: list[tuple[Any, ...]] = []
        applied = ignored = count = 0
        for name in TABLES:
            own = [
                (number, op, tables.given_of(op, rows, call.number))
                for number, (table, op, rows) in enumerate(writes)
                if table == name
            ]
            truncates = is_truncating and call.step.table == name
            if not own and not truncates:
                continue
            plan = plans[name] = models[name].plan_many([(op, rows) for _, op, rows in own], truncates)
            places = [(f"{number}", row) for number, _, rows in own for row in range(len(rows))]
            errors += [(*places[row], code) for row, code in plan.errors]
            applied, ignored, count = applied + plan.applied, ignored + plan.ignored, count + plan.rows
        if errors:
            return Planned({}, (count, 0, 0, sorted(errors)))
        return Planned(plans, (count, applied, ignored, []))

    def _apply(self, call: Call, moment: int) -> None:
        planned, given = self._planned(call), _given(call)
        if given != planned.answer:
            raise ViolationError(f"{call} at {moment} must answer {planned.answer}, not {given}")
        self._commit(planned, moment)

    def _check_refused(self, call: Call) -> None:
        """A write that changed nothing was judged at some moment before its timestamp was taken."""
        given, answers = _given(call), []
        for moment in self._moments_of(call):
            answers.append(self._planned(call, moment).answer)
            if answers[-1] == given:
                return
        raise ViolationError(f"{call} must answer one of {answers}, not {given}")

    def _commit(self, planned: Planned, moment: int) -> None:
        for name, plan in planned.plans.items():
            self._models[name].commit(plan, moment)

    def _applied_of(self, cut: list[Call], moment: int, changes: list[tuple[str, dict[str, Any]]]) -> Call:
        """Apply the write without an answer that made these changes, and return it."""
        shown = sorted(_changed(name, change["_op"], change) for name, change in changes)
        for call in cut:
            planned = self._planned(call)
            expected = sorted(
                _changed(name, _op(self._models[name], key, row), row or {"k": key[0]})
                for name, plan in planned.plans.items()
                for key, row in plan.changes.items()
            )
            if expected == shown and expected:
                self._commit(planned, moment)
                return call
        raise ViolationError(f"nobody wrote, as one commit, what changed at {moment}: {shown}")

    # Reads

    def _check_read(self, call: Call) -> None:
        kind = call.step.kind
        if kind == "scan_at":
            assert call.moment is not None
            self._require(call, tables.state_of(self._models[call.step.table], call.moment), call.moment)
        elif kind == "changes":
            self._check_changes(call)
        elif kind in ("scan", "get", "get_many", "sum", "stale"):
            moments = self._moments_of(call)
            answers = [self._answer_at(call, moment) for moment in moments]
            if call.answer not in answers:
                raise ViolationError(f"{call} at none of {moments} would be right: {answers}")

    def _moments_of(self, call: Call) -> list[int]:
        """Return the moments that a read of "now" may show: each commit that it may be the first not to see, before."""
        ended = [other.answer.timestamp for other in self._answered() if _is_before(other, call)]
        begun = {other.answer.timestamp for other in self._answered() if other.began > call.ended}
        lowest = max(ended, default=0)
        highest = min(begun, default=NEVER)
        return [lowest, *(moment for moment in self._times if lowest < moment < highest)]

    def _answer_at(self, call: Call, moment: int) -> Any:
        rows = tables.state_of(self._models[call.step.table], moment)
        if call.step.kind == "sum":
            numbers = [n for _, n in rows.values() if n is not None]
            return len(rows), sum(numbers) if numbers else None
        if call.step.kind in ("scan", "stale"):
            return rows
        keys = call.step.given[0] if call.step.kind == "get_many" else call.step.given
        return {key: rows[key] for key in keys if key in rows}

    def _require(self, call: Call, expected: object, moment: int) -> None:
        if call.answer != expected:
            raise ViolationError(f"{call} at {moment} must answer {expected}")

    def _check_changes(self, call: Call) -> None:
        assert call.moment is not None and call.until is not None
        is_every = call.step.given[1]
        expected = [
            (change.op, change.timestamp, *(change.row[name] for name in tables.SCHEMA.names))
            for change in feed(self._models[call.step.table], call.moment, call.until, is_every)
        ]
        if sorted(map(str, call.answer)) != sorted(map(str, expected)):
            raise ViolationError(f"{call} until {call.until} must answer {expected}")


def _is_before(write: Call, read: Call) -> bool:
    """Whether a read must show a write: it had ended before, for the time by which the read may be behind."""
    if read.step.kind == "stale":
        return write.ended_seconds < read.began_seconds - read.step.given[0]
    return write.ended < read.began


def _has_changed(call: Call) -> bool:
    return bool(call.answer.applied or getattr(call.answer, "truncated", 0))


def _given(call: Call) -> tuple[Any, ...]:
    """Return the answer to a write as the model gives it."""
    answer = call.answer
    if call.step.kind == "transact":
        errors = sorted((error.part, error.row, error.code) for error in answer.errors)
    else:
        errors = [(error.row, error.code) for error in answer.errors]
    return answer.rows, answer.applied, answer.ignored, errors


def _changed(name: str, op: str, row: Row) -> tuple[object, ...]:
    return (name, op, row["k"]) if op == "delete" else (name, op, row["k"], str(row["v"]), str(row["n"]))


def _op(model: Oracle, key: tuple[Any, ...], row: Row | None) -> str:
    return "delete" if row is None else "update" if key in model.now() else "insert"

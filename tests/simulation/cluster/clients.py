"""Clients: they look for the server that has the store, as Nyala's clients do, and write down what they are told.

A *writer* numbers its writes, and repeats each until it has an answer. One that writes *once* repeats a write only if
the error says that nothing was applied; else its outcome stays unknown. Both repeat the calls of a transaction. A
*reader* asks who has the store, or always the same server, and waits long for that: also for one that is frozen, whose
answer comes when it goes on. A *maker* makes tables, and looks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, TypeVar

import nyala
from nyala.engine import threads
from nyala.flight_server.stores.replica_store import ReplicaStore
from nyala.schemas.errors import (
    AlreadyPresentError,
    NotFoundError,
    SnapshotTooOldError,
    StoreError,
    UnavailableError,
)
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand, WriteResult
from tests.simulation.store import tables
from tests.simulation.store.history import Call, History
from tests.simulation.store.plan import Actor, Step

from .member import Member, NoAnswerError
from .scenario import ONCE, READER, WRITER

T = TypeVar("T")
_ATTEMPT_SECONDS = (1.0, 3.0, 10.0)
_PATIENT_SECONDS = 60.0
_READ_ATTEMPTS = 8
_ELSEWHERE = 0.2
"""How often a client asks any server first, as a new client does."""
_PAUSE_SECONDS = 0.3


class Client:
    """One client and its steps."""

    def __init__(self, actor: Actor, members: Sequence[Member], history: History, random: Random) -> None:
        self._actor, self._members, self._history, self._random = actor, members, history, random
        self._is_numbered = actor.name.startswith(WRITER)
        self._is_once = actor.name.startswith(ONCE)
        place = actor.name.removeprefix(f"{READER} at ")
        self._only = members[int(place)] if place != actor.name and int(place) < len(members) else None
        self._at = 0

    def run(self) -> None:
        """Do all steps, one after the other."""
        for step in self._actor.steps:
            if step.kind == "sleep":
                threads.sleep(step.given[0])
            elif step.kind == "write":
                self._write(step)
            elif step.kind == "transact":
                self._transact(step)
            elif step.kind == "make":
                self._make(step)
            else:
                self._read(step)

    # Writes

    def _write(self, step: Step) -> None:
        call = self._history.begin(self._actor.name, step)
        op, rows, is_atomic, _ = step.given
        writer = self._actor.name if self._is_numbered else None
        command = WriteCommand(table=step.table, op=Operation(op), atomic=is_atomic, writer=writer)
        batch, seq = tables.batch_of(op, rows, call.number), call.number if self._is_numbered else None

        def write(store: StoreService) -> WriteResult:
            return store.write(command, batch, seq)

        while True:
            try:
                call.answer = self._ask(write)
            except NoAnswerError:
                is_unknown = True
            except UnavailableError as error:
                is_unknown = error.locations is None
            else:
                self._history.moments.append(call.answer.timestamp)
                self._history.end(call)
                return
            if is_unknown and not self._is_numbered:
                return

    def _transact(self, step: Step) -> None:
        """Stage parts, each of which may have an answer from another holder, and commit them all; repeat each call
        until it has an answer: a transaction is applied once."""
        call = self._history.begin(self._actor.name, step)
        writes, is_truncating = step.given
        name, parts = f"transaction {call.number}", [f"{number}" for number in range(len(writes))]
        for part, (table, op, rows) in zip(parts, writes, strict=True):
            command = WriteCommand(table=table, stage=Stage(transaction=name, part=part))
            batch = StagedBatch(tables.batch_of(op, rows, call.number), Operation(op))
            self.ask(partial(_staged, command, batch))
        truncated = [step.table] if is_truncating else []
        commit = TransactionCommit(transaction=name, parts=parts, truncate=truncated)
        call.answer = self.ask(lambda store: store.commit_transaction(commit))
        self._history.moments.append(call.answer.timestamp)
        self._history.end(call)

    def _make(self, step: Step) -> None:
        """Make a table, which each server that answers has from then on."""
        call = self._history.begin(self._actor.name, step)
        name = f"made {call.number}"

        def make(store: StoreService) -> None:
            with suppress(AlreadyPresentError):  # an earlier call made it, whose answer got lost
                nyala.Database(store).create_table(name, tables.SCHEMA, "k")

        self.ask(make)
        self._history.tables.append(name)
        self._history.end(call)

    # Reads and upkeep

    def _read(self, step: Step) -> None:
        for _ in range(1 if self._only else _READ_ATTEMPTS):
            call = self._history.begin(self._actor.name, step)
            try:
                call.answer = self._ask(self._work(call))
            except (NoAnswerError, UnavailableError, SnapshotTooOldError) as error:
                call.error = f"{type(error).__name__}: {error}"
                self._history.end(call)
            else:
                self._history.end(call)
                return

    def _work(self, call: Call) -> Callable[[StoreService], Any]:
        step, given = call.step, call.step.given
        if step.kind == "scan_at":
            moments = self._history.moments
            moment = call.moment = moments[int(given[1] * len(moments))]
            return lambda store: tables.rows_of(_table(store, step).scan(as_of=moment).to_arrow())
        if step.kind == "stale":
            return lambda store: tables.rows_of(_table(store, step).scan(max_staleness=given[0]).to_arrow())
        if step.kind == "scan":
            return lambda store: tables.rows_of(_table(store, step).scan().to_arrow())
        if step.kind == "get":
            return lambda store: _got(_table(store, step).get(given[0]))
        if step.kind == "find":
            names = self._history.tables or [step.table]
            name = names[int(given[0] * len(names))]
            return lambda store: _got_if_there(store, name)
        if step.kind == "now":
            return self._note_moment
        if step.kind == "sum":
            return lambda store: _sums(_table(store, step))
        assert step.kind == "maintain", step
        return lambda store: _table(store, step).maintain(given[0])

    def _note_moment(self, store: StoreService) -> int:
        moment = store.now()
        self._history.moments.append(moment)
        return moment

    # Who has the store

    def ask(self, work: Callable[[StoreService], T]) -> T:
        """Return the answer of the server that has the store, however long that takes."""
        while True:
            try:
                return self._ask(work)
            except (NoAnswerError, UnavailableError):
                continue

    def _ask(self, work: Callable[[StoreService], T]) -> T:
        """Ask one server, and look where to go next if it does not answer. Raises as `Member.ask`."""
        if self._random.random() < _ELSEWHERE:
            self._at = self._random.randrange(len(self._members))
        seconds = _PATIENT_SECONDS if self._only else self._random.choice(_ATTEMPT_SECONDS)
        try:
            return (self._only or self._members[self._at]).ask(work, seconds)
        except (NoAnswerError, StoreError) as error:
            locations = getattr(error, "locations", None) or []
            holders = [place for place, member in enumerate(self._members) if member.location in locations]
            self._at = holders[0] if holders else (self._at + 1) % len(self._members)
            threads.sleep(self._random.random() * _PAUSE_SECONDS)
            raise


def _table(store: StoreService, step: Step) -> nyala.Table:
    return nyala.Database(store).table(step.table)


def _staged(command: WriteCommand, batch: StagedBatch, store: StoreService) -> object:
    return store.stage(command, [batch])


def _got_if_there(store: StoreService, name: str) -> tables.Rows:
    try:
        return _got(nyala.Database(store).table(name).get(0))
    except NotFoundError as error:
        if isinstance(store, ReplicaStore):  # its names may be a lease old
            raise UnavailableError(error.message) from error
        raise


def _got(row: dict[str, Any] | None) -> tables.Rows:
    return {} if row is None else {row["k"]: (row["v"], row["n"])}


def _sums(table: nyala.Table) -> tuple[int, int | None]:
    answer = table.scan().aggregate({"rows": ("k", "count"), "total": ("n", "sum")}).to_pylist()[0]
    return answer["rows"], answer["total"]

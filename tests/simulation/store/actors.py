"""Actors: the calls of a plan, made on a store through its public doors, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pyarrow as pa

import nyala
from nyala.clients.convert.cells import python_rows
from nyala.engine import threads
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.store import Store
from nyala.schemas.errors import SnapshotTooOldError, StoreError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand, WriteResult
from tests.doubles.gathered_row import write_gathered
from tests.doubles.kept_reader import KeptReader

from . import tables
from .beside import open_beside
from .history import Call, History
from .plan import ASIDE, Actor, Step

_TIMES = 3
"""So often an actor gets a row that answers are kept of."""


class Company:
    """The actors of one life, and the store that they share."""

    def __init__(self, store: Store, disk: MemoryFileSystem, history: History, random: Random, are_kept: bool) -> None:
        """``are_kept``: rows are read by the answers that the store keeps."""
        self.store, self.history = store, history
        self._kept = KeptReader(store) if are_kept else None
        self.database = nyala.Database(store)
        self._disk = disk
        self._aside: dict[str, nyala.Database] = {}
        """How actors read the store that are not in its process."""
        self._random = random
        self._calls: dict[str, Callable[[Call], object]] = {
            "write": self._write,
            "transact": self._transact,
            "update_where": self._update_where,
            "delete_where": self._delete_where,
            "scan": self._scan,
            "scan_at": self._scan_at,
            "get": self._get,
            "get_many": self._get_many,
            "sum": self._sum,
            "changes": self._changes,
            "maintain": self._maintain,
            "alter": self._alter,
            "sleep": lambda call: threads.sleep(call.step.given[0]),
        }

    def run(self, life: tuple[Actor, ...]) -> None:
        """Let the actors do their steps side by side."""
        running = [threads.Thread(target=self._act, args=(actor,), name=actor.name) for actor in life]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    def _act(self, actor: Actor) -> None:
        if actor.name.startswith(ASIDE):
            with open_beside(self._disk) as self._aside[actor.name]:
                self._do(actor)
        else:
            self._do(actor)

    def _do(self, actor: Actor) -> None:
        are_plain = self._kept is None or actor.name in self._aside
        for step in actor.steps if are_plain else (each for given in actor.steps for each in _as_gets(given)):
            call = self.history.begin(actor.name, step)
            try:
                call.answer = self._calls[step.kind](call)
            except StoreError as error:
                call.error = f"{type(error).__name__}: {error}"
                if step.kind not in ("scan_at", "changes", "write") or not isinstance(error, SnapshotTooOldError):
                    raise
            self.history.end(call)

    def _database(self, call: Call) -> nyala.Database:
        return self._aside.get(call.actor, self.database)

    def _table(self, call: Call) -> nyala.Table:
        return self._database(call).table(call.step.table)

    def _moment(self, call: Call, place: float) -> int:
        """Return a moment that can be read at: one of those seen, or now."""
        moments = self.history.moments
        if not moments or place < 0.3:
            moments.append(self._database(call).now())
            return moments[-1]
        return moments[int(place * len(moments))]

    # Writes

    def _write(self, call: Call) -> WriteResult:
        op, rows, is_atomic, age = call.step.given
        if age is not None and len(self.history.moments) > age:
            call.moment = self.history.moments[-1 - age]
        command = WriteCommand(table=call.step.table, op=Operation(op), atomic=is_atomic, if_timestamp=call.moment)
        batch = tables.batch_of(op, rows, call.number)
        result = None
        way = self._random.random()
        if way < 0.5:
            values = list(python_rows(batch))
            if len(values) == 1 and way < 0.25:
                result = write_gathered(self.store, command, values[0], call.number)
            elif len(values) == 1:
                result = self.store.write_row(command, values[0])
            else:
                result = self.store.write_rows(command, values)
        answer = self.store.write(command, batch) if result is None else result
        self.history.moments.append(answer.timestamp)
        return answer

    def _transact(self, call: Call) -> object:
        writes, is_truncating = call.step.given
        name = f"transaction {call.number}"
        parts = []
        for number, (table, op, rows) in enumerate(writes):
            parts.append(f"{number}")
            command = WriteCommand(table=table, stage=Stage(transaction=name, part=parts[-1]))
            self.store.stage(command, [StagedBatch(tables.batch_of(op, rows, call.number), Operation(op))])
        truncate = [call.step.table] if is_truncating else []
        answer = self.store.commit_transaction(TransactionCommit(transaction=name, parts=parts, truncate=truncate))
        self.history.moments.append(answer.timestamp)
        return answer

    def _update_where(self, call: Call) -> object:
        low, high = call.step.given
        change = {"n": "coalesce(n, 0) + 1", "v": call.number}
        return self._table(call).update_where(change, where=f"k >= {low} and k < {high}")

    def _delete_where(self, call: Call) -> object:
        return self._table(call).delete_where(f"n = {call.step.given[0]}")

    # Reads

    def _scan(self, call: Call) -> tables.Rows:
        return self._rows(self._table(call).scan(ordered=call.step.given[0]).to_arrow(), call)

    def _scan_at(self, call: Call) -> tables.Rows:
        is_ordered, place = call.step.given
        call.moment = self._moment(call, place)
        scan = self._table(call).scan(as_of=call.moment, ordered=is_ordered)
        return self._rows(scan.to_arrow(), call, is_ordered)

    def _rows(self, table: pa.Table, call: Call, is_ordered: bool = False) -> tables.Rows:
        rows = tables.rows_of(table)
        assert not is_ordered or list(rows) == sorted(rows), f"rows are not in order: {call}"
        return rows

    def _get(self, call: Call) -> tables.Rows:
        key = call.step.given[0]
        kept = None if call.actor in self._aside else self._kept
        row = self._table(call).get(key) if kept is None else kept.get(call.step.table, [key])
        return {} if row is None else {row["k"]: (row["v"], row["n"])}

    def _get_many(self, call: Call) -> tables.Rows:
        keys = sorted(set(call.step.given[0]))
        return tables.rows_of(self._table(call).get_many(keys))

    def _sum(self, call: Call) -> tuple[int, int | None]:
        measures = {"rows": ("k", "count"), "total": ("n", "sum")}
        answer = self._table(call).scan().aggregate(measures).to_pylist()[0]
        return answer["rows"], answer["total"]

    def _changes(self, call: Call) -> list[tuple[object, ...]]:
        place, is_every = call.step.given
        first, second = self._moment(call, place), self._moment(call, place / 2)
        call.moment, call.until = min(first, second), max(first, second)
        changes = tables.changes(self._table(call), call.moment, call.until, is_every)
        return [tuple(row.values()) for row in changes]

    def _maintain(self, call: Call) -> None:
        self._table(call).maintain(call.step.given[0])

    def _alter(self, call: Call) -> None:
        """Add a column that nobody fills, or drop it."""
        table = self._table(call)
        alteration = table.alter()
        if tables.EXTRA in table.schema.names:
            alteration.drop_column(tables.EXTRA).apply()
        else:
            alteration.add_column(tables.EXTRA, pa.int64()).apply()


def _as_gets(step: Step) -> Iterator[Step]:
    """Yield the gets in place of a step that reads rows by their keys: each of a row again and again."""
    keys = {"get": step.given, "get_many": step.given and step.given[0]}.get(step.kind)
    if keys is None:
        yield step
    for key in sorted(set(keys or ())):
        yield from [Step("get", step.table, (key,))] * _TIMES

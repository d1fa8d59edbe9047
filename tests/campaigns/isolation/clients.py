"""Clients that read and write lists and registers in all public ways, and record what they did and saw."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

import nyala
from nyala.schemas.errors import ConflictError, RowErrors, UnavailableError
from tests.campaigns.isolation.history import (
    ABORTED,
    GONE,
    UNKNOWN,
    History,
    Key,
    State,
    Transaction,
)
from tests.campaigns.isolation.tables import PLACES, Keys, filter_of, rows, states_of, text_of

_REMEMBERED = 20


@dataclass(frozen=True)
class Workload:
    """Which ways of reading and writing a table has, and on which keys."""

    name: str
    are_lists: bool
    has_rows: bool
    writes: Sequence[str]
    reads: Sequence[str]
    one_place: bool = False
    """Whether each write is about rows of one p, so that one server has them."""
    may_be_partial: bool = False
    """Whether a write that is refused may be applied in part: on some of several servers."""
    staleness: float = 0.0
    """Scans may be answered by replicas that are so far behind, in seconds."""


@dataclass
class Shared:
    """What the clients of one table have in common."""

    workload: Workload
    keys: Keys = field(default_factory=Keys)
    transactions: list[Transaction] = field(default_factory=list)
    moments: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """Earlier times, to be read again."""
    counts: Counter[str] = field(default_factory=Counter)

    def history(self, database: nyala.Database, since: int) -> History:
        """Return the history of the table, when all clients have ended. A last client reads everything."""
        table, are_lists = database.table(self.workload.name), self.workload.are_lists
        began = time.monotonic()
        keys = {key for each in self.transactions for key in (*each.reads, *each.writes)}
        states = states_of(keys, table.scan().to_arrow(), are_lists)
        last = Transaction(-1, began, time.monotonic(), states, what="last read")
        history = [*self.transactions, last]
        return History(history, None if are_lists else _orders(table, since))


def _orders(table: nyala.Table, since: int) -> dict[Key, tuple[int, ...]]:
    orders: dict[Key, list[int]] = {}
    changes = table.changes(since, every=True).to_arrow().sort_by("_timestamp").to_pylist()
    for change in changes:
        value = GONE if change["_op"] == "delete" else change["v"]
        order = orders.setdefault((change["p"], change["k"]), [])
        if order[-1:] != [value]:  # or it was written again, unchanged
            order.append(value)
    return {key: tuple(order) for key, order in orders.items()}


class Client:
    """One client of one table."""

    def __init__(self, database: nyala.Database, shared: Shared, process: int, seed: int) -> None:
        self.database, self.shared, self.process = database, shared, process
        self.table = database.table(shared.workload.name)
        self.random = Random(seed)
        self._number = 0

    def run_until(self, stop: threading.Event) -> None:
        """Read and write."""
        load = self.shared.workload
        while not stop.is_set():
            kinds = load.writes if self.random.random() < 0.5 else load.reads
            name = self.random.choice(kinds)
            WAYS[name](self, name)

    @contextmanager
    def _recorded(self, what: str) -> Iterator[Transaction]:
        """Record what the body fills in; a call that finds no server may have done its writes or not."""
        each = Transaction(self.process, time.monotonic(), 0, what=what)
        try:
            yield each
        except (ConflictError, RowErrors) as error:
            if "CONFLICT" not in str(error) and not isinstance(error, ConflictError):
                raise
            each.outcome = UNKNOWN if self.shared.workload.may_be_partial else ABORTED
        except UnavailableError:
            each.outcome = UNKNOWN
            if not each.writes:
                self.shared.counts["reads without an answer"] += 1
                return
        each.ended = time.monotonic()
        self.shared.transactions.append(each)
        self.shared.counts[f"{what}, {each.outcome}"] += 1

    def _some(self, most: int) -> list[Key]:
        """Return some keys of those that change."""
        places = [self.random.randrange(PLACES)] if self.shared.workload.one_place else range(PLACES)
        return self.random.sample(self._keys(places), self.random.randrange(1, most + 1))

    def _keys(self, places: Collection[int] = range(PLACES)) -> list[Key]:
        window = self.shared.keys.window(places)
        return [*window, *self.shared.keys.doomed(places)] if "drop" in self.shared.workload.writes else window

    def _scan(self, keys: Sequence[Key], moment: int | None = None, staleness: float | None = None) -> dict[Key, State]:
        scan = self.table.scan(where=filter_of(keys), as_of=moment, max_staleness=staleness)
        return states_of(keys, scan.to_arrow(), self.shared.workload.are_lists)

    def _next(self, state: State, value: int) -> State:
        return (*state, value) if isinstance(state, tuple) else value

    # Reads

    def scan_now(self, what: str) -> None:
        with self._recorded(what) as each:
            each.reads = self._scan(self._keys())

    def scan_moment(self, what: str) -> None:
        with self._recorded(what) as each:
            moment = self.database.now()
            each.reads = self._scan(self._keys(), moment)
            self.shared.moments.append(moment)

    def scan_past(self, what: str) -> None:
        if moments := list(self.shared.moments):
            with self._recorded(what) as each:
                each.staleness = math.inf
                each.reads = self._scan(self._keys(), self.random.choice(moments))

    def scan_stale(self, what: str) -> None:
        with self._recorded(what) as each:
            each.staleness = self.random.choice((0.0, self.shared.workload.staleness))
            each.reads = self._scan(self._keys(), None, each.staleness)

    def get(self, what: str) -> None:
        with self._recorded(what) as each:
            key = self.random.choice(self._keys())
            each.reads = self._rows([self.table.get(key)], [key])

    def get_many(self, what: str) -> None:
        with self._recorded(what) as each:
            keys = self._some(4)
            each.reads = self._rows(self.table.get_many(keys).to_pylist(), keys)

    def get_everywhere(self, what: str) -> None:
        with self._recorded(what) as each:
            keys = self._keys()
            each.reads = self._rows(self.table.get_many(keys).to_pylist(), keys)

    def _rows(self, read: Sequence[Mapping | None], keys: Sequence[Key]) -> dict[Key, State]:
        present = [row for row in read if row is not None]
        schema = self.table.schema
        return states_of(keys, pa.Table.from_pylist(present, schema), self.shared.workload.are_lists)

    # Writes

    def batch(self, what: str) -> None:
        """Write without a look, all or nothing: lists by a merge."""
        with self._recorded("batch") as each:
            value, keys = self.shared.keys.value(), self._some(3)
            each.writes = dict.fromkeys(keys, (value,))
            self._write(each, what)

    def numbered(self, what: str) -> None:
        """The same, sent twice under one number."""
        with self._recorded("batch") as each:
            value, keys = self.shared.keys.value(), self._some(3)
            each.writes = dict.fromkeys(keys, (value,))
            self._number += 1
            how = {"writer": f"client {self.process}", "seq": self._number}
            self._write(each, what, **how)
            self._write(each, what, **how)

    def _write(self, each: Transaction, what: str, **how) -> None:
        are_lists = self.shared.workload.are_lists
        data = rows({key: values if are_lists else values[0] for key, values in each.writes.items()})
        (self.table.merge if are_lists else self.table.upsert)(data, **how)

    def conditional(self, what: str) -> None:
        """Read rows and write them, if nobody has changed them since."""
        with self._recorded("batch") as each:
            moment = self.database.now()
            each.reads = self._scan(self._some(3), moment)
            value = self.shared.keys.value()
            data = rows({key: self._next(state, value) for key, state in each.reads.items()})
            each.writes = dict.fromkeys(each.reads, (value,))
            self.table.upsert(data, atomic=True, if_timestamp=moment)

    def statement(self, what: str) -> None:
        """Change rows by a filter: lists grow by what they hold then."""
        with self._recorded("batch") as each:
            p, first = self.random.choice(self.shared.keys.window())
            last = first + self.random.randrange(3)
            where = f"k BETWEEN {first} AND {last}" + (f" AND p = {p}" if self.shared.workload.one_place else "")
            places = [p] if self.shared.workload.one_place else range(PLACES)
            value = self.shared.keys.value()
            each.writes = {(place, k): (value,) for place in places for k in range(first, last + 1)}
            change = f"v || '{text_of((value,))}'" if self.shared.workload.are_lists else value
            result = self.table.update_where({"v": change}, where=where)
            assert result.applied == len(each.writes), f"{where} matched {result.applied} of {len(each.writes)} rows"

    def drop(self, what: str) -> None:
        """Delete rows by a filter."""
        with self._recorded("batch") as each:
            k = self.shared.keys.to_drop()
            places = [self.random.randrange(PLACES)] if self.shared.workload.one_place else range(PLACES)
            each.writes = {(p, k): (GONE,) for p in places}
            self.table.delete_where(f"k = {k} AND p IN ({', '.join(map(str, places))})")

    def transaction(self, what: str) -> None:
        """Read several rows and write some of them, and others, if nobody has changed these since."""
        self._transact(what, is_guarded=False)

    def guarded(self, what: str) -> None:
        """The same, which also writes the rows that it reads, unchanged: so none of them may change."""
        self._transact(what, is_guarded=True)

    def _transact(self, what: str, is_guarded: bool) -> None:
        with self._recorded("transaction") as each:
            moment = self.database.now()
            to_write = self._some(2)
            places = {p for p, _ in to_write} if is_guarded else range(PLACES)
            others = self.random.sample(self.shared.keys.window(places), 2)
            reads = self._scan([*{*to_write, *others}], moment)
            is_twice = self.random.random() < 0.2
            writes: dict[Key, tuple[int, ...]] = {}
            with self.database.transaction(if_timestamp=moment) as transaction:
                if is_guarded:
                    transaction.upsert(self.table, rows({key: reads[key] for key in others if key not in to_write}))
                states = {key: reads[key] for key in to_write}
                for _ in range(1 + is_twice):
                    value = self.shared.keys.value()
                    states = {key: self._next(state, value) for key, state in states.items()}
                    writes = {key: (*writes.get(key, ()), value) for key in to_write}
                    each.reads, each.writes = reads, writes
                    transaction.upsert(self.table, rows(states))


WAYS: dict[str, Callable[[Client, str], None]] = {
    "scan": Client.scan_now,
    "scan of a moment": Client.scan_moment,
    "scan of the past": Client.scan_past,
    "stale scan": Client.scan_stale,
    "get": Client.get,
    "get_many": Client.get_many,
    "get_many everywhere": Client.get_everywhere,
    "batch": Client.batch,
    "numbered": Client.numbered,
    "conditional": Client.conditional,
    "statement": Client.statement,
    "drop": Client.drop,
    "transaction": Client.transaction,
    "guarded": Client.guarded,
}

"""Clients of a store whose servers fail: they write, read and follow, and check what they see.

Writers send numbered batches until they are acknowledged; readers ask one server each, whether it has the store or
not: what it answers must be right. A client's first failure goes to ``fail``. ``calm`` times longer are their pauses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random

import pyarrow as pa

import nyala
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.crash.kill9 import Writer
from tests.campaigns.crash.retries import FEED
from tests.campaigns.failover.callers import Answers, Caller, Connection
from tests.campaigns.failover.history import Registers, Rows, Snapshot, Snapshots
from tests.campaigns.failover.member import Member

REGISTERS = pa.schema([pa.field("k", pa.int32(), False), ("v", pa.int64())])
_READ_PAUSE_SECONDS = 0.01
_WRITE_PAUSE_SECONDS = 0.005
_FOLLOW_SECONDS = 0.3
_POINTS = 100


class NumberedWriter(Writer):
    """Writes its own rows, each batch once, however often it is sent."""

    def run_until(self, caller: Caller, answers: Answers, stop: threading.Event, calm: float = 1) -> None:
        """Write until ``stop`` is set."""
        name, seq = f"writer-{self.number}", 0
        while not stop.is_set():
            op, rows = self.draw()
            plan = self.oracle.plan(op, rows)
            result, life = caller.write("t", rows, op, name, seq)
            answers.add(life)
            assert (result.rows, result.applied, result.ignored, result.errors) == plan.answer, (op, rows, result, life)
            self.oracle.commit(plan, result.timestamp)
            self.acknowledged += 1
            seq += 1
            time.sleep(calm * _WRITE_PAUSE_SECONDS)


def write_registers(
    mine: Sequence[int],
    registers: Registers,
    caller: Caller,
    answers: Answers,
    random: Random,
    stop: threading.Event,
    calm: float = 1,
) -> None:
    """Raise one register after the other until ``stop`` is set."""
    name, seq = f"registers-{mine[0]}", 0
    while not stop.is_set():
        register = random.choice(mine)
        value = registers.send(register)
        result, life = caller.write("r", [{"k": register, "v": value}], "upsert", name, seq)
        assert result.applied == 1, result
        registers.acknowledge(register, value, result.timestamp)
        answers.add(life)
        seq += 1
        time.sleep(calm * _WRITE_PAUSE_SECONDS)


class Reader:
    """Reads from one server, in all ways, as fast as that answers."""

    def __init__(self, member: Member, registers: Registers, snapshots: Snapshots, random: Random) -> None:
        self._connection = Connection(member)
        self._registers, self._snapshots, self._random = registers, snapshots, random
        self.refused = 0

    def run_until(self, stop: threading.Event, calm: float = 1) -> None:
        """Read until ``stop`` is set."""
        ways = [*[self._all_now, self._one_now, self._again] * 2, self._handed_out, self._points]
        while not stop.is_set():
            try:
                self._random.choice(ways)()
            except UnavailableError:
                self.refused += 1
                time.sleep(5 * _READ_PAUSE_SECONDS)
            time.sleep(calm * _READ_PAUSE_SECONDS)

    def _all_now(self) -> None:
        before = self._registers.before()
        rows, life = self._connection.ask(registers_at)
        self._registers.check(before, dict(rows), life)

    def _one_now(self) -> None:
        before, register = self._registers.before(), self._random.randrange(len(self._registers))
        row, life = self._connection.ask(lambda db: db.table("r").get(register))
        assert row is not None, f"register {register} is gone at server {life}"
        self._registers.check(before, {register: row["v"]}, life)

    def _handed_out(self) -> None:
        before = self._registers.before()
        moment, life = self._connection.ask(lambda db: db.now())
        rows, life = self._connection.ask(partial(registers_at, as_of=moment))
        self._registers.check(before, dict(rows), life)
        others, life = self._connection.ask(partial(others_at, as_of=moment))
        self._snapshots.add(Snapshot(moment, rows, others, life))

    def _again(self) -> None:
        known = self._snapshots.any()
        if known is not None:
            rows, life = self._connection.ask(partial(registers_at, as_of=known.timestamp))
            others, life = self._connection.ask(partial(others_at, as_of=known.timestamp))
            self._snapshots.check(known, rows, others, life)

    def _points(self) -> None:
        known = self._snapshots.any()
        if known is not None:
            asked = tuple(self._random.choices(known.rows, k=_POINTS))
            found, life = self._connection.ask(lambda db: points_at(db, asked, known.timestamp))
            self._snapshots.check_points(known, asked, found, life)


def registers_at(database: nyala.Database, as_of: int | None = None) -> Rows:
    """Return all registers, in order."""
    rows = database.table("r").scan(as_of=as_of).to_arrow().to_pylist()
    return tuple(sorted((row["k"], row["v"]) for row in rows))


def points_at(database: nyala.Database, asked: Rows, as_of: int) -> Rows:
    """Return registers, each read by a scan of its key."""
    table = database.table("r")
    found = [table.scan(where=f"k = {register}", as_of=as_of).to_arrow().to_pylist() for register, _ in asked]
    return tuple((row["k"], row["v"]) for rows in found for row in rows)


def others_at(database: nyala.Database, as_of: int | None = None) -> tuple[int, int]:
    """Return the number of rows of the large table, and the sum of a column."""
    found = database.table("t").scan(as_of=as_of).aggregate({"n": ("number", "count"), "s": ("batch", "sum")})
    return found["n"][0].as_py(), found["s"][0].as_py() or 0


class Follower:
    """Follows the change feed of the large table, each call from where the one before ended, whoever answers."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.rows: list[tuple] = []

    def run_until(self, caller: Caller, stop: threading.Event) -> None:
        """Follow until ``stop`` is set, and once more."""
        while not stop.wait(_FOLLOW_SECONDS):
            self.follow(caller)

    def follow(self, caller: Caller) -> None:
        """Take what is new."""
        (rows, until), _ = caller.ask(lambda db: changes_of(db, self.since))
        self.rows += rows
        self.since = until


def changes_of(database: nyala.Database, since: int, until: int | None = None) -> tuple[list[tuple], int]:
    """Return every change of the large table since a timestamp, and up to which one."""
    scan = database.table("t").changes(since, until, every=True, ordered=True)
    found = scan.to_arrow()
    assert found.schema.names == list(FEED)
    assert scan.snapshot is not None, "a scan that was read has a snapshot"
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True)), scan.snapshot


def maintain_until(caller: Caller, random: Random, stop: threading.Event, calm: float = 1) -> None:
    """Flush and merge at random times until ``stop`` is set."""
    while not stop.wait(calm * random.uniform(0.05, 0.4)):
        table, kind = random.choice("tr"), random.choice(list(MaintenanceKind))
        with suppress(StoreError):  # it ran into a fault: nobody waits for its answer
            caller.ask(lambda db, table=table, kind=kind: db.table(table).maintain(kind))


def started(work: Callable[[], None], fail: Callable[[BaseException], None], name: str) -> threading.Thread:
    """Run one client's work in a thread."""

    def run() -> None:
        try:
            work()
        except BaseException as error:  # the main thread raises it
            fail(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread

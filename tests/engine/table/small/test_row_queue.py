"""Single rows that wait for the log are committed together, and no answer, row or snapshot shows it."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.commit.commit_log import CommitLog
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.native.page_rows import PageRows
from nyala.engine.store import Store
from nyala.engine.table.small import row_commit
from nyala.engine.table.small.row_commit import RowWrite
from nyala.engine.table.small.row_queue import RowQueue
from nyala.engine.wal import writer
from nyala.engine.wal.turn import Turn
from nyala.schemas.errors import InternalError, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import Durability, WriteCommand, WriteResult
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.doubles.waiting import until
from tests.engine.table.small.asked import Asked, create

SCHEMA = pa.schema([pa.field("k", pa.int32(), False), pa.field("n", pa.int64()), ("s", pa.string())])
Row = tuple[Any, ...]


@dataclass
class OneRow(Asked):
    """A write of one row."""

    op: str
    row: Row
    table: str = "t"
    number: int | None = None

    def write(self, store: Store) -> WriteResult:
        writer = None if self.number is None else "writer"
        command = WriteCommand(table=self.table, op=Operation(self.op), writer=writer)
        cells = dict(zip(SCHEMA.names, self.row, strict=False))
        result = store.write_row(command, cells, self.number)
        if result is not None:
            return result
        schema = pa.schema([SCHEMA.field(name) for name in cells])
        return store.write(command, pa.RecordBatch.from_pylist([cells], schema), self.number)


def opened(fs: Any, buckets: int = 0, **options: Any) -> Store:
    store = Store.open(fs, StoreOptions(maintenance="off", **options))
    for name in ("t", "u"):
        create(store, name, SCHEMA, buckets)
        OneRow("upsert", (-1, 0, "first"), name).run(store)
    return store


@pytest.fixture
def store() -> Iterator[Store]:
    with opened(MemoryFileSystem()) as store:
        yield store


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows wait for a leader, even if each leads itself."""
    monkeypatch.setattr(CommitLog, "is_crowded", True)


def queue_of(store: Store) -> RowQueue:
    return store._writes._rows._queue


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold back whoever syncs, so that rows queue up behind it."""
    gate, real = threading.Event(), MemoryWritableFile.sync

    def sync(file: MemoryWritableFile) -> None:
        assert gate.wait(30)
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryWritableFile, "sync", sync)
        try:
            yield
        finally:
            gate.set()


def together(store: Store, writes: list[OneRow], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make the writes at once, behind one more; return how many rows were committed together each time."""
    rows, sizes, real = queue_of(store)._rows, list[int](), row_commit.commit_rows

    def commit_rows(those: list[RowWrite], *how: Any) -> None:
        real(those, *how)
        sizes.append(sum(row.timestamp > 0 for row in those))

    threads = [threading.Thread(target=each.run, args=(store,)) for each in (OneRow("upsert", (-1, 0, "")), *writes)]
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "is_crowded", property(lambda log: log._wal.turns.leader is not None))
        patch.setattr(
            "nyala.engine.table.small.row_queue.commit_rows", lambda *how, may_wait: commit_rows(*how, may_wait)
        )
        with held(monkeypatch):
            for number, thread in enumerate(threads):
                thread.start()
                until(lambda number=number: len(rows) == number and store._wal.writer.turns.leader is not None)
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert not rows
    return sizes


def rows_of(store: Store, as_of: int | None = None, table: str = "t") -> list[Row]:
    columns = store.scan(ScanSpec(table=table, ordered=True, as_of=as_of)).to_reader().read_all().to_pydict()
    return [row for row in zip(*columns.values(), strict=True) if row[0] >= 0]


def random_write(random: Random) -> OneRow:
    op = random.choice(["insert", "upsert", "upsert", "update", "delete", "insert_ignore", "delete_ignore"])
    key = random.randrange(16)
    number = None if random.random() < 0.2 else random.randrange(100)
    row = (key,) if op.startswith("delete") else (key, number, f"{op} {key}")
    return OneRow(op, row if random.random() < 0.8 else row[:2])


@pytest.mark.parametrize("buckets", [0, 3])
def test_rows_answer_as_one_by_one(monkeypatch: pytest.MonkeyPatch, buckets: int) -> None:
    """In the order of their commits: a row that the batch lane judges comes later than those it waited with."""
    random, grouped = Random(7), 0
    with opened(MemoryFileSystem(), buckets) as combined, opened(MemoryFileSystem(), buckets) as single:
        for step in range(12):
            writes = [random_write(random) for _ in range(10)]
            grouped += sum(size for size in together(combined, writes, monkeypatch) if size > 1)
            order = sorted((each for each in writes), key=lambda each: each.result.timestamp)
            again = [OneRow(each.op, each.row) for each in order]
            for each in again:
                each.run(single)
            changed = [(mine, other) for mine, other in zip(order, again, strict=True) if mine.result.applied]
            assert all(mine.answer() == other.answer() for mine, other in changed)
            assert rows_of(combined) == rows_of(single)
            if step == 6:
                for store in (combined, single):
                    store.maintain("t", "flush")
    assert grouped > 30


def test_each_row_is_a_commit_of_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [OneRow("insert", (key, key, "new")) for key in range(12)]
    groups = store._wal.stats().groups
    assert together(store, writes, monkeypatch) == [12]
    assert store._wal.stats().groups - groups == 2
    times = [each.result.timestamp for each in writes]
    assert times == sorted(set(times)), "in the order in which they came"
    for count, timestamp in enumerate(times, 1):
        assert rows_of(store, timestamp) == [(key, key, "new") for key in range(count)]
    assert store.last_change("t") == times[-1]


def test_rows_of_several_tables_share_a_sync(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [OneRow("insert", (key, key, "x"), "tu"[key % 2]) for key in range(8)]
    groups = store._wal.stats().groups
    assert together(store, writes, monkeypatch) == [4, 4]
    assert store._wal.stats().groups - groups == 2
    assert [len(rows_of(store, table=name)) for name in "tu"] == [4, 4]


def test_rows_of_one_key_apply_one_after_the_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    inserts = [OneRow("insert", (1, number, "x")) for number in range(6)]
    assert together(store, inserts, monkeypatch) == [1, 0, 0, 0, 0, 0]
    assert [each.result.applied for each in inserts] == [1] + [0] * 5
    assert all(each.result.errors[0].code == "ALREADY_PRESENT" for each in inserts[1:])
    upserts = [OneRow("upsert", (2, number, "y")) for number in range(6)]
    assert together(store, upserts, monkeypatch) == [1] * 6
    assert rows_of(store) == [(1, 0, "x"), (2, 5, "y")]
    for number, each in enumerate(upserts):
        assert rows_of(store, each.result.timestamp)[-1] == (2, number, "y")


def test_few_writers_commit_their_rows_themselves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_LINGER_SECONDS", 30)  # the log's own thread would wait beside them
    writes, rows, turns = [OneRow("insert", (key, 0, "x")) for key in range(16)], queue_of(store)._rows, []
    threads = [threading.Thread(target=each.run, args=(store,)) for each in writes]
    with held(monkeypatch):
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda number=number: len(store._wal.writer.turns.waiting) == number)
            turns.append(len(rows))
    for thread in threads:
        thread.join(30)
    assert turns == [0] * 9 + list(range(1, 8)), "the first writes, and eight are no crowd"
    assert [each.result.applied for each in writes] == [1] * 16


def test_numbered_rows_wait_and_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few there are; a repeated one, in the same group, later or after a restart, gets the first answer."""
    fs = MemoryFileSystem()
    with opened(fs) as store:
        first = [OneRow("upsert", (key, key, "numbered"), number=key) for key in range(3)]
        again = OneRow("upsert", (0, 0, "numbered"), number=0)
        threads = [threading.Thread(target=each.run, args=(store,)) for each in (OneRow("upsert", (-1, 0, "")), *first)]
        repeated, rows = threading.Thread(target=again.run, args=(store,)), queue_of(store)._rows
        with held(monkeypatch):
            for number, thread in enumerate(threads):
                thread.start()
                until(lambda number=number: len(rows) == number and store._wal.writer.turns.leader is not None)
            repeated.start()
        for thread in (*threads, repeated):
            thread.join(30)
        times = [each.result.timestamp for each in first]
        assert times == sorted(set(times)), "commits of their own"
        later = OneRow("upsert", (1, 1, "numbered"), number=1)
        later.run(store)
    with opened(fs) as store:
        restarted = OneRow("upsert", (2, 2, "numbered"), number=2)
        restarted.run(store)
        assert [each.result for each in (again, later, restarted)] == [each.result for each in first]
        assert rows_of(store) == [(key, key, "numbered") for key in range(3)]


@pytest.mark.usefixtures("queued")
def test_a_busy_tablet_holds_up_no_other(store: Store) -> None:
    busy, others = OneRow("insert", (1, 1, "x"), "u"), [OneRow("insert", (key, 0, "x")) for key in range(3)]
    (tablet,) = store._catalog.table("u").tablets
    thread = threading.Thread(target=busy.run, args=(store,))
    with tablet.write_lock:
        thread.start()
        until(lambda: store._wal.writer.turns.leader is None and not queue_of(store)._rows)
        for each in others:
            each.run(store)
        assert [each.result.applied for each in others] == [1, 1, 1] and not busy.outcome
    thread.join(30)
    assert busy.result.applied == 1


def test_a_cold_row_of_a_table_holds_up_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader reads nothing from the disk: whose row needs it reads it, and the next ones find it in memory."""
    cold = [OneRow("upsert", (key, 1, "x"), number=key) for key in range(3)]
    for each in cold:
        OneRow("upsert", (*each.row[:2], "old")).run(store)
    store.maintain("t", "flush")
    first = OneRow("upsert", cold[0].row, number=9)
    first.run(store)  # builds the index, and the plan
    (tablet,) = store._catalog.table("t").tablets
    for rowset in tablet.version.on_disk:
        rowset._page_rows.clear()
    gate, reading, real = threading.Event(), threading.Event(), PageRows._loaded

    def loaded(rows: PageRows, number: int, row: int | None) -> Any:
        reading.set()
        assert gate.wait(30)
        return real(rows, number, row)

    monkeypatch.setattr(PageRows, "_loaded", loaded)
    slow, other = (
        threading.Thread(target=each.run, args=(store,)) for each in (cold[0], OneRow("upsert", (1, 1), "u"))
    )
    slow.start()
    assert reading.wait(30)
    other.start()
    other.join(10)
    is_held_up = other.is_alive()
    gate.set()
    for thread in (slow, other):
        thread.join(30)
    assert not is_held_up
    assert [each.result.applied for each in (first, cold[0])] == [1, 1]
    assert together(store, cold[1:], monkeypatch) == [2], "rows that are warm need no thread of their own"


def test_a_full_log_queue_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(MemoryFileSystem(), wal_segment_bytes=1 << 16) as store:
        store._wal.writer._queue_bytes = 256
        writes = [OneRow("insert", (key, key, "x" * 40)) for key in range(12)]
        together(store, writes, monkeypatch)
        assert [each.result.applied for each in writes] == [1] * 12
        assert store._wal.writer._admitted == 0


@pytest.mark.usefixtures("queued")
def test_a_failed_sync_acknowledges_no_row() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    store = opened(fs)
    fs.rules.append(FaultRule(calls=frozenset({"sync"}), path="wal/*", error=errno.EIO, sticky=True))
    fs._matched.append(0)
    writes = [OneRow("upsert", (key, key, "x")) for key in range(8)]
    threads = [threading.Thread(target=each.run, args=(store,)) for each in writes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(isinstance(each.outcome[0], UnavailableError) for each in writes), writes
    assert rows_of(store) == []
    OneRow("upsert", (9, 9, "later")).run(store)
    assert not queue_of(store)._rows, "nothing is kept for a leader that never comes"
    store.close()
    with opened(disk.crash_image(Random(3))) as restarted:
        assert rows_of(restarted) == []


def test_rows_that_could_not_be_applied_stop_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    store = opened(disk)
    real, calls = row_commit.apply_row, list[int]()

    def apply_row(*what: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError
        real(*what)

    monkeypatch.setattr(row_commit, "apply_row", apply_row)
    writes = [OneRow("insert", (key, key, "x")) for key in range(4)]
    together(store, writes, monkeypatch)
    assert all(isinstance(each.outcome[0], InternalError) for each in writes), writes
    late = OneRow("insert", (9, 9, "late"))
    late.run(store)
    assert isinstance(late.outcome[0], UnavailableError)
    assert rows_of(store) == []
    store.close()
    monkeypatch.undo()
    with opened(disk) as restarted:
        assert rows_of(restarted) == [(key, key, "x") for key in range(4)], "they are in the log"


class Alarm(Exception):
    """What the handler of a signal may raise."""


@pytest.mark.usefixtures("queued")
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Alarm])
@pytest.mark.parametrize("where", ["_gather", "commit_rows", "_decided", "find_row"])
def test_an_interrupted_leader_leaves_the_rows_to_another(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str, interrupt: type[BaseException]
) -> None:
    """The main thread leads and is interrupted; the row of the other thread is written all the same, once."""
    owner: Any = {"_gather": RowQueue, "commit_rows": "nyala.engine.table.small.row_queue"}.get(where, row_commit)
    name = f"{owner}.{where}" if isinstance(owner, str) else None
    real = row_commit.commit_rows if name else getattr(owner, where)
    other, interrupts = OneRow("insert", (5, 5, "other")), iter([interrupt])
    thread = threading.Thread(target=other.run, args=(store,))

    def interrupted(*what: Any, **how: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            for one in interrupts:
                thread.start()
                until(lambda: len(queue_of(store)._rows) == 2)
                raise one
        return real(*what, **how)

    with monkeypatch.context() as patch:
        patch.setattr(name, interrupted) if name else patch.setattr(owner, where, interrupted)
        if where == "_gather":
            store._wal.writer.gatherer = lambda: interrupted(queue_of(store))
        with pytest.raises(interrupt):
            store.write_row(WriteCommand(table="t", op=Operation.INSERT), {"k": 1, "n": 1, "s": "mine"})
        thread.join(30)
    assert other.result.applied == 1
    OneRow("upsert", (7, 7, "later")).run(store)
    assert not queue_of(store)._rows
    assert [row[0] for row in rows_of(store) if row[0] != 1] == [5, 7]
    (tablet,) = store._catalog.table("t").tablets
    assert not tablet.write_lock.locked()


def test_an_interrupted_number_that_a_leader_has_taken_is_applied_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread leaves when its fate is known: sent again, it gets the answer."""
    monkeypatch.setattr(writer, "_LINGER_SECONDS", 30)  # the log's own thread would wait beside them
    rows, turns = queue_of(store)._rows, store._wal.writer.turns
    real_commit, real_wait = row_commit.commit_rows, Turn.wait
    taken, is_sent_again = threading.Event(), threading.Event()
    last_lsn = store._wal.writer.last_lsn
    first, again = OneRow("upsert", (1, 1, "mine"), number=1), OneRow("upsert", (1, 1, "mine"), number=1)
    writes = [OneRow("upsert", (-1, 0, "")), OneRow("insert", (2, 2, "other"), number=2)]

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            first.run(store)
        is_sent_again.set()
        again.run(store)

    victim = threading.Thread(target=interrupted)

    def wait(turn: Turn, seconds: float) -> None:
        if threading.current_thread() is victim and not is_sent_again.is_set():
            assert taken.wait(30)
            raise KeyboardInterrupt
        real_wait(turn, seconds)

    def commit_rows(those: list[RowWrite], log: CommitLog, durability: Durability, may_wait: bool) -> None:
        if len(those) == 2:
            taken.set()
            is_sent_again.wait(0.3)
            time.sleep(0.1)
        real_commit(those, log, durability, may_wait)

    monkeypatch.setattr(Turn, "wait", wait)
    monkeypatch.setattr("nyala.engine.table.small.row_queue.commit_rows", commit_rows)
    threads = [*(threading.Thread(target=each.run, args=(store,)) for each in writes), victim]
    with held(monkeypatch):
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda number=number: turns.leader is not None and len(rows) == number <= len(turns.waiting))
    for thread in threads:
        thread.join(30)
    assert taken.is_set() and not first.outcome
    assert (again.result.applied, store._wal.writer.last_lsn - last_lsn) == (1, 3)
    assert not rows


def test_crashes_keep_what_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryFileSystem()
    acknowledged: list[Row] = []
    with opened(disk) as store:
        for step in range(4):
            writes = [OneRow("upsert", (8 * step + key, step, "x")) for key in range(8)]
            assert together(store, writes, monkeypatch) == [8]
            acknowledged += [each.row for each in writes]
            for seed in range(5):
                with opened(disk.crash_image(Random(seed))) as restarted:
                    assert rows_of(restarted) == acknowledged


def test_many_writers_of_rows() -> None:
    disk = MemoryFileSystem()
    threads, steps = 16, 25
    failures: list[BaseException] = []
    times: list[int] = []

    def write(store: Store, number: int) -> None:
        try:
            for step in range(steps):
                for key in (number * steps + step, 1_000_000):
                    one = OneRow("upsert", (key, number, "x"))
                    one.run(store)
                    assert (one.result.applied, one.result.errors) == (1, [])
                    times.append(one.result.timestamp)
                    if key < 1_000_000:
                        assert (key, number, "x") in rows_of(store, one.result.timestamp)
        except BaseException as error:
            failures.append(error)

    with opened(disk, buckets=2) as store:
        running = [threading.Thread(target=write, args=(store, number)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert not failures
        assert len(set(times)) == 2 * threads * steps
        found = rows_of(store)
        assert len(found) == threads * steps + 1
        assert not queue_of(store)._rows
    with opened(disk) as restarted:
        assert rows_of(restarted) == found

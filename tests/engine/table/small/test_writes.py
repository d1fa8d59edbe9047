"""Small writes of several threads at once, by the batch lane: each is a commit of its own, as if it were alone."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import FileSystem, MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table.small.row_writes import RowWrites
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import Durability, WriteCommand, WriteResult
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.table.small.asked import Asked, create

SCHEMA = pa.schema([pa.field("k", pa.int32(), False), pa.field("n", pa.int64(), False), ("s", pa.string())])
OPTIONS = StoreOptions(maintenance="off")
Row = tuple[Any, ...]


@dataclass
class Batch(Asked):
    """A write of a batch."""

    op: str
    rows: list[Row]
    names: tuple[str, ...] = ("k", "n", "s")
    writer: str | None = None
    seq: int | None = None
    table: str = "t"

    @property
    def batch(self) -> pa.RecordBatch:
        schema = pa.schema([SCHEMA.field(name).with_nullable(True) for name in self.names])
        columns = [[row[place] for row in self.rows] for place in range(len(self.names))]
        arrays = [pa.array(cells, kind) for cells, kind in zip(columns, schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def write(self, store: Store) -> WriteResult:
        command = WriteCommand(table=self.table, op=Operation(self.op), writer=self.writer)
        return store.write(command, self.batch, self.seq)


def opened(fs: FileSystem, buckets: int = 0) -> Store:
    """Open a store with the table ``t``."""
    store = Store.open(fs, OPTIONS)
    create(store, "t", SCHEMA, buckets)
    return store


@pytest.fixture(autouse=True)
def _rows_are_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows take the batch lane, as those of other types do."""
    monkeypatch.setattr(RowWrites, "begin_batch", lambda *_: None)


@pytest.fixture
def store() -> Iterator[Store]:
    with opened(MemoryFileSystem()) as store:
        yield store


def together(store: Store, writes: list[Batch]) -> None:
    """Make the writes at once, each in a thread."""
    threads = [threading.Thread(target=each.run, args=(store,)) for each in writes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def rows(store: Store, as_of: int | None = None) -> list[Row]:
    columns = store.scan(ScanSpec(table="t", ordered=True, as_of=as_of)).to_reader().read_all().to_pydict()
    return [row for row in zip(*columns.values(), strict=True) if row[0] >= 0]


def random_write(random: Random, keys: list[int]) -> Batch:
    """Return a write of some of the keys, which are removed from the list."""
    mine = [keys.pop() for _ in range(min(len(keys), random.choice((1, 1, 1, 2, 3))))]
    if random.random() < 0.2:
        mine += mine[:1]
    op = random.choice(["insert", "upsert", "upsert", "update", "delete", "insert_ignore", "delete_ignore"])
    if op.startswith("delete"):
        return Batch(op, [(key,) for key in mine], ("k",))
    numbers = [None if random.random() < 0.1 else random.randrange(100) for _ in mine]
    cells = [(key, number, f"{op} {key}") for key, number in zip(mine, numbers, strict=True)]
    return Batch(op, cells) if random.random() < 0.8 else Batch(op, [row[:2] for row in cells], ("k", "n"))


@pytest.mark.parametrize("buckets", [0, 3])
def test_writes_at_once_answer_as_one_by_one(buckets: int) -> None:
    random = Random(7)
    with opened(MemoryFileSystem(), buckets) as several, opened(MemoryFileSystem(), buckets) as single:
        for step in range(12):
            keys = random.sample(range(40), 24)
            writes = [random_write(random, keys) for _ in range(10) if keys]
            together(several, writes)
            again = [Batch(each.op, each.rows, each.names) for each in writes]
            for each in again:
                each.run(single)
            assert [each.answer() for each in writes] == [each.answer() for each in again]
            assert rows(several) == rows(single)
            if step == 6:
                for store in (several, single):
                    store.maintain("t", "flush")


def test_each_write_is_a_commit_of_its_own(store: Store) -> None:
    Batch("upsert", [(key, 0, "old") for key in range(0, 12, 2)]).run(store)
    writes = [Batch("upsert", [(key, key, "new")]) for key in range(12)]
    together(store, writes)
    in_order = sorted(writes, key=lambda each: each.result.timestamp)
    for count, write in enumerate(in_order, 1):
        new = [row for row in rows(store, write.result.timestamp) if row[2] == "new"]
        assert new == sorted(each.rows[0] for each in in_order[:count])
    assert store.last_change("t") == in_order[-1].result.timestamp


def test_writes_of_one_key_apply_one_after_the_other(store: Store) -> None:
    inserts = [Batch("insert", [(1, number, "x")]) for number in range(6)]
    together(store, inserts)
    assert sorted(each.result.applied for each in inserts) == [0] * 5 + [1]
    upserts = [Batch("upsert", [(1, number, "y"), (100 + number, 0, "z")]) for number in range(6)]
    together(store, upserts)
    newest = max(upserts, key=lambda each: each.result.timestamp)
    assert rows(store)[0] == (1, newest.rows[0][1], "y")
    assert len({each.result.timestamp for each in upserts}) == 6
    assert len(rows(store)) == 7


def test_numbered_writes_are_answered_again() -> None:
    disk = MemoryFileSystem()
    with opened(disk) as store:
        writes = [Batch("insert", [(key, key, "x")], writer=f"w{key % 3}", seq=key) for key in range(9)]
        writes.append(Batch("insert", [(50, None, "refused")], writer="w0", seq=99))
        together(store, writes)
        image = disk.crash_image(Random(1))
        with opened(image) as restarted:
            for known in (store, restarted):
                again = [Batch(each.op, each.rows, writer=each.writer, seq=each.seq) for each in writes]
                for each in again:
                    each.run(known)
                assert [each.outcome for each in again] == [each.outcome for each in writes]
            assert rows(restarted) == rows(store) == [(key, key, "x") for key in range(9)]


def test_a_failed_sync_acknowledges_none() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    store = opened(fs)
    Batch("upsert", [(0, 0, "before")]).run(store)
    fs.rules.append(FaultRule(calls=frozenset({"sync"}), path="wal/*", error=errno.EIO, sticky=True))
    fs._matched.append(0)
    writes = [Batch("upsert", [(key, key, "x")]) for key in range(1, 9)]
    together(store, writes)
    assert all(isinstance(each.outcome[0], UnavailableError) for each in writes)
    assert rows(store) == [(0, 0, "before")]
    with opened(disk.crash_image(Random(3))) as restarted:
        assert rows(restarted)[0] == (0, 0, "before")
    fs.rules.clear()
    with pytest.raises(UnavailableError):
        store.write(WriteCommand(table="t"), writes[0].batch)


def test_crashes_keep_what_was_acknowledged() -> None:
    disk = MemoryFileSystem()
    acknowledged: list[Row] = []
    with opened(disk) as store:
        for step in range(4):
            writes = [Batch("upsert", [(8 * step + key, step, "x")]) for key in range(8)]
            together(store, writes)
            acknowledged += [each.rows[0] for each in writes]
            for seed in range(5):
                with opened(disk.crash_image(Random(seed))) as restarted:
                    assert rows(restarted) == acknowledged


@pytest.mark.parametrize("durability", list(Durability))
def test_many_small_writers(durability: Durability) -> None:
    disk = MemoryFileSystem()
    threads, steps = 16, 25
    failures: list[BaseException] = []
    times: list[int] = []

    def write(store: Store, number: int) -> None:
        try:
            for step in range(steps):
                one = Batch("upsert", [(number * steps + step, step, "own"), (1_000_000, number, "shared")])
                command = WriteCommand(table="t", durability=durability)
                result = store.write(command, one.batch)
                assert (result.applied, result.errors) == (2, [])
                assert (number * steps + step, step, "own") in rows(store, result.timestamp)
                times.append(result.timestamp)
        except BaseException as error:
            failures.append(error)

    with opened(disk) as store:
        running = [threading.Thread(target=write, args=(store, number)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert not failures
        assert len(set(times)) == threads * steps
        found = rows(store)
        assert len(found) == threads * steps + 1
    with opened(disk) as restarted:
        assert rows(restarted) == found

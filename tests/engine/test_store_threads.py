"""Writers, scanners and maintenance at once: every scan sees whole batches, and the same ones when it is repeated."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 16, scan_threads=2)
SCHEMA = pa.schema([("writer", pa.int16()), ("number", pa.int32()), ("batch", pa.int32())])
PATIENCE_SECONDS = 240.0
WRITERS, SCANNERS = 4, 3
FIXED = 3
"""Rows of a writer that each of its batches overwrites: their numbers are negative."""
FRESH = 4
"""New rows of each batch; those of the batch KEPT before it are deleted."""
KEPT = 20


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), OPTIONS) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["writer", "number"]))
        yield store


def write(store: Store, op: str, rows: list[tuple[int, ...]]) -> None:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(SCHEMA.names[: len(rows[0])])}
    batch = pa.RecordBatch.from_pydict(columns, pa.schema([SCHEMA.field(name) for name in columns]))
    result = store.write(WriteCommand(table="t", op=Operation(op)), batch)
    assert not result.errors, result.errors


def scan(store: Store, ordered: bool, as_of: int | None = None) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the snapshot and the rows, sorted."""
    stream = store.scan(ScanSpec(table="t", ordered=ordered, as_of=as_of))
    columns = stream.to_reader().read_all().to_pydict()
    rows = list(zip(*columns.values(), strict=True))
    assert not ordered or rows == sorted(rows)
    assert stream.snapshot is not None
    return stream.snapshot, sorted(rows)


class Crowd:
    """Threads that run until enough is done or one of them fails."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while not self.stop.is_set():
                    work()
            except BaseException as error:
                self.failures.append(error)
                self.stop.set()

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def run(self, enough: Callable[[], bool]) -> None:
        """Stop the threads once ``enough`` says so, however slow the machine is, and raise what one of them raised."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough() and not self.stop.wait(0.02):
            if time.monotonic() > deadline:
                self.failures.append(AssertionError("too little was done to mean anything"))
                break
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a thread hangs"
        if self.failures:
            raise self.failures[0]


class Writer:
    """Writes batch after batch; ``acknowledged`` is the newest that it was told of."""

    def __init__(self, store: Store, number: int) -> None:
        self.number = number
        self.acknowledged = -1
        self._store = store

    def step(self) -> None:
        batch = self.acknowledged + 1
        fixed = [(self.number, -1 - place, batch) for place in range(FIXED)]
        fresh = [(self.number, batch * FRESH + place, batch) for place in range(FRESH)]
        write(self._store, "upsert", fixed + fresh)
        self.acknowledged = batch
        if batch >= KEPT:
            first = (batch - KEPT) * FRESH
            write(self._store, "delete", [(self.number, first + place) for place in range(FRESH)])


class Scanner:
    """Scans, checks each writer's rows, and scans the same snapshot again."""

    def __init__(self, store: Store, writers: list[Writer], ordered: bool) -> None:
        self.scans = 0
        self._store = store
        self._writers = writers
        self._ordered = ordered
        self._newest: dict[int, int] = {}

    def step(self) -> None:
        known = [writer.acknowledged for writer in self._writers]
        snapshot, rows = scan(self._store, self._ordered)
        for writer, acknowledged in zip(self._writers, known, strict=True):
            self._check(writer.number, acknowledged, [row for row in rows if row[0] == writer.number])
        again = scan(self._store, self.scans % 2 == 0, snapshot)
        assert again == (snapshot, rows), "the same snapshot, read twice"
        self.scans += 1

    def _check(self, writer: int, acknowledged: int, rows: list[tuple[int, int, int]]) -> None:
        numbers = [number for _, number, _ in rows]
        assert len(set(numbers)) == len(numbers), "a key is there twice"
        fixed = {batch for _, number, batch in rows if number < 0}
        newest = fixed.pop() if fixed else -1
        assert not fixed, f"writer {writer}: batches {fixed} and {newest} are half there"
        assert newest >= acknowledged, f"writer {writer}: batch {acknowledged} was acknowledged, not seen"
        assert newest >= self._newest.get(writer, -1), (
            f"writer {writer}: batch {newest} is older than what was seen before"
        )
        self._newest[writer] = newest
        assert numbers.count(-1) == (newest >= 0)
        kept = Counter(batch for _, number, batch in rows if number >= 0)
        oldest = max(0, newest - KEPT + (0 if newest - KEPT in kept else 1))
        assert kept == dict.fromkeys(range(oldest, newest + 1), FRESH), f"writer {writer} at batch {newest}: {kept}"


def test_scans_see_whole_batches_while_all_is_in_motion(store: Store) -> None:
    crowd = Crowd()
    writers = [Writer(store, number) for number in range(WRITERS)]
    scanners = [Scanner(store, writers, ordered=number == 0) for number in range(SCANNERS)]
    kinds = [*MaintenanceKind, MaintenanceKind.FLUSH_DELTAS]
    rounds = 0

    def maintain() -> None:
        nonlocal rounds
        time.sleep(0.02)
        store.maintain("t", kinds[rounds % len(kinds)])
        rounds += 1

    for actor in [*writers, *scanners]:
        crowd.start(actor.step)
    crowd.start(maintain)
    crowd.run(
        lambda: (
            min(writer.acknowledged for writer in writers) >= KEPT + 10
            and min(scanner.scans for scanner in scanners) >= 10
            and rounds >= 3 * len(kinds)
        )
    )
    for scanner in scanners:
        scanner.step()


def test_of_racing_inserts_of_a_key_one_wins(store: Store) -> None:
    crowd = Crowd()
    wins: list[list[int]] = [[] for _ in range(WRITERS)]
    positions = [0] * WRITERS

    def insert(writer: int) -> None:
        number = positions[writer]
        positions[writer] += 1
        batch = pa.RecordBatch.from_pydict({"writer": [0], "number": [number // 2], "batch": [writer]}, SCHEMA)
        result = store.write(WriteCommand(table="t", op=Operation.INSERT), batch)
        assert [error.code for error in result.errors] == ["ALREADY_PRESENT"] * (1 - result.applied)
        if result.applied:
            wins[writer].append(number // 2)

    for writer in range(WRITERS):
        crowd.start(lambda writer=writer: insert(writer))
    crowd.start(lambda: (time.sleep(0.05), store.maintain("t", "flush"), None)[-1])
    crowd.run(lambda: min(positions) > 2 * 50)
    winners = {number: writer for writer, numbers in enumerate(wins) for number in numbers}
    assert sum(map(len, wins)) == len(winners) >= 50
    assert {number: batch for _, number, batch in scan(store, ordered=False)[1]} == winners


def test_a_close_under_load_is_an_answer_by_name() -> None:
    disk = MemoryFileSystem()
    store = Store.open(disk, OPTIONS)
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["writer", "number"]))
    crowd = Crowd()
    writers = [Writer(store, number) for number in range(2)]
    refused: list[StoreError] = []

    def until_refused(work: Callable[[], object]) -> Callable[[], None]:
        def step() -> None:
            try:
                work()
            except UnavailableError as error:
                refused.append(error)
                crowd.stop.wait()

        return step

    for writer in writers:
        crowd.start(until_refused(writer.step))
    crowd.start(until_refused(lambda: scan(store, ordered=True)))
    crowd.start(until_refused(lambda: store.maintain("t", "flush")))
    time.sleep(0.3)
    store.close()
    crowd.run(lambda: len(refused) == 4)
    with Store.open(disk, OPTIONS) as again:
        checker = Scanner(again, writers, ordered=True)
        checker.step()

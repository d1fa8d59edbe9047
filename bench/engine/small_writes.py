"""Durable writes of single rows by 1, 8 and 32 threads of one process, beside SQLite and what the disk alone takes.

Each thread inserts one row after the other and waits until it is durable: in Nyala, in SQLite (write-ahead log,
``synchronous=FULL``, a connection for each thread), or as bare bytes of a record's size in a file whose space is there
(write and fdatasync, under a lock).
"""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from bench.engine.scratch import SUBJECT, Results, scratch_store
from bench.report import Suite

SQLITE, BARE = "SQLite", "write and fdatasync"
WRITERS = (1, 8, 32)
SECONDS = 1.0
_RECORD_BYTES = 200
_FILE_BYTES = 64 << 20
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("count", pa.int32()),
        ("city", pa.string()),
        ("note", pa.string()),
    ]
)

Insert = Callable[[int], object]


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure; the subjects take turns in every round. The number of ``rows`` that are there before does not matter."""
    del rows
    shutil.rmtree(work, ignore_errors=True)  # SQLite's table of a run that was stopped has these keys
    results = Results(console)
    with scratch_store(work / "nyala") as database:
        table = database.create_table("t", _SCHEMA, primary_key=["id"])
        openers = {SUBJECT: lambda: _nyala(table), SQLITE: lambda: _sqlite(work / "sqlite"), BARE: lambda: _bare(work)}
        numbers = count()
        for writers in WRITERS:
            found: dict[str, list[float]] = {subject: [] for subject in openers}
            for number in range(rounds):
                for subject in list(openers)[:: -1 if number % 2 else 1]:
                    found[subject].append(rate(openers[subject], writers, numbers))
            for subject, rates in found.items():
                results.add(f"durable rows, {writers} threads", "rows/s", rates, subject)
    return Suite("small_writes", {"rounds": rounds, "seconds": int(SECONDS)}, results.all)


def rate(opened: Callable[[], Any], writers: int, numbers: Iterator[int]) -> float:
    """Return the rows a second that threads insert, each with what ``opened`` yields for it."""
    done = [0] * writers
    start, stop = threading.Barrier(writers + 1), threading.Event()

    def work(thread: int, insert: Insert) -> None:
        try:
            insert(next(numbers))
        except BaseException:
            start.abort()
            raise
        start.wait()
        while not stop.is_set():
            insert(next(numbers))
            done[thread] += 1

    with ExitStack() as stack:
        inserts = [stack.enter_context(opened()) for _ in range(writers)]
        threads = [threading.Thread(target=work, args=each) for each in enumerate(inserts)]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        time.sleep(SECONDS)
        stop.set()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - began)


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": number * 7,
        "price": number * 0.5,
        "count": number % 100,
        "city": f"city {number % 1_000}",
        "note": f"a longer note {number}",
    }


@contextmanager
def _nyala(table: Any) -> Iterator[Insert]:
    yield lambda number: table.insert([_row(number)])


@contextmanager
def _sqlite(folder: Path) -> Iterator[Insert]:
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "t.db", timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, amount, price, count, city, note)")
    try:
        yield lambda number: connection.execute("INSERT INTO t VALUES (?,?,?,?,?,?)", tuple(_row(number).values()))
    finally:
        connection.close()


_BARE_LOCK = threading.Lock()


@contextmanager
def _bare(folder: Path) -> Iterator[Insert]:
    path = folder / "bytes"
    if not path.exists():
        path.write_bytes(bytes(_FILE_BYTES))
    file = os.open(path, os.O_RDWR)
    os.fsync(file)

    def insert(number: int) -> None:
        with _BARE_LOCK:
            os.pwrite(file, bytes(_RECORD_BYTES), number * _RECORD_BYTES % (_FILE_BYTES - _RECORD_BYTES))
            os.fdatasync(file)

    try:
        yield insert
    finally:
        os.close(file)

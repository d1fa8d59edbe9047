"""How fast a log of small commits is applied: when a store opens after a crash, by a replica, by a standby that takes
over. Disk and bucket are in memory, so that only work counts; openings are whole, with the two readings of the log.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import nyala
from bench import data
from bench.engine.far_objects import FarObjects, far_bucket
from bench.engine.scratch import OPTIONS, Results
from bench.measure import seconds
from bench.report import Suite
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.replica.slots import SlotReplica
from nyala.engine.store import Store
from nyala.engine.wal.slots.reader import newest_slot

RECOVERY, REPLICA, STANDBY = "after a crash", "replica", "takes over"
COMMITS_MAX = 100_000
TABLE_ROWS = 1_000_000
BATCH_ROWS = 8
WRITERS = 64
"""A group of the log in a bucket has as many records, one in a directory has one."""
_OPTIONS = StoreOptions(**{**OPTIONS, "lease_seconds": 60})

Commit = Callable[[Table, int, dict[str, Any]], object]
"""Makes the commit with a number, given a row whose key nobody has."""


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure logs of up to 100,000 commits each; ``work`` is not used."""
    bench = ReplayBench(min(rows, COMMITS_MAX), rounds, Results(console))
    for case, prepare, commit, row_count in _cases(min(rows, TABLE_ROWS)):
        bench.measure(case, prepare, commit, row_count)
    return Suite("replay", {"commits": bench.commits, "rounds": rounds, "writers": WRITERS}, bench.results.all)


class ReplayBench:
    """Makes a log and applies it in three ways."""

    def __init__(self, commits: int, rounds: int, results: Results) -> None:
        self.commits, self.rounds, self.results = commits, rounds, results
        self.spare = data.orders(commits, seed=3).to_pylist()

    def measure(self, case: str, prepare: Callable[[Database], Table], commit: Commit, row_count: int) -> None:
        """Measure one case, whose commits have ``row_count`` rows each."""
        changed = self.commits * row_count

        def add(subject: str, actions: Iterable[Callable[[], Any]]) -> None:
            taken = [seconds(action) for action in actions][1:]
            self.results.add(case, "rows/s", [changed / each for each in taken], subject)

        rounds = range(self.rounds + 1)
        disk = self._disk(prepare, commit)
        add(RECOVERY, (partial(_recovered, disk.crash_image(Random(1))) for _ in rounds))
        objects = FarObjects(0.002, 0)
        self._bucket(objects, prepare, commit)
        add(REPLICA, (partial(_followed, objects) for _ in rounds))
        add(STANDBY, (partial(_taken_over, objects) for _ in rounds))

    def _disk(self, prepare: Callable[[Database], Table], commit: Commit) -> MemoryFileSystem:
        disk = MemoryFileSystem()
        with Database(Store.open(disk, _OPTIONS)) as database:
            self._write(prepare(database), commit, range(self.commits))
            return disk.crash_image(Random(1))

    def _bucket(self, objects: FarObjects, prepare: Callable[[Database], Table], commit: Commit) -> None:
        with Database(Store.open(_home(objects), _OPTIONS)) as database:
            table = prepare(database)
            shares = [range(first, self.commits, WRITERS) for first in range(WRITERS)]
            threads = [threading.Thread(target=self._write, args=(table, commit, share)) for share in shares]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _write(self, table: Table, commit: Commit, numbers: Iterable[int]) -> None:
        for number in numbers:
            commit(table, number, self.spare[number])


def _home(objects: FarObjects) -> BucketHome:
    """Return the store's place as a machine with an empty disk has it."""
    return BucketHome(far_bucket(objects), "a", "memory://bench", MemoryFileSystem())


def _recovered(disk: MemoryFileSystem) -> None:
    Store.open(disk, _OPTIONS).close()


def _followed(objects: FarObjects) -> None:
    home = _home(objects)
    replica = SlotReplica(home, home.slots, _OPTIONS)
    newest = newest_slot(home.slots)
    assert newest is not None
    replica.advance_to(newest)
    replica.close()


def _taken_over(objects: FarObjects) -> None:
    Store.open(_home(objects), _OPTIONS).close()


def _cases(table_rows: int) -> list[tuple[str, Callable[[Database], Table], Commit, int]]:
    keys = [Random(5).randrange(table_rows) for _ in range(COMMITS_MAX)]

    def empty(database: Database, **options: Any) -> Table:
        return database.create_table("orders", data.SCHEMA, [data.KEY], **options)

    def loaded(database: Database) -> Table:
        table = empty(database)
        table.insert(data.orders(table_rows).set_column(0, data.SCHEMA.field(0), pa.array(np.arange(table_rows))))
        table.maintain("flush")
        return table

    def new(table: Table, number: int, row: dict[str, Any]) -> None:
        table.insert([row])

    def numbered(table: Table, number: int, row: dict[str, Any]) -> None:
        table.insert([row], writer=f"writer {number % WRITERS}", seq=number // WRITERS)

    def eight(table: Table, number: int, row: dict[str, Any]) -> None:
        table.insert([{**row, data.KEY: number * BATCH_ROWS + each} for each in range(BATCH_ROWS)])

    def update(table: Table, number: int, row: dict[str, Any]) -> None:
        table.update([{data.KEY: keys[number], "price": float(number), "quantity": number % 100}])

    def mixed(table: Table, number: int, row: dict[str, Any]) -> None:
        row = {**row, data.KEY: keys[number] % 20_000}
        if number % 5 == 4:
            table.delete_ignore([{data.KEY: row[data.KEY]}])
        elif number % 5 == 3:
            table.update_ignore([{data.KEY: row[data.KEY], "price": float(number)}])
        else:
            table.upsert([row])

    def hashed(database: Database) -> Table:
        return empty(database, partition_by=[nyala.hash(data.KEY, buckets=16)])

    return [
        ("new rows, one a commit", empty, new, 1),
        ("numbered new rows", empty, numbered, 1),
        ("new rows of 16 tablets", hashed, new, 1),
        ("updates of two columns of rows on disk", loaded, update, 1),
        ("upserts, updates and deletes of few keys", empty, mixed, 1),
        (f"new rows, {BATCH_ROWS} a commit", empty, eight, BATCH_ROWS),
    ]

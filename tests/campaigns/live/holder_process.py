"""A process that has a store and changes it in every way, to be read by others meanwhile, and to be killed.

    python tests/campaigns/live/holder_process.py DIRECTORY SEED

It prints a line for each change that is acknowledged: what it was, and how far it is. What readers may rely on at any
snapshot stands in `tables`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns import options as drawn

OPTIONS: dict[str, Any] = {
    "flush_bytes": 48 << 10,
    "flush_deltas_bytes": 16 << 10,
    "wal_segment_bytes": 64 << 10,
    "direct_load_bytes": 4_000,
    "direct_load_unsorted_bytes": 4_000,
    "scan_threads": 2,
}
PAIRS, ACCOUNTS, QUEUED, BATCH, BATCHES = 40, 30, 50, 400, 20
NUMBERED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
BULK = pa.schema([pa.field("id", pa.int64(), nullable=False), ("batch", pa.int64()), ("text", pa.string())])


def tables(database: nyala.Database) -> None:
    """Create the tables, unless they are there.

    ``counter`` has one row, which only grows. ``left`` and ``right`` have the same rows. All rows of ``same`` have one
    value, which only grows. The values of ``bank`` add up to 0. ``queue`` has consecutive ids, ``QUEUED`` of them.
    ``bulk`` has whole batches.
    """
    for name in ("counter", "left", "right", "same", "bank", "queue"):
        more: dict[str, Any] = {"history_max_age_seconds": 2} if name == "same" else {}
        if name == "bank":
            more["column_options"] = {"v": {"merge": "sum"}}
        more["column_options"] = drawn.columns(NUMBERED, more.get("column_options"))
        database.create_table(name, NUMBERED, "id", if_not_exists=True, **drawn.table(**more))
    database.create_table("bulk", BULK, "id", (), drawn.columns(BULK), if_not_exists=True, **drawn.table())
    database.table("same").upsert([{"id": each, "v": 0} for each in range(ACCOUNTS)] if _is_empty(database) else [])
    if database.table("queue").count() == 0:
        database.table("queue").insert([{"id": each, "v": each} for each in range(QUEUED)])


def _is_empty(database: nyala.Database) -> bool:
    return database.table("same").count() == 0


def tell(*words: object) -> None:
    """Print what was acknowledged, at once and whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Work:
    """The changes of one process, each kind on a thread of its own."""

    def __init__(self, database: nyala.Database, seed: int) -> None:
        self._database = database
        self._seed = seed
        self._last: dict[str, int] = {}

    def start(self) -> None:
        """Begin all threads."""
        for each in (self._count, self._pair, self._raise_all, self._transfer, self._shift, self._load, self._define):
            threading.Thread(target=self._repeat, args=(each,), daemon=True).start()

    def _repeat(self, change: Callable[[Random], object]) -> None:
        random = Random(f"{self._seed} {change.__name__}")
        try:
            while True:
                change(random)
                time.sleep(random.choice((0.0, 0.0, 0.002, 0.02)))
        except BaseException as error:
            tell("failed", change.__name__, repr(error))
            raise

    def _next(self, table: str, column: str = "v") -> int:
        """Return the number of the next step: one more than the greatest value in a table."""
        if table not in self._last:
            found = self._database.table(table).scan().aggregate({"most": (column, "max")}).to_pylist()
            self._last[table] = (found[0]["most"] if found else None) or 0
        self._last[table] += 1
        return self._last[table]

    def _count(self, random: Random) -> None:
        step = self._next("counter")
        self._database.table("counter").upsert([{"id": 0, "v": step}])
        tell("counter", step)

    def _pair(self, random: Random) -> None:
        step = self._next("left")
        rows = [{"id": (step + each) % PAIRS, "v": step} for each in range(random.randrange(1, 6))]
        with self._database.transaction() as both:
            both.write("left", rows)
            both.write("right", rows)
        tell("left", step)

    def _raise_all(self, random: Random) -> None:
        step = self._next("same")
        self._database.table("same").update_where({"v": "v + 1"})
        tell("same", step)
        if step % 5 == 0:
            moment = self._database.now()
            tell("moment", moment, step)

    def _transfer(self, random: Random) -> None:
        one, other = random.sample(range(ACCOUNTS), 2)
        amount = random.randrange(1, 100)
        self._database.table("bank").merge([{"id": one, "v": amount}, {"id": other, "v": -amount}])

    def _shift(self, random: Random) -> None:
        step = self._next("queue", "id")
        with self._database.transaction() as both:
            both.write("queue", [{"id": step, "v": step}], "insert")
            both.write("queue", [{"id": step - QUEUED}], "delete")
        tell("queue", step)

    def _load(self, random: Random) -> None:
        step = self._next("bulk", "batch")
        ids = pa.array(range(step * BATCH, (step + 1) * BATCH), pa.int64())
        text = pa.array([f"{step} {random.random()}"] * BATCH)
        table = self._database.table("bulk")
        table.insert(pa.table([ids, pa.array([step] * BATCH, pa.int64()), text], BULK))
        tell("bulk", step)
        if step % 4 == 0:
            table.delete_where(f"batch <= {step - BATCHES}")
        time.sleep(0.05)

    def _define(self, random: Random) -> None:
        name = f"t{random.randrange(1 << 40)}"
        made = self._database.create_table(name, NUMBERED, "id", data=[{"id": each, "v": 1} for each in range(3)])
        tell("created", name)
        made.alter().add_column("more", pa.int64()).apply()
        made.upsert([{"id": 5, "more": 7}])
        tell("altered", name)
        if random.random() < 0.5:
            tell("dropping", name)
            made.alter().rename(f"r{name}").apply()
            tell("dropped", name)
            tell("created", f"r{name}")
            name = f"r{name}"
        time.sleep(0.05)
        tell("dropping", name)
        self._database.drop_table(name)
        tell("dropped", name)


def main() -> None:
    directory, seed = sys.argv[1], int(sys.argv[2])
    with nyala.open(directory, **drawn.keywords(**OPTIONS)) as database:
        for name in database.tables():
            if name.startswith(("t", "rt")):
                tell("dropping", name)
                database.drop_table(name)
                tell("dropped", name)
        tables(database)
        tell("open")
        Work(database, seed).start()
        random, names = Random(seed), ("left", "right", "same", "bank", "queue", "bulk", "counter")
        while True:
            time.sleep(random.uniform(0, 0.1))
            database.table(random.choice(names)).maintain(random.choice(list(MaintenanceKind)))


if __name__ == "__main__":
    main()

"""Fourteen operations on one table, through the public API: what users do all day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from tests.campaigns.counters.counting import CountingFileSystem, counted

ROWS = 200_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("count", pa.int32()),
    ]
)
_OPTIONS = StoreOptions(maintenance="off", scan_threads=1)


def rows(ids: np.ndarray, version: int = 0) -> pa.RecordBatch:
    """Return rows with these keys, whose cells depend on the key and on ``version`` only."""
    seeds = ids + version
    return pa.record_batch(
        [
            pa.array(ids),
            pa.array([f"city {seed % 7}" for seed in seeds]),
            pa.array(seeds * 0.5, mask=seeds % 11 == 0),
            pa.array((seeds % 365).astype(np.int32)).cast(pa.date32()),
            pa.array([f"note {seed}" for seed in seeds]),
            pa.array((seeds % 1_000).astype(np.int32)),
        ],
        schema=SCHEMA,
    )


@contextmanager
def opened(disk: CountingFileSystem) -> Iterator[Database]:
    """Open the store on ``disk``; without maintenance, whose moment differs, and without helpers, whose share does."""
    with Database(Store.open(disk, _OPTIONS)) as database:
        yield database


def costs() -> dict[str, dict[str, int]]:
    """Run the operations on a new store in memory; return the counters of each, by its name.

    Each runs once before it is counted, so that caches and lazy imports do not matter.
    """
    disk = CountingFileSystem(MemoryFileSystem())
    found: dict[str, dict[str, int]] = {}

    def run(name: str, operation: Callable[[], object]) -> None:
        operation()
        found[name] = counted(operation, disk)

    with opened(disk) as database:
        table = database.create_table("t", SCHEMA, primary_key=["id"])
        table.upsert(rows(np.arange(0, ROWS, 2)))
        table.maintain("flush")
        table.upsert(rows(np.arange(1, ROWS, 2)))
        table.maintain("flush")
        thousand = list(range(0, ROWS, ROWS // 1_000))
        numbers = iter(range(1 << 40))

        run("get a row", lambda: table.get(77))
        run("get 1,000 rows", lambda: table.get_many(thousand))
        read(table)  # the next time, once, strings become plain in the page cache
        run("scan all", lambda: read(table))
        run("scan a key range", lambda: read(table, where="id BETWEEN 1000 AND 2000"))
        run("scan by a filter", lambda: read(table, where="price > 99000 AND city = 'city 3'", columns=["id", "note"]))
        run("sum by group", lambda: table.scan().aggregate({"total": ("price", "sum")}, ["city"]))
        run("upsert 1,000 rows", lambda: table.upsert(rows(np.arange(1_000, 2_000), next(numbers))))
        run("update a row", lambda: table.update([{"id": 5, "count": next(numbers) % 1_000}]))
        few = iter([rows(np.arange(8) * 17, version).to_pylist() for version in range(2)])
        run("upsert 8 rows", lambda: table.upsert(next(few)))
        run("insert a row", lambda: table.insert(rows(np.array([ROWS + next(numbers)]))))
        run("scan over deltas", lambda: read(table))
        run("flush", lambda: (table.insert(rows(np.arange(500) + 10 * ROWS * next(numbers))), table.maintain("flush")))
    run("open and scan all", lambda: _open_and_scan(disk))
    with opened(disk) as database:
        table = database.table("t")
        for version in range(1_000):
            table.upsert(rows(np.array([version * 300]), version))
    run("replay 1,000 rows", lambda: _open(disk))
    return found


def read(table: Table, **options: Any) -> None:
    """Scan, and drop what comes."""
    for _ in table.scan(**options):
        pass


def _open(disk: CountingFileSystem) -> None:
    with opened(disk):
        pass


def _open_and_scan(disk: CountingFileSystem) -> None:
    with opened(disk) as database:
        read(database.table("t"))

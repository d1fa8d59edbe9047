"""The store that is churned, in a process of its own: says in JSON lines what it has done.

python tests/campaigns/churn/store_process.py DIRECTORY ROWS ROUNDS MEMORY_MB
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nyala
from nyala.clients.api.database import Database
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns import options as drawn

BATCH_ROWS = 50_000
HISTORY_SECONDS = 1
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), ("round", pa.int32()), ("amount", pa.float64()), ("note", pa.string())]
)
_STRIDE = 2_654_435_761
"""A prime: multiples of it go through all rows in an order in which every batch touches every rowset."""


def say(phase: str, **facts: Any) -> None:
    """Tell the watching process that a phase has ended."""
    print(json.dumps({"phase": phase, **facts}), flush=True)


def batches(rows: int, number: int, names: list[str]) -> pa.RecordBatchReader:
    """Return all rows as round ``number`` leaves them, scattered over the keys, with the columns ``names``."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    random = np.random.default_rng(number)

    def made() -> Any:
        for first in range(0, rows, BATCH_ROWS):
            ids = np.arange(first, min(first + BATCH_ROWS, rows)) * _STRIDE % rows
            cells = {
                "id": lambda ids=ids: pa.array(ids),
                "round": lambda ids=ids: pa.repeat(pa.scalar(number, pa.int32()), len(ids)),
                "amount": lambda ids=ids: pa.array(random.random(len(ids))),
                "note": lambda ids=ids: pc.cast(pa.array(ids * 7 + number), pa.string()),
            }
            yield pa.record_batch([cells[name]() for name in names], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, made())


def facts(table: nyala.Table) -> dict[str, Any]:
    """Return what the statistics say of a table."""
    stats = table.stats()
    (tablet,) = stats["tablets"]
    names = ("rowsets", "delta_files", "memory_bytes", "redo_bytes", "undo_bytes")
    return {"table_bytes": stats["bytes_on_disk"], **{name: tablet[name] for name in names}}


def settle(store: Store, table: nyala.Table) -> None:
    """Let history pass and maintenance do all that it finds worth doing; the last rows in memory are flushed for it."""
    table.maintain(MaintenanceKind.FLUSH)
    table.maintain(MaintenanceKind.FLUSH_DELTAS)
    time.sleep(HISTORY_SECONDS + 1)
    while store.run_maintenance_once():
        pass


def check(table: nyala.Table, rows: int, rounds: int) -> None:
    """Every row is there once, as the last round left it."""
    count = total = 0
    for batch in table.scan(["id", "round"]):
        count += len(batch)
        total += pc.sum(batch["id"]).as_py() or 0
        assert pc.all(pc.equal(batch["round"], rounds)).as_py() is not False, "an update is lost"
    assert (count, total) == (rows, rows * (rows - 1) // 2), f"{count} rows, ids add up to {total}"


def fresh_copy(database: nyala.Database, table: nyala.Table) -> nyala.Table:
    """Return a table of the same rows, written once and compacted."""
    copy = _created(database, "copy")
    copy.insert(table.scan(ordered=True).to_reader())
    copy.maintain(MaintenanceKind.FLUSH)
    time.sleep(HISTORY_SECONDS + 1)
    copy.maintain(MaintenanceKind.COMPACT)
    return copy


def _created(database: nyala.Database, name: str) -> nyala.Table:
    options = drawn.table(history_max_age_seconds=HISTORY_SECONDS)
    return database.create_table(name, SCHEMA, ["id"], (), drawn.columns(SCHEMA), **options)


def timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def main() -> None:
    directory, rows, rounds, memory_mb = sys.argv[1], *map(int, sys.argv[2:5])
    store = drawn.store_at(directory, StoreOptions(budget_bytes=memory_mb << 20))
    with Database(store) as database:
        say("open")
        table = _created(database, "t")
        seconds = timed(lambda: table.insert(batches(rows, 0, SCHEMA.names)))
        say("load", rows=rows, seconds=seconds, **facts(table))
        for number in range(1, rounds + 1):
            names = ["id", "round", "amount", "note"] if number % 3 == 0 else ["id", "round", "amount"]
            seconds = timed(lambda number=number, names=names: table.update(batches(rows, number, names)))
            say(f"round {number}", rows=rows, seconds=seconds, **facts(table))
        seconds = timed(lambda: settle(store, table))
        say("settled", seconds=seconds, **facts(table))
        seconds = timed(lambda: check(table, rows, rounds))
        say("checked", rows=rows, seconds=seconds, **facts(table))
        copy = fresh_copy(database, table)
        say("copy", **facts(copy))


if __name__ == "__main__":
    main()

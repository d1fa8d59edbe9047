"""What a store in a bucket asks of it, and what that costs: in an hour, idle or while rows are written, and by a load.

Hours are counted for some seconds, with the server's own maintenance, and reckoned up.
"""

import shutil
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from bench import data
from bench.engine.bucket import GET_SECONDS, PUT_SECONDS, far_store
from bench.engine.far_objects import DELETE, GET, LIST, PUT, FarObjects
from bench.engine.scratch import Results
from bench.report import Suite
from nyala.clients.api.database import Database
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand

SECONDS = 20.0
ROWS = 1_000_000
WRITERS = 8
DOLLARS_A_MILLION = {PUT: 5.0, LIST: 5.0, GET: 0.4, DELETE: 0.0}
"""S3 Standard, us-east-1."""

_SMALL = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
Load = Callable[[Database, threading.Event], None]


def _idle(database: Database, stop: threading.Event) -> None:
    del database
    stop.wait()


def _small_writes(database: Database, stop: threading.Event) -> None:
    table, numbers = database.create_table("t", _SMALL, ["id"], if_not_exists=True), count()

    def write() -> None:
        while not stop.is_set():
            table.insert([{"id": next(numbers), "v": 1}])

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _a_row_a_second(database: Database, stop: threading.Event) -> None:
    table, numbers = database.create_table("t", _SMALL, ["id"], if_not_exists=True), count()
    while not stop.wait(1.0):
        table.insert([{"id": next(numbers), "v": 1}])


LOADS: dict[str, tuple[Load, dict[str, Any]]] = {
    "idle": (_idle, {}),
    "a row a second": (_a_row_a_second, {}),
    f"{WRITERS} writers of single rows": (_small_writes, {}),
    f"{WRITERS} writers, log_linger_ms=100": (_small_writes, {"log_linger_ms": 100}),
}


def counted(load: Load, work: Path, **options: Any) -> dict[str, float]:
    """Return the requests an hour of each kind under a load."""
    objects = FarObjects(PUT_SECONDS, GET_SECONDS)
    with far_store(objects, work, maintenance="on", **options) as database:
        stop = threading.Event()
        thread = threading.Thread(target=load, args=(database, stop))
        thread.start()
        time.sleep(1.0)  # what opening and creating cost is not part of it
        objects.reset()
        began = time.monotonic()
        time.sleep(SECONDS)
        requests, taken = dict(objects.requests), time.monotonic() - began
        stop.set()
        thread.join()
    return {kind: requests.get(kind, 0) * 3600 / taken for kind in DOLLARS_A_MILLION}


def loaded(work: Path) -> dict[str, float]:
    """Return the requests of a load of ``ROWS`` rows in batches of 10,000, and of the flush of the last ones."""
    objects = FarObjects(10 * PUT_SECONDS, GET_SECONDS)  # so slow that many batches share a slot on a busy machine, too
    with far_store(objects, work, maintenance="on") as database:
        database.create_table("t", data.SCHEMA, [data.KEY])
        batches = data.orders(ROWS).to_batches(10_000)
        objects.reset()
        for _ in database._store.write_all(WriteCommand(table="t", op=Operation.INSERT), batches):
            pass
        database.table("t").maintain("flush")
        return {kind: float(objects.requests[kind]) for kind in DOLLARS_A_MILLION}


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure once: counts hardly vary."""
    del rows, rounds
    results = Results(console)
    for case, (load, options) in LOADS.items():
        _emptied(work)
        _add(results, f"{case}, an hour", counted(load, work, **options))
    _emptied(work)
    _add(results, f"a load of {ROWS:,} rows", loaded(work))
    shutil.rmtree(work, ignore_errors=True)
    prices = {f"$ a million {kind}": price for kind, price in DOLLARS_A_MILLION.items()}
    return Suite("bucket_requests", {"seconds": SECONDS, **prices}, results.all)


def _emptied(work: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)


def _add(results: Results, case: str, requests: dict[str, float]) -> None:
    for kind, number in requests.items():
        results.add(case, "requests", [number], kind)
    cents = sum(number * DOLLARS_A_MILLION[kind] / 1e4 for kind, number in requests.items())
    results.add(case, "cents", [cents], "price")

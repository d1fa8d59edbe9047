"""Generates load: clients that read and write rows of a table for some time, and what they measured.

Each client is a thread with a connection of its own; with several processes they are divided among these. A client
sends its next request when the last one is answered, so the rates are those that this many clients reach. Latencies are
those that a caller sees, and include the client's own work.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from time import monotonic, perf_counter_ns
from typing import Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, StoreError
from ..api.connect import connect
from ..api.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("number", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("text", pa.string()),
    ]
)
"""The columns of the table."""
_LOADED_AT_ONCE = 100_000
_SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}


@dataclass(frozen=True, slots=True)
class Load:
    """The load that ``nyala perf loadgen`` makes: what each client does."""

    url: str
    table: str
    rows: int
    """The keys are 0 up to this."""
    mix: Mapping[str, int]
    """The weights of the operations."""
    seconds: float
    clients: int
    batch_rows: int
    """The rows of a ``batch`` and of a ``scan``."""
    seed: int


@dataclass(slots=True)
class Measured:
    """The result of ``nyala perf loadgen``: what clients have measured, by operation."""

    nanoseconds: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    rows: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By operation and code."""

    def add(self, other: Measured) -> None:
        for name, some in other.nanoseconds.items():
            self.nanoseconds.setdefault(name, []).extend(some)
        self.rows += other.rows
        self.errors += other.errors

    def report(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Return rates and latencies by operation."""
        return {name: self._of(name, sorted(some), seconds) for name, some in sorted(self.nanoseconds.items())}

    def _of(self, name: str, ascending: list[int], seconds: float) -> dict[str, Any]:
        count = len(ascending)
        return {
            "count": count,
            "per_second": count / seconds,
            "rows_per_second": self.rows[name] / seconds,
            "mean_ms": sum(ascending) / 1e6 / max(count, 1),
            **{title: ascending[int(count * share)] / 1e6 if count else 0.0 for title, share in _SHARES.items()},
            "max_ms": ascending[-1] / 1e6 if count else 0.0,
            "errors": {code: number for (of, code), number in sorted(self.errors.items()) if of == name},
        }


def _row(number: int, random: Random) -> dict[str, Any]:
    return {"id": number, "number": random.randrange(1000), "price": random.random(), "text": f"row {number}"}


def _get(table: Table, load: Load, random: Random) -> int:
    return 1 if table.get(random.randrange(load.rows)) else 0


def _scan(table: Table, load: Load, random: Random) -> int:
    first = random.randrange(max(load.rows - load.batch_rows, 1))
    return table.scan(where=f"id >= {first} and id < {first + load.batch_rows}").to_arrow().num_rows


def _sum(table: Table, load: Load, random: Random) -> int:
    return table.scan(where=f"number = {random.randrange(1000)}").aggregate({"price": ("price", "sum")}).num_rows


def _upsert(table: Table, load: Load, random: Random) -> int:
    return table.upsert([_row(random.randrange(load.rows), random)]).applied


def _update(table: Table, load: Load, random: Random) -> int:
    return table.update_ignore([{"id": random.randrange(load.rows), "price": random.random()}]).applied


def _batch(table: Table, load: Load, random: Random) -> int:
    first = random.randrange(max(load.rows - load.batch_rows, 1))
    return table.upsert(_rows(first, min(load.batch_rows, load.rows), random.randrange(1 << 32))).applied


OPERATIONS: dict[str, Callable[[Table, Load, Random], int]] = {
    "get": _get,
    "scan": _scan,
    "sum": _sum,
    "upsert": _upsert,
    "update": _update,
    "batch": _batch,
}
"""Each returns how many rows it read or wrote."""


def parse_mix(text: str) -> dict[str, int]:
    """Return the weights of the command's option ``--mix``, such as ``get=80,upsert=20``; a name alone has the weight
    1.

    Raises:
        InvalidArgumentError: an operation is unknown, or a weight is no positive number.
    """
    mix: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, weight = part.partition("=")
        if name not in OPERATIONS:
            raise InvalidArgumentError(f"unknown operation {name!r} in --mix; known: {', '.join(OPERATIONS)}")
        if not (weight or "1").isdecimal() or int(weight or 1) == 0:
            raise InvalidArgumentError(f"{part!r} in --mix is not of the form operation=weight, as in get=80,upsert=20")
        mix[name] = int(weight or 1)
    if not mix:
        raise InvalidArgumentError("--mix names no operation; give one such as get=80,upsert=20")
    return mix


def fill(table: Table, rows: int) -> None:
    """Give the table of ``nyala perf loadgen`` its rows, before the load."""
    for first in range(0, rows, _LOADED_AT_ONCE):
        table.insert(_rows(first, min(_LOADED_AT_ONCE, rows - first), first))


def _rows(first: int, count: int, seed: int) -> pa.RecordBatch:
    random = Random(seed)
    return pa.RecordBatch.from_pylist([_row(number, random) for number in range(first, first + count)], SCHEMA)


def measure(load: Load, processes: int) -> Measured:
    """Run the clients of ``nyala perf loadgen``, in this process or in several new ones, and return what they measured.

    Raises:
        StoreError: the server cannot be reached.
    """
    if processes == 1:
        return _measure(load)
    shares = [load.clients // processes + (number < load.clients % processes) for number in range(processes)]
    found = Measured()
    spawn = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
    with ProcessPoolExecutor(processes, spawn) as pool:
        for part in pool.map(_measure, _loads(load, shares)):
            found.add(part)
    return found


def _loads(load: Load, shares: list[int]) -> Iterator[Load]:
    for number, clients in enumerate(shares):
        if clients:
            yield replace(load, clients=clients, seed=load.seed + 1000 * number)


def _measure(load: Load) -> Measured:
    each = [Measured() for _ in range(load.clients)]
    errors: list[StoreError] = []
    threads = [
        threading.Thread(target=partial(_run, load, number, each[number], errors), daemon=True)
        for number in range(load.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    found = Measured()
    for measured in each:
        found.add(measured)
    return found


def _run(load: Load, number: int, measured: Measured, errors: list[StoreError]) -> None:
    """Be one client."""
    random = Random(load.seed + number)
    try:
        with connect(load.url) as db:
            _send(db.table(load.table), load, random, measured)
    except StoreError as error:
        errors.append(error)


def _send(table: Table, load: Load, random: Random, measured: Measured) -> None:
    names, weights = list(load.mix), list(load.mix.values())
    measured.nanoseconds = {name: [] for name in names}
    end = monotonic() + load.seconds
    while monotonic() < end:
        (name,) = random.choices(names, weights)
        began = perf_counter_ns()
        try:
            rows = OPERATIONS[name](table, load, random)
        except StoreError as error:
            measured.errors[name, error.code] += 1
            continue
        measured.nanoseconds[name].append(perf_counter_ns() - began)
        measured.rows[name] += rows

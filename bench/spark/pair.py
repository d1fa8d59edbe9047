"""Two processes that read or load the same rows without Spark: through the server, past it, and from Parquet files.

"Through the server" is what executors do that talk Flight: each process has a connection of its own and reads parts of
one scan. Every process drops the rows where it has them.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import nyala
from nyala.clients.flight.scan_parts import ScanPart
from nyala.clients.flight.store import FlightStore
from nyala.clients.offline_jobs.direct_scan import DirectSplit
from nyala.schemas.rows.scan import ScanSpec

PROCESSES = 2


@contextmanager
def pair() -> Iterator[ProcessPoolExecutor]:
    """Give two processes. They are not forked: gRPC does not survive that."""
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        yield pool


def through_server(pool: ProcessPoolExecutor, url: str, table: str) -> int:
    """Return how many rows the two read by Flight."""
    parts = _connection(url).parts(ScanSpec(table=table))
    return _in_turn(pool, _count_part, [(url, part) for part in parts.parts])


def past_server(pool: ProcessPoolExecutor, table: nyala.Table, directory: Path) -> int:
    """Return how many rows the two read from the table's files."""
    with table.direct_scan(directory=directory) as scan:
        return _in_turn(pool, _count_split, scan.splits)


def from_parquet(pool: ProcessPoolExecutor, directory: Path) -> int:
    """Return how many rows the two read from Parquet files, a file at a time."""
    return _in_turn(pool, _count_file, sorted(directory.glob("*.parquet")))


def _in_turn(pool: ProcessPoolExecutor, function: Callable[[Any], int], tasks: Iterable[Any]) -> int:
    return sum(pool.map(function, tasks))


def _count_part(task: tuple[str, ScanPart]) -> int:
    url, part = task
    return sum(batch.num_rows for batch in _connection(url).read_part(part))


def _count_split(split: DirectSplit) -> int:
    return sum(batch.num_rows for batch in split.batches())


def _count_file(path: Path) -> int:
    file = pq.ParquetFile(path)
    return sum(batch.num_rows for batch in file.iter_batches(1 << 16, use_threads=False))


@cache
def _connection(url: str) -> FlightStore:
    return FlightStore(url)

"""The memory of results: used again only when nothing refers to it any more, whatever Arrow made of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.vectors.memory.huge_pages import RESULTS

ROWS = 150_000


@pytest.fixture
def table() -> Iterator[Table]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=4)) as store:
        fields = [pa.field("k", pa.int64(), False), pa.field("v", pa.float64()), pa.field("s", pa.string())]
        table = Database(store).create_table("t", pa.schema(fields), ["k"])
        keys = np.arange(ROWS)
        table.insert(pa.table([keys, keys / 4, pa.array([f"text {key % 99}" for key in keys])], schema=table.schema))
        table.maintain("flush")
        yield table


def stream(found: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(found.schema, found.to_batches())


HOLDERS: dict[str, Callable[[pa.Table], Any]] = {
    "a slice of an array": lambda found: found["s"].chunk(0).slice(70, 9),
    "a buffer": lambda found: found["v"].chunk(1).buffers()[1],
    "a view by numpy": lambda found: found["v"].chunk(0).to_numpy()[5:6],
    "an exported stream": lambda found: pa.RecordBatchReader.from_stream(stream(found)),
    "a row of a batch": lambda found: found.to_batches()[-1].slice(3, 1),
}


def content(held: Any) -> Any:
    """Return a copy of all that is held."""
    if isinstance(held, pa.RecordBatchReader):
        return held.read_all().slice(0, 500).to_pylist()
    if isinstance(held, pa.Buffer):
        return held.to_pybytes()
    return held.tolist() if isinstance(held, np.ndarray) else held.to_pylist()


def test_held_results_stay_as_they_are_while_others_are_dropped(table: Table) -> None:
    sink = pa.BufferOutputStream()
    found = table.scan().to_arrow()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_table(found)
    copies = pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()

    def scan(seed: int) -> None:
        random, held = Random(seed), list[tuple[str, Any]]()
        expected = {name: content(hold(pa.Table.from_batches(copies))) for name, hold in HOLDERS.items()}
        for _ in range(25):
            name = random.choice(list(HOLDERS))
            held.append((name, HOLDERS[name](table.scan().to_arrow())))
            if random.random() < 0.4:
                chosen, kept = held.pop(random.randrange(len(held)))
                assert content(kept) == expected[chosen], chosen
        for name, kept in held:
            assert content(kept) == expected[name], name

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(scan, range(4)))


def test_results_are_in_memory_that_is_used_again(table: Table) -> None:
    table.scan().to_arrow()
    gc.collect()
    idle = RESULTS.idle_bytes
    assert idle > 0
    mapped = RESULTS.mapped_bytes
    for _ in range(5):
        table.scan().to_arrow()
    assert RESULTS.mapped_bytes == mapped
    RESULTS.release()
    assert RESULTS.idle_bytes == 0

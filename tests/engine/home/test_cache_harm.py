"""The local cache is deleted, cut, filled with other bits, or full, while a store is read: the answers stay right."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.bucket.files import cache
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.store import Store
from nyala.schemas.errors import StorageFullError
from tests.doubles.machines import OPTIONS, Machine

ROWS = 60_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("note", pa.string())])
NO_PAGES = {"page_cache_bytes": 0}
"""Each page is read from the disk of the cache, or from the bucket, each time."""


def batch(first: int, count: int, seed: int) -> pa.Table:
    noise = np.random.default_rng(seed).integers(0, 1 << 60, count)
    ids = np.arange(first, first + count)
    return pa.table([ids, noise, [f"note {each}" for each in noise]], schema=SCHEMA)


@pytest.fixture(scope="module")
def filled() -> Machine:
    """A machine that made a store of three rowsets with changes beside them, and stopped."""
    machine = Machine()
    with Store.open(machine.home(), OPTIONS) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        for part in range(3):
            table.insert(batch(part * ROWS // 3, ROWS // 3, part))
            store.maintain("t", "flush")
        table.upsert(batch(100, 500, 9))
        store.maintain("t", "flush_deltas")
    return machine


@contextmanager
def opened(machine: Machine, **options: object) -> Iterator[tuple[Store, Table]]:
    with Store.open(machine.home(), OPTIONS.model_copy(update={**NO_PAGES, **options})) as store:
        yield store, Database(store).table("t")


READS: dict[str, Callable[[Table], object]] = {
    "all": lambda table: table.scan().to_arrow().sort_by("id"),
    "a column": lambda table: table.scan(columns=["v"]).to_arrow().to_pydict(),
    "a filter": lambda table: table.scan(where="v > 1000000000000000000").to_arrow().sort_by("id"),
    "a range": lambda table: table.scan(where="id >= 1000 AND id < 30000").to_arrow().sort_by("id"),
    "an aggregate": lambda table: table.scan(where="note > 'note 5'").count(),
    "a row": lambda table: [table.get(each) for each in (0, 150, 20_001, ROWS - 1, ROWS)],
}


def flip(path: Path, random: Random) -> None:
    with path.open("r+b") as file:
        at = random.randrange(path.stat().st_size)
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << random.randrange(8)]), at)


HARM: dict[str, Callable[[Path, Random], object]] = {
    "deleted": lambda path, random: path.unlink(),
    "the directory deleted": lambda path, random: shutil.rmtree(path.parent, ignore_errors=True),
    "truncated": lambda path, random: os.truncate(path, random.randrange(path.stat().st_size)),
    "flipped": flip,
}


def harm(pieces: Path, kind: str, stop: threading.Event, done: list[int]) -> None:
    """Harm a few pieces of a cache, again and again."""
    random = Random(kind)
    while not stop.wait(0.002):
        for _ in range(3):
            with suppress(OSError, ValueError, IndexError):
                HARM[kind](random.choice(list(pieces.iterdir())), random)
                done[0] += 1


@pytest.mark.parametrize("kind", HARM)
def test_harm_during_scans_changes_no_answer(
    filled: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(cache, "OPEN_MOST", 1)  # who has a file open does not notice that it is gone
    with opened(filled) as (_, table):
        expected = {what: read(table) for what, read in READS.items()}
    machine = filled.other()
    machine.disk = LocalFileSystem(tmp_path)  # pyright: ignore[reportAttributeAccessIssue]
    stop, done = threading.Event(), [0]
    with opened(machine) as (store, table):
        for read in READS.values():
            read(table)
        cold = sum(call.verb == "get_ranges" for call in machine.objects.calls)
        thread = threading.Thread(target=harm, args=(tmp_path / "pieces", kind, stop, done))
        thread.start()
        try:
            for _ in range(12):
                for what, read in READS.items():
                    assert read(table) == expected[what], what
        finally:
            stop.set()
            thread.join()
        again = sum(call.verb == "get_ranges" for call in machine.objects.calls) - cold
        assert done[0] > 10 and again > 10, "harm was done, and noticed"
        assert not store.damage.found(), "the cache is to blame, not the store"


@pytest.mark.parametrize("capacity_bytes", [0, 20_000, 400_000])
def test_a_full_disk_of_the_cache_changes_no_answer(filled: Machine, capacity_bytes: int) -> None:
    with opened(filled) as (_, table):
        expected = {what: read(table) for what, read in READS.items()}
    machine = filled.other()
    machine.disk = MemoryFileSystem(capacity_bytes=capacity_bytes)
    with opened(machine, disk_low_bytes=0, bucket_cache_bytes=1 << 30) as (store, table):
        for _ in range(2):
            for what, read in READS.items():
                assert read(table) == expected[what], what
        assert not store.damage.found()


def test_a_cache_without_room_for_new_files_keeps_the_rows_in_the_log(filled: Machine) -> None:
    """A flush needs a place to write; what waits for it is in the log, and anybody can have it."""
    machine = Machine()
    machine.disk = MemoryFileSystem(capacity_bytes=100_000)
    with Store.open(machine.home(), OPTIONS.model_copy(update={"disk_low_bytes": 0})) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert(batch(0, 20_000, 1))
        with pytest.raises(StorageFullError):
            store.maintain("t", "flush")
        table.insert(batch(20_000, 100, 2))
        assert table.count() == 20_100
    with Store.open(machine.other().home(), OPTIONS) as store:
        assert Database(store).table("t").count() == 20_100
        store.maintain("t", "flush")
        assert Database(store).table("t").scan().to_arrow().num_rows == 20_100

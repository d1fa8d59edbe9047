"""A disk that is nearly full: writes stop, reads and flushes do not, and writes continue by themselves."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.fs.low_water import LowWater
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.schemas.errors import StorageFullError

MIB = 1 << 20
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the disk says that it has left."""
    state = {"bytes": 1024 * MIB}
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self, path: state["bytes"])
    return state


@pytest.fixture
def database(tmp_path: Path, free: dict[str, int]) -> Iterator[Database]:
    with nyala.open(tmp_path / "store", disk_low_bytes=10 * MIB, maintenance="off") as database:
        yield database


@pytest.fixture
def table(database: Database) -> Table:
    table = database.create_table("t", SCHEMA, primary_key=["k"])
    table.insert([{"k": key, "v": b"old"} for key in range(100)])
    return table


def row(key: int) -> dict[str, Any]:
    return {"k": key, "v": b"new"}


WRITES: dict[str, Callable[[Table], object]] = {
    "a row": lambda table: table.insert([row(200)]),
    "rows": lambda table: table.insert([row(300), row(301)]),
    "an upsert": lambda table: table.upsert([row(1)]),
    "an update": lambda table: table.update([row(2)]),
    "a deletion": lambda table: table.delete([{"k": 3}]),
    "a batch": lambda table: table.insert(pa.table([range(400, 450), [b"new"] * 50], schema=SCHEMA)),
    "a statement": lambda table: table.update_where({"v": "'new'"}, "k < 10"),
}


def filled(table: Table) -> None:
    """Write so much that the store looks at the disk."""
    random = Random(0)
    table.insert(pa.table([range(10_000, 10_008), [random.randbytes(60_000) for _ in range(8)]], schema=SCHEMA))
    for first in range(1_000, 2_600, 100):
        table.insert(pa.table([range(first, first + 100), [random.randbytes(4_000)] * 100], schema=SCHEMA))


@pytest.mark.parametrize("what", WRITES)
def test_writes_stop_and_continue_by_themselves(
    database: Database, table: Table, free: dict[str, int], what: str
) -> None:
    free["bytes"] = 10 * MIB - 1
    with pytest.raises(StorageFullError, match="disk_low_bytes"):
        filled(table)
    before = table.scan().to_arrow()
    for _ in range(3):
        with pytest.raises(StorageFullError, match="10,485,759 bytes left, and writes stop at 10,485,760"):
            WRITES[what](table)
    assert table.get(1) == {"k": 1, "v": b"old"}
    table.maintain("flush")
    assert table.scan().to_arrow().sort_by("k").equals(before.sort_by("k"))
    health = database.health()
    assert (health.status, health.takes_writes) == ("degraded", True) and "disk_low_bytes" in health.reason
    free["bytes"] = 10 * MIB
    WRITES[what](table)
    assert database.health().status == "ok"
    assert not table.scan().to_arrow().sort_by("k").equals(before.sort_by("k"))


def test_a_store_that_opens_below_the_mark_refuses_the_first_write(tmp_path: Path, free: dict[str, int]) -> None:
    with nyala.open(tmp_path / "store") as database:
        database.create_table("t", SCHEMA, primary_key=["k"]).insert([row(1)])
    free["bytes"] = 0
    with nyala.open(tmp_path / "store") as database:
        with pytest.raises(StorageFullError):
            database.table("t").insert([row(2)])
        assert database.table("t").scan().to_arrow().num_rows == 1


def test_without_a_mark_it_is_a_hundredth_of_the_disk_at_most_256_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem(100 * MIB)
    fs.create("filler").append(bytes(99 * MIB))
    assert not LowWater(fs, None).is_low
    fs.create("more").append(b"x")
    assert LowWater(fs, None).is_low
    assert not LowWater(fs, 0).is_low
    huge = MemoryFileSystem(1 << 50)
    LowWater(huge, None).check()
    monkeypatch.setattr(huge, "free_bytes", lambda path: 256 * MIB - 1)
    with pytest.raises(StorageFullError):
        LowWater(huge, None).check()


def test_a_disk_that_does_not_tell_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()

    def unknown(path: str) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(fs, "free_bytes", unknown)
    mark = LowWater(fs, 1 << 60)
    mark.check()
    assert not mark.is_low


def test_a_disk_that_is_nearly_full_gets_the_log_back(tmp_path: Path, free: dict[str, int]) -> None:
    """One row that nobody flushes would keep all of the log after it, however many tables are dropped."""
    options: Any = {"disk_low_bytes": 10 * MIB, "wal_segment_bytes": 1 << 16, "maintenance": "off"}
    with nyala.open(tmp_path / "store", **options) as database:
        store = database._store
        table = database.create_table("t", SCHEMA, primary_key=["k"])
        table.insert([row(1)])
        filler = database.create_table("filler", SCHEMA, primary_key=["k"])
        for first in range(0, 2_000, 100):
            filler.insert(pa.table([range(first, first + 100), [bytes(1_000)] * 100], schema=SCHEMA))
        segments = len(list((tmp_path / "store" / "wal").iterdir()))
        database.drop_table("filler")
        assert len(list((tmp_path / "store" / "wal").iterdir())) == segments > 10
        assert store.run_maintenance_once() is None  # pyright: ignore[reportAttributeAccessIssue]
        free["bytes"] = 0
        with pytest.raises(StorageFullError):
            for key in range(100):
                table.insert(pa.table([[key + 10], [bytes(60_000)]], schema=SCHEMA))
        while store.run_maintenance_once():  # pyright: ignore[reportAttributeAccessIssue]
            pass
        assert len(list((tmp_path / "store" / "wal").iterdir())) < segments // 2
        free["bytes"] = 1024 * MIB
        table.insert([row(2)])


def test_dropping_a_table_frees_its_log(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store", wal_segment_bytes=1 << 16, maintenance="off") as database:
        filler = database.create_table("filler", SCHEMA, primary_key=["k"])
        for first in range(0, 2_000, 100):
            filler.insert(pa.table([range(first, first + 100), [bytes(1_000)] * 100], schema=SCHEMA))
        assert len(list((tmp_path / "store" / "wal").iterdir())) > 10
        database.drop_table("filler")
        assert len(list((tmp_path / "store" / "wal").iterdir())) <= 2


def test_a_dropped_table_keeps_no_file_open(database: Database, table: Table) -> None:
    """Until the interpreter looks for cycles, which a server that rests does not: the disk would not get room."""
    table.maintain("flush")
    table.upsert([row(1)])
    assert table.get(1) == row(1)
    assert table.scan(where="k = 2").to_arrow().num_rows == 1
    rowset = weakref.ref(database._store._catalog.table("t").tablets[0].version.on_disk[0])  # pyright: ignore
    gc.collect()
    gc.disable()
    try:
        database.drop_table("t")
        assert rowset() is None
    finally:
        gc.enable()

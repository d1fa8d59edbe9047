"""Large loads of tables with many tablets, of ones that are altered meanwhile, and of ones that number their rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert import batching
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.table import direct_load
from nyala.flight_server.server import FlightServer
from tests.dose import dose

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
OPTIONS = StoreOptions(maintenance="off", direct_load_bytes=1, direct_load_unsorted_bytes=1)
RANGES = nyala.range("k", bounds=[(0, 500), (500, 1_000), (1_000, 2_000)])
ID = "auto_incrementing_id"


class Opened:
    """A store in memory that can be stopped, or lose its power, and be opened again."""

    def __init__(self, options: StoreOptions = OPTIONS) -> None:
        self.fs, self.options = MemoryFileSystem(), options
        self.store = Store.open(self.fs, options)
        self.database = Database(self.store)

    def crash(self) -> Table:
        image = self.fs.crash_image(Random(0))
        self.store.close()
        self.fs = image
        self.store = Store.open(image, self.options)
        self.database = Database(self.store)
        return self.database.table("t")

    def attached(self) -> list[int]:
        """Return the rows of all rowsets that were attached and are not in the manifest."""
        tablets = self.store._catalog.table("t").tablets
        return [len(rowset) for tablet in tablets for rowset in tablet.version.attached]

    def close(self) -> None:
        self.store.close()
        report = verify_store(self.fs)
        assert report.is_sound, report.problems


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    opened.close()


def some(keys: range | list[int], text: str = "x") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.repeat(text, len(keys))})


@pytest.mark.parametrize("remote", [False, True], ids=["embedded", "remote"])
@pytest.mark.parametrize("op", ["insert", "upsert"])
def test_a_large_frame_in_key_order_goes_to_disk(monkeypatch: pytest.MonkeyPatch, remote: bool, op: str) -> None:
    monkeypatch.setattr(batching, "COMMIT_ROWS", 1_000)
    monkeypatch.setattr(batching, "ORDERED_COMMIT_BYTES", 200_000)
    opened = Opened(OPTIONS.model_copy(update={"direct_load_bytes": 100_000, "direct_load_unsorted_bytes": 1 << 30}))
    server = FlightServer(opened.store, "grpc://127.0.0.1:0") if remote else None
    database = connect(f"grpc://127.0.0.1:{server.port}") if server else opened.database
    table = database.create_table("t", SCHEMA, ["k"])
    before = database.now()
    result = table.write(some(range(60_000)), op)
    assert (result.rows, result.applied) == (60_000, 60_000)
    stamps = table.changes(since=before, columns=["k"], ordered=True).to_arrow()["_timestamp"].to_numpy()
    assert (np.diff(stamps) >= 0).all() and stamps[-1] == result.timestamp and 5 < len(set(stamps.tolist())) < 15
    assert sum(opened.attached()) > 45_000 and len(opened.attached()) == len(set(stamps.tolist())) - 4
    with pytest.raises(nyala.RowErrors, match="ALREADY_PRESENT") as caught:
        table.insert(some(range(30_000, 90_000)))
    errors = caught.value.result
    assert (errors.applied, errors.error_count) == (30_000, 30_000) and errors.errors[0].row == 0
    if server:
        database.close()
        server.shutdown()
    table = opened.crash()
    assert table.scan(ordered=True, columns=["k"]).to_arrow()["k"].to_pylist() == list(range(90_000))
    opened.close()


@pytest.mark.parametrize("shuffled", [False, True])
def test_one_commit_attaches_rowsets_of_many_tablets(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, shuffled: bool
) -> None:
    monkeypatch.setattr(direct_load, "TARGET_BYTES", 2_000)
    table = opened.database.create_table("t", SCHEMA, ["k"], partition_by=[nyala.hash("k", buckets=2), RANGES])
    keys = list(range(1_500))
    if shuffled:
        Random(1).shuffle(keys)
    before = opened.database.now()
    result = table.insert(some(keys), atomic=True)
    assert result.applied == 1_500 and len(opened.attached()) == 12 and sum(opened.attached()) == 1_500
    assert table.scan(as_of=result.timestamp - 1).count() == 0 == table.scan(as_of=before).count()
    assert set(table.changes(since=before).to_arrow()["_timestamp"].to_pylist()) == {result.timestamp}
    table.update(some([7, 1_400], "y"))
    for maintenance in ("flush", "flush_deltas", "compact"):
        table = opened.crash()
        rows = table.scan(ordered=True).to_arrow()
        assert rows["k"].to_pylist() == list(range(1_500))
        assert [k for k, v in zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True) if v == "y"] == [7, 1_400]
        assert table.get(1_200) == {"k": 1_200, "v": "x"}
        table.maintain(maintenance)


def test_only_the_tablets_whose_rows_are_all_new_are_loaded_directly(opened: Opened) -> None:
    table = opened.database.create_table("t", SCHEMA, ["k"], partition_by=[RANGES])
    table.insert(some([600]))
    table = opened.crash()
    opened.store.maintain("t", "flush")
    result = table.insert(some(range(1_100)), on_error="return")
    assert (result.applied, [error.row for error in result.errors]) == (1_099, [600])
    assert sorted(opened.attached()) == [100, 500]
    refused = table.insert(some(range(1_050, 1_200)), atomic=True, on_error="return")
    assert refused.applied == 0 and sorted(opened.attached()) == [100, 500]
    assert table.scan().count() == 1_100


def while_staging(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], after: int = 1) -> None:
    """Do ``work`` once some rowsets of a load are written."""
    calls = 0
    write = direct_load._write_base

    def with_work(*arguments: object) -> None:
        nonlocal calls
        write(*arguments)  # type: ignore[arg-type]
        calls += 1
        if calls == after:
            work()

    monkeypatch.setattr(direct_load, "_write_base", with_work)


def test_a_column_that_comes_while_rows_are_staged(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened.database.create_table("t", SCHEMA, ["k"], partition_by=[RANGES])
    while_staging(
        monkeypatch, table.alter().add_column("w", "int32", write_default=5).rename_column("v", "text").apply, 2
    )
    with pytest.raises(nyala.InvalidArgumentError, match="'v'"):
        table.insert(some(range(1_100)))
    assert opened.attached() == []
    while_staging(monkeypatch, table.alter().add_column("z", "int32", write_default=6).apply, 2)
    table.insert(some(range(1_100)).rename_columns(["k", "text"]))
    assert sorted(opened.attached()) == [100, 500, 500]
    table = opened.crash()
    assert table.get(900) == {"k": 900, "text": "x", "w": 5, "z": 6} and table.scan().count() == 1_100


def test_a_range_that_goes_while_rows_are_staged(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened.database.create_table("t", SCHEMA, ["k"], partition_by=[RANGES])
    while_staging(monkeypatch, table.alter().drop_range_partition(500, 1_000).apply, 2)
    result = table.insert(some(range(1_100)), on_error="return")
    assert (result.applied, result.error_count, result.errors[0].code) == (600, 500, "NO_PARTITION")
    assert sorted(opened.attached()) == [100, 500]
    table = opened.crash()
    assert table.scan().count() == 600


def test_a_table_that_goes_while_rows_are_staged(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened.database.create_table("t", SCHEMA, ["k"], partition_by=[RANGES])
    while_staging(monkeypatch, lambda: opened.database.drop_table("t"))
    with pytest.raises(nyala.NotFoundError, match="table 't' was dropped"):
        table.insert(some(range(1_100)))
    with pytest.raises(nyala.NotFoundError):
        table.insert(some([1]))
    table = opened.database.create_table("t", SCHEMA, ["k"])
    assert table.insert(some(range(10))).applied == 10
    assert opened.crash().scan().count() == 10


def test_rows_that_the_store_numbers(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are given anew where the load begins again, and never twice, whatever remembers them."""
    table = opened.database.create_table("t", SCHEMA, ["k"], unique_key=False, partition_by=[RANGES])
    while_staging(monkeypatch, table.alter().add_column("w", "int32").apply, 2)
    table.insert(some([1, 1, 600, 600, 1_200]))
    assert sum(opened.attached()) == 5
    ids = table.scan(columns=[ID]).to_arrow()[ID].to_pylist()
    assert len(set(ids)) == 5 and max(ids) == 10
    table = opened.crash()
    table.insert(some([1]))
    assert table.scan(where=f"{ID} = 11").count() == 1
    table.maintain("flush")
    table.alter().drop_range_partition(0, 500).apply()
    table = opened.crash()
    table.insert(some([600]))
    assert table.scan(where=f"{ID} > 11", columns=[ID]).to_arrow()[ID].to_pylist() == [12]


def test_writers_at_once_get_numbers_that_rise_and_are_given_once(opened: Opened) -> None:
    table = opened.database.create_table("t", SCHEMA, ["k"], unique_key=False, partition_by=[RANGES])
    rounds = dose(4, 12)
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for count in range(rounds):
                keys = sorted(Random(number * 100 + count).choices(range(2_000), k=50))
                opened.database.table("t").insert(some(keys, f"{number} {count:02}"))
        except BaseException as error:
            failures.append(error)

    def alter() -> None:
        for count in range(1_000):
            if stop.is_set():
                return
            table.alter().add_column(f"c{count}", "int32").apply()
            table.alter().drop_column(f"c{count}").apply()
            table.maintain("flush")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    altering = threading.Thread(target=alter)
    for thread in (*threads, altering):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    altering.join()
    assert not failures
    for after in (lambda: table, opened.crash):
        rows = after().scan(columns=[ID, "v"]).to_arrow()
        assert len(set(rows[ID].to_pylist())) == rows.num_rows == 4 * rounds * 50
        batches: dict[str, list[int]] = {}
        for row in rows.to_pylist():
            batches.setdefault(row["v"], []).append(row[ID])
        assert all(max(ids) - min(ids) == 49 for ids in batches.values())
        for number in range(4):
            firsts = [min(batches[f"{number} {count:02}"]) for count in range(rounds)]
            assert firsts == sorted(firsts)

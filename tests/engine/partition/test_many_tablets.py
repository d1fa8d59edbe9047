"""A table of 1,000 tablets: created, written, pruned to one, and opened again. Times are in bench/."""

import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store

OPTIONS = StoreOptions(maintenance="off")
SCHEMA = pa.schema([("host", pa.int64()), ("time", pa.int64()), ("value", pa.int64())])
BUCKETS, RANGES = 10, 100


def rows() -> pa.Table:
    numbers = range(4_000)
    return pa.table({"host": [n % 40 for n in numbers], "time": [n // 40 for n in numbers], "value": [7] * 4_000})


def check(database: Database) -> None:
    table = database.table("t")
    assert len(table.stats()["tablets"]) == BUCKETS * RANGES
    one = table.scan(where="host = 3 AND time = 17")
    told = one.explain()
    assert (told["tablets"], told["tablets_to_read"]) == (BUCKETS * RANGES, 1)
    assert one.to_arrow().to_pylist() == [{"host": 3, "time": 17, "value": 7}]
    assert table.scan().count() == 4_000 and table.scan(where="time < 2").count() == 80


def test_a_thousand_tablets_are_written_pruned_and_opened_again() -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, OPTIONS) as store:
        levels = [nyala.hash("host", buckets=BUCKETS), nyala.range("time", splits=list(range(1, RANGES)))]
        table = Database(store).create_table("t", SCHEMA, ["host", "time"], partition_by=levels)
        assert table.insert(rows()).applied == 4_000
        check(Database(store))
        table.maintain("flush")
        check(Database(store))
    with Store.open(fs, OPTIONS) as again:
        check(Database(again))

"""Tables whose primary key is not unique: the store numbers new rows, here and over Flight, across any end."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.table import TableDefinition, TableSchema
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32())])
ID = "auto_incrementing_id"
OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)


def make(db: Database) -> nyala.clients.api.table.Table:
    return db.create_table("t", SCHEMA, ["k"], unique_key=False, history_max_age_seconds=1)


def rows(table: nyala.clients.api.table.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.scan(ordered=True).to_arrow().to_pylist()]


def test_rows_may_share_a_key(db: Database) -> None:
    table = make(db)
    assert table.primary_key == ["k", ID] and not table.describe()["unique_key"]
    assert table.schema.names == ["k", ID, "v"] and table.schema.field(ID).type == pa.int64()
    table.insert({"k": ["b", "a", "b"], "v": [1, 2, 3]})
    table.insert_ignore({"v": [4], "k": ["b"]})
    assert rows(table) == [("a", 2, 2), ("b", 1, 1), ("b", 3, 3), ("b", 4, 4)]
    assert table.scan(columns=[ID], where=f"{ID} > 2").count() == 2
    table.update({"k": ["b"], ID: [3], "v": [30]})
    table.delete({"k": ["a"], ID: [2]})
    table.upsert({"k": ["b", "c"], ID: [1, 9], "v": [10, 90]})
    table.insert({"k": ["a"], "v": [5]})
    assert rows(table) == [("a", 10, 5), ("b", 1, 10), ("b", 3, 30), ("b", 4, 4), ("c", 9, 90)]
    assert table.get(("b", 4)) == {"k": "b", ID: 4, "v": 4}


def test_what_must_and_must_not_carry_the_number(db: Database) -> None:
    table = make(db)
    for write in (table.insert, table.insert_ignore):
        with pytest.raises(InvalidArgumentError, match=r"the store assigns 'auto_incrementing_id' to new rows"):
            write({"k": ["a"], ID: [1], "v": [1]})
    for write in (table.upsert, table.update, table.delete):
        with pytest.raises(
            InvalidArgumentError, match="has no column 'auto_incrementing_id', which is part of the primary key"
        ):
            write({"k": ["a"]})
    result = table.write({"k": ["a", "b", "c"], ID: [0, 5, None], "v": [1, 2, 3]}, "upsert", on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(0, "INVALID_ARGUMENT"), (2, "INVALID_ARGUMENT")]
    refused = table.write({"k": ["x", None, "y"], "v": [1, 2, 3]}, "insert", on_error="return")
    assert refused.errors[0].row == 1 and rows(table) == [("b", 5, 2), ("x", 6, 1), ("y", 7, 3)]
    table.upsert({"k": ["z"], ID: [(1 << 63) - 1]})
    with pytest.raises(InvalidArgumentError, match="fewer than 1 ids are left"):
        table.insert({"k": ["a"]})


def test_a_write_that_is_sent_again_inserts_nothing(db: Database) -> None:
    table = make(db)
    first = table.write({"k": ["a", "a"]}, "insert", writer="w", seq=0)
    assert table.write({"k": ["a", "a"]}, "insert", writer="w", seq=0) == first
    assert rows(table) == [("a", 1, None), ("a", 2, None)]


def test_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    with nyala.open(tmp_path / "data", maintenance="off") as db:
        make(db).write({"k": ["a", "b"]}, "insert", writer="w", seq=0)
    with nyala.open(tmp_path / "data", maintenance="off") as db:
        table = db.table("t")
        table.write({"k": ["a", "b"]}, "insert", writer="w", seq=0)
        table.insert({"k": ["a"]})
        table.maintain("flush")
    with nyala.open(tmp_path / "data", maintenance="off") as db:
        db.table("t").insert({"k": ["c"]})
        assert [row[1] for row in rows(db.table("t"))] == [1, 3, 2, 4]


@pytest.mark.parametrize("seed", range(4))
def test_no_number_comes_twice_after_crashes(seed: int) -> None:
    """Even when the rows that had them are gone with their part of the log and their files."""
    random, fs, given, clock = Random(seed), MemoryFileSystem(), 0, ManualClock(1_700_000_000_000_000)
    emptied = 0
    for life in range(6):
        store = Store.open(fs, OPTIONS, clock)
        table = Database(store).table("t") if life else make(Database(store))
        for _ in range(random.randrange(1, 4)):
            before = store.now()
            table.insert({"k": ["k" * 500] * 5})
            ids = [row[ID] for row in table.changes(since=before).to_arrow().to_pylist()]
            assert min(ids) > given
            given = max(ids)
            if random.random() < 0.7:
                table.maintain("flush")
        if random.random() < 0.7:
            table.delete(table.scan(columns=["k", ID]).to_arrow())
            clock.advance(10_000_000)
            for op in ("flush", "flush_deltas", "gc", "compact"):
                table.maintain(op)
            emptied += table.stats()["tablets"][0]["rowsets"] == 0
        crashed = fs.crash_image(random)
        store.close()
        fs = crashed
    assert emptied


def test_names_and_limits() -> None:
    with pytest.raises(InvalidArgumentError, match="remove it from the schema"):
        wrong = pa.schema([("k", pa.int64()), (ID, pa.int64())])
        TableSchema.create(TableDefinition.from_arrow("t", wrong, ["k"], unique_key=False), Limits())
    with pytest.raises(InvalidArgumentError, match="3 columns"):
        TableSchema.create(TableDefinition.from_arrow("t", SCHEMA, ["k"], unique_key=False), Limits(columns=2))

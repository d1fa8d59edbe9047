"""The timestamp of the last commit that changed a table, in this process and over Flight."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import NotFoundError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])


def rows(*keys: int, v: str = "v") -> pa.Table:
    return pa.table({"k": list(keys), "v": [v] * len(keys)}, SCHEMA)


def test_it_is_the_timestamp_of_the_last_commit_that_changed_rows(db: Database) -> None:
    table, other = db.create_table("t", SCHEMA, ["k"]), db.create_table("other", SCHEMA, ["k"])
    assert table.last_change() == 0
    written = table.insert(rows(1, 2)).timestamp
    assert table.last_change() == written == table.stats()["last_change"]
    other.insert(rows(1))
    assert table.insert_ignore(rows(1)).ignored == 1 and table.last_change() == written
    assert table.changes(written).to_arrow().num_rows == 0
    deleted = table.delete({"k": [1]}).timestamp
    assert table.last_change() == deleted > written


def test_there_is_none_of_a_table_that_is_not_there(db: Database) -> None:
    db.create_table("t", SCHEMA, ["k"]).insert(rows(1))
    assert db.table("t").last_change() > 0
    table = db.table("t")
    db.drop_table("t")
    with pytest.raises(NotFoundError):
        table.last_change()


def test_it_outlives_restarts_and_the_log_that_tells_of_it() -> None:
    fs = MemoryFileSystem()
    options = StoreOptions(maintenance="off", wal_segment_bytes=1 << 12)
    with Database(Store.open(fs, options)) as db:
        written = db.create_table("t", SCHEMA, ["k"]).insert(rows(1)).timestamp
        db.create_table("other", SCHEMA, ["k"])
    with Database(Store.open(fs, options)) as db:
        assert db.table("t").last_change() == written
        db.table("t").maintain("flush")
        for key in range(300):
            db.table("other").upsert(rows(key, v="x" * 200))
        segments = len(fs.list("wal"))
        db.table("other").maintain("flush")
        assert len(fs.list("wal")) < segments, "the log was freed"
        db.table("t").maintain("compact")
    with Database(Store.open(fs, options)) as db:
        assert db.table("t").last_change() == written
        assert db.table("t").changes(written).to_arrow().num_rows == 0

"""``nyala.open(path, read_only=True)``: a store is read beside the process that has it, and nothing is written."""

from __future__ import annotations

import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
)
from tests.doubles.waiting import until
from tests.engine.replica.live_stores import SCHEMA, SMALL, put, rows


@pytest.fixture
def holder(home: Path) -> Iterator[Database]:
    with nyala.open(home, **SMALL) as database:
        database.create_table("t", SCHEMA, "id")
        yield database


@pytest.fixture
def reader(home: Path, holder: Database) -> Iterator[Database]:
    with nyala.open(home, read_only=True) as database:
        yield database


# What it shows


def test_all_reads_work_beside_the_process_that_has_the_store(holder: Database, reader: Database) -> None:
    assert reader.tables() == ["t"] and reader.table("t").count() == 0
    put(holder, *range(500))
    table = reader.table("t")
    assert table.count() == 500 and table.get(7) == {"id": 7, "v": 1, "name": "row 7"}
    assert table.get_many([3, 4, 999]).num_rows == 2
    before = holder.now()
    holder.table("t").update([{"id": 7, "v": 70}])
    holder.table("t").delete([{"id": 8}])
    assert table.get(7) == {"id": 7, "v": 70, "name": "row 7"} and table.get(8) is None
    assert rows(reader, as_of=before) == rows(holder, as_of=before) and rows(reader) == rows(holder)
    found = table.scan(where="v > 1 OR id < 3", order_by="id").to_pandas()
    assert found["id"].tolist() == [0, 1, 2, 7]
    assert table.scan().to_polars().height == 499
    assert table.scan().aggregate({"sum": ("v", "sum")}).to_pylist() == [{"sum": 568}]
    changes = table.changes(before).to_arrow().to_pylist()
    assert [(each["id"], each["_op"]) for each in changes] == [(7, "update"), (8, "delete")]
    assert reader.sql("SELECT count(*) AS n FROM t WHERE v = 1").to_arrow().to_pylist() == [{"n": 498}]
    commits = reader.commits("t")
    assert commits["timestamp"].to_pylist() == holder.commits("t")["timestamp"].to_pylist()
    assert "t" in str(table.scan(where="id = 3").explain()) and table.stats()["live_rows"] == 499
    assert table.describe() == holder.table("t").describe()
    assert table.last_change() == holder.table("t").last_change()
    assert reader.health().status == "read_only" and not reader.health().damaged
    assert reader.dropped_tables() == [] and reader.grants() == []


@pytest.mark.parametrize("op", ["flush", "flush_deltas", "compact", "minor_compact", "major_compact", "gc"])
def test_maintenance_of_the_holder_changes_nothing(holder: Database, reader: Database, op: str) -> None:
    for each in range(3):
        put(holder, *range(each * 50, 300), v=each)
        holder.table("t").maintain("flush")
        put(holder, *range(0, 300, 7), v=10 + each)
        holder.table("t").maintain("flush_deltas")
    expected = rows(holder)
    assert rows(reader) == expected
    holder.table("t").maintain(op)
    assert rows(reader) == expected
    put(holder, 5, v=99)
    assert reader.table("t").get(5) == {"id": 5, "v": 99, "name": "row 5"}


def test_tables_are_made_altered_renamed_dropped_and_recalled(holder: Database, reader: Database) -> None:
    put(holder, 1)
    assert reader.table("t").get(1) is not None
    holder.create_table("u", SCHEMA, "id", data=[{"id": 1, "v": 2}])
    assert reader.tables() == ["t", "u"] and rows(reader, "u")[0]["v"] == 2
    holder.table("u").alter().add_column("more", pa.int64()).apply()
    holder.table("u").upsert([{"id": 2, "more": 5}])
    assert [row["more"] for row in rows(reader, "u")] == [None, 5]
    holder.table("u").alter().rename("w").apply()
    assert reader.tables() == ["t", "w"] and len(rows(reader, "w")) == 2
    with pytest.raises(NotFoundError):
        reader.table("u")
    holder.drop_table("w", keep_seconds=1000)
    assert reader.tables() == ["t"] and [each.name for each in reader.dropped_tables()] == ["w"]
    holder.recall_table("w")
    assert len(rows(reader, "w")) == 2
    holder.drop_table("w")
    assert reader.tables() == ["t"]


def test_transactions_and_loads_are_whole(holder: Database, reader: Database) -> None:
    holder.create_table("u", SCHEMA, "id")
    with holder.transaction() as both:
        both.write("t", [{"id": 1, "v": 1}])
        both.write("u", [{"id": 1, "v": 1}])
    assert len(rows(reader)) == len(rows(reader, "u")) == 1
    holder.table("t").insert(pa.table({"id": range(10, 5_010), "v": [3] * 5_000}))
    assert reader.table("t").count() == 5_001
    put(holder, 10, v=4)
    assert reader.table("t").scan(where="v = 3").count() == 4_999


def test_a_scan_that_runs_shows_one_snapshot_whatever_the_holder_deletes(holder: Database, reader: Database) -> None:
    random = Random(1)
    many = pa.table({"id": range(60_000), "v": [random.getrandbits(60) for _ in range(60_000)]})
    holder.table("t").insert(many)
    holder.table("t").maintain("flush")
    scan = iter(reader.table("t").scan(ordered=True))
    first = next(scan)
    holder.table("t").delete_where("id % 2 = 0")
    for op in ("flush", "compact", "gc", "flush"):
        holder.table("t").maintain(op)
    assert reader.table("t").count() == 30_000
    rest = pa.Table.from_batches([first, *scan])
    assert rest["v"].to_pylist() == many["v"].to_pylist()


def test_a_query_keeps_what_it_began_with(holder: Database, reader: Database) -> None:
    put(holder, *range(3_000))
    holder.table("t").maintain("flush")
    result = reader.sql("SELECT id FROM t WHERE v = 1 ORDER BY id")
    holder.table("t").update_where({"v": "2"})
    holder.table("t").maintain("flush")
    holder.table("t").maintain("compact")
    assert reader.table("t").scan(where="v = 2").count() == 3_000
    assert result.to_arrow()["id"].to_pylist() == list(range(3_000))


def test_without_a_holder_it_shows_what_a_recovery_would(home: Path, tmp_path: Path) -> None:
    with nyala.open(home, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        put(holder, *range(300))
        holder.table("t").maintain("flush")
        put(holder, *range(0, 300, 3), v=2)
        killed = tmp_path / "killed"
        shutil.copytree(home, killed)
        expected = rows(holder)
    for directory in (home, killed):
        with nyala.open(directory, read_only=True) as reader:
            assert rows(reader) == expected
            with nyala.open(directory, **SMALL) as holder:
                assert rows(holder) == expected
                put(holder, 7, v=7)
                assert reader.table("t").get(7) == {"id": 7, "v": 7, "name": "row 7"}
            assert reader.table("t").get(7) == {"id": 7, "v": 7, "name": "row 7"}


def test_a_reader_that_slept_while_the_log_was_freed_reads_on(home: Path, holder: Database, reader: Database) -> None:
    assert rows(reader) == []
    first = {path.name for path in (home / "wal").iterdir()}
    for each in range(8):
        put(holder, *range(each * 400, each * 400 + 400))
        holder.table("t").maintain("flush")
    assert not first & {path.name for path in (home / "wal").iterdir()}, "the log was not freed"
    put(holder, 5, v=5)
    assert rows(reader) == rows(holder)


def test_a_read_may_be_as_old_as_it_says(holder: Database, reader: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    put(holder, 1)
    table = reader.table("t")
    store: Any = reader._store
    looks: list[int] = []
    look = store._source.look
    monkeypatch.setattr(store._source, "look", lambda: looks.append(1) or look())
    put(holder, 2)
    assert table.scan(max_staleness=1000).count() == 1 and not looks
    assert table.scan(max_staleness=0).count() == 2 and looks
    put(holder, 3)
    assert table.count() == 3, "without max_staleness a read shows all that was acknowledged"


def test_a_moment_is_read_once_the_log_has_reached_it(holder: Database, reader: Database) -> None:
    put(holder, 1)
    moments = []
    for each in range(2, 6):
        moments.append((holder.now(), each - 1))
        put(holder, each)
    for moment, count in moments:
        assert len(rows(reader, as_of=moment)) == count
    assert len(rows(reader, as_of=holder.now())) == 5, "nothing came into the log since"
    with pytest.raises(InvalidArgumentError, match="in the future"):
        rows(reader, as_of=holder.now() + (10_000_000_000 << 12))
    with pytest.raises(SnapshotTooOldError):
        rows(reader, as_of=1 << 12)
    since = reader.now()
    put(holder, 9)
    end = reader.now()
    assert since < end and len(reader.table("t").changes(since, end).to_arrow()) == 1
    assert reader.table("t").changes(holder.now(), holder.now()).to_arrow().num_rows == 0
    assert reader.table("t").changes(since, holder.now()).to_arrow().num_rows == 1


def test_the_time_of_day_goes_on_while_nobody_writes(home: Path) -> None:
    with nyala.open(home, **SMALL) as holder:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us"))])
        holder.create_table("t", schema, "id", ttl=("at", "4s"))
        holder.table("t").insert([{"id": 1, "at": datetime.now(UTC).replace(tzinfo=None)}])
    with nyala.open(home, read_only=True) as reader:
        table = reader.table("t")
        assert table.count() == 1
        until(lambda: table.count() == 0)
        assert table.get(1) is None and abs(reader.now() / 4096e6 - time.time()) < 30


def test_a_commit_that_comes_late_changes_no_scan_that_runs(
    holder: Database, reader: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot was given out, and then a commit with an earlier timestamp comes into the log."""
    put(holder, *range(2_000))
    holder.table("t").maintain("flush")
    ahead = 3_600 * 1_000_000
    store: Any = reader._store
    physical = store._clock.physical_microseconds
    monkeypatch.setattr(store._clock, "physical_microseconds", lambda: physical() + ahead)
    assert reader.now() > holder.now()
    tablets = store._replica.table("t").tablets
    scan = iter(reader.table("t").scan(ordered=True))
    first = next(scan)
    holder.table("t").update_where({"v": "9"})
    assert reader.table("t").scan(where="v = 9").count() == 2_000
    assert store._replica.table("t").tablets != tablets, "the tables were opened anew"
    assert set(pa.Table.from_batches([first, *scan])["v"].to_pylist()) == {1}


def test_single_rows_get_an_index(holder: Database, reader: Database) -> None:
    put(holder, *range(2_000))
    holder.table("t").maintain("flush")
    table = reader.table("t")
    for each in range(200):
        assert table.get(each) is not None
    assert table.stats()["tablets"][0]["key_index"]["mode"] == "index"
    put(holder, 3, v=9)
    assert (table.get(3) or {})["v"] == 9 and table.get(50_000) is None


# What it refuses


WRITES_OF_USERS: dict[str, Callable[[Database], object]] = {
    "insert": lambda db: db.table("t").insert([{"id": 9}]),
    "insert of many": lambda db: db.table("t").insert(pa.table({"id": range(9_000)})),
    "upsert": lambda db: db.table("t").upsert([{"id": 9}]),
    "merge": lambda db: db.table("t").merge([{"id": 9}]),
    "update": lambda db: db.table("t").update([{"id": 1}]),
    "delete": lambda db: db.table("t").delete([{"id": 1}]),
    "update_where": lambda db: db.table("t").update_where({"v": "1"}),
    "delete_where": lambda db: db.table("t").delete_where("id = 1"),
    "restore": lambda db: db.table("t").restore(db.now()),
    "create_table": lambda db: db.create_table("u", SCHEMA, "id"),
    "create_table with data": lambda db: db.create_table("u", SCHEMA, "id", data=[{"id": 1}]),
    "drop_table": lambda db: db.drop_table("t"),
    "recall_table": lambda db: db.recall_table("t"),
    "alter": lambda db: db.table("t").alter().add_column("more", pa.int64()).apply(),
    "transaction": lambda db: _transaction(db),
    "sql insert": lambda db: db.sql("INSERT INTO t VALUES (1, 2, 'x')"),
    "sql delete": lambda db: db.sql("DELETE FROM t"),
    "sql create": lambda db: db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)"),
    "maintain": lambda db: db.table("t").maintain("flush"),
    "checkpoint": lambda db: db.checkpoint("/nowhere"),
    "create_pin": lambda db: db.create_pin("p", "t"),
    "grant": lambda db: db.grant("read", "t", to="somebody"),
}


def _transaction(database: Database) -> None:
    with database.transaction() as transaction:
        transaction.write("t", [{"id": 9}])


@pytest.mark.parametrize("name", WRITES_OF_USERS)
def test_no_change_is_taken(holder: Database, reader: Database, name: str) -> None:
    put(holder, 1)
    with pytest.raises(InvalidArgumentError, match=r"open for reading only: to change it, use nyala\.connect"):
        WRITES_OF_USERS[name](reader)
    assert len(rows(reader)) == 1


def test_there_must_be_a_store(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFoundError, match=f"there is no store in {path}"):
            nyala.open(path, read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="there is a file where a directory should be"):
        nyala.open(tmp_path / "file", read_only=True)
    with pytest.raises(InvalidArgumentError, match="needs a name"):
        nyala.open(f"file://{tmp_path}", read_only=True)
    with pytest.raises(InvalidArgumentError, match="has no name"):
        nyala.open(tmp_path, name="a", read_only=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing was made"


def test_a_store_of_another_version_is_refused(home: Path, holder: Database, reader: Database) -> None:
    put(holder, 1)
    manifest = home / "manifest"
    head = struct.Struct("<8sIQI")
    magic, version, length, _ = head.unpack_from(content := manifest.read_bytes())
    body = content[head.size :]
    crc = zlib.crc32(body, zlib.crc32(head.pack(magic, version + 1, length, 0)[:-4]))
    (home / "other").write_bytes(head.pack(magic, version + 1, length, crc) + body)
    (home / "other").rename(manifest)
    with pytest.raises(InvalidArgumentError, match="format version 2; this build reads version 1"):
        nyala.open(home, read_only=True)
    with pytest.raises(InvalidArgumentError, match="format version 2"):
        rows(reader)

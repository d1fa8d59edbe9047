"""``nyala.open(path, read_only=True)``: a store is read beside the process that has it, and nothing is written."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
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
from nyala.engine.fs import LocalFileSystem
from nyala.engine.replica.opening import open_to_read
from nyala.schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    StoreError,
    UnavailableError,
)
from tests.doubles.faulty import NAMES, SYNCS, WRITES, FaultRule, FaultyFileSystem
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("name", pa.string())])
SMALL: dict[str, Any] = {"maintenance": "off", "wal_segment_bytes": 64 << 10, "direct_load_bytes": 4_000}


@pytest.fixture
def holder(home: Path) -> Iterator[Database]:
    with nyala.open(home, **SMALL) as database:
        database.create_table("t", SCHEMA, "id")
        yield database


@pytest.fixture
def reader(home: Path, holder: Database) -> Iterator[Database]:
    with nyala.open(home, read_only=True) as database:
        yield database


def put(database: Database, *ids: int, v: int = 1, table: str = "t") -> None:
    database.table(table).upsert([{"id": each, "v": v, "name": f"row {each}"} for each in ids])


def rows(database: Database, table: str = "t", **how: Any) -> list[dict[str, Any]]:
    return sorted(database.table(table).scan(**how).to_arrow().to_pylist(), key=lambda row: row["id"])


def tree(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Return what can be told of all files: their bytes, and when they and their names were changed."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        state = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = state.st_ino, state.st_mode, state.st_mtime_ns, state.st_ctime_ns, content
    return found


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
    with pytest.raises(InvalidArgumentError, match=r"open for reading only: to change it, open it with nyala\.open"):
        WRITES_OF_USERS[name](reader)
    assert len(rows(reader)) == 1


def test_there_must_be_a_store(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFoundError, match=f"there is no store in {path}"):
            nyala.open(path, read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="is a file: give the directory"):
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


# What it leaves alone


def test_nothing_is_written(home: Path, tmp_path: Path) -> None:
    with nyala.open(home, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        put(holder, *range(1_000))
        holder.table("t").maintain("flush")
        put(holder, *range(5))
        killed = tmp_path / "killed"
        shutil.copytree(home, killed)
        before = tree(home)
        _read_all(nyala.open(home, read_only=True))
        assert tree(home) == before
    for directory in (home, killed):
        before = tree(directory)
        _read_all(nyala.open(directory, read_only=True))
        assert tree(directory) == before


def _read_all(database: Database) -> None:
    with database:
        assert database.table("t").count() == 1_000
        assert database.table("t").get(3) is not None
        assert database.sql("SELECT count(DISTINCT name) AS n FROM t").to_arrow().to_pylist() == [{"n": 1_000}]
        assert len(database.commits("t")) == 2 and database.now()


def test_a_disk_that_takes_no_write_is_enough(home: Path, holder: Database) -> None:
    put(holder, *range(100))
    holder.table("t").maintain("flush")
    put(holder, 1, v=5)
    rule = FaultRule(calls=WRITES | SYNCS | NAMES, error=errno.EROFS, sticky=True)
    disk = FaultyFileSystem(LocalFileSystem(home, keeps_open=True), [rule])
    with Database(open_to_read(disk)) as reader:
        assert rows(reader) == rows(holder)
        holder.table("t").maintain("compact")
        put(holder, 200)
        assert rows(reader) == rows(holder)
    assert disk.injected == []


def test_it_takes_no_lock(home: Path, holder: Database, reader: Database) -> None:
    put(holder, 1)
    assert len(rows(reader)) == 1
    holder.close()
    with nyala.open(home, **SMALL) as again:
        put(again, 2)
        assert len(rows(reader)) == 2
        assert (home / "lock").exists()


# What is damaged


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_tail_ends_the_log_as_in_a_recovery(home: Path, tmp_path: Path, seed: int) -> None:
    """The last group is cut or damaged; whoever opens the store next finds the same."""
    random = Random(seed)
    with nyala.open(home, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        put(holder, *range(20))
        ends = [_log_end(home)]
        for each in range(3):
            put(holder, each, 50 + each, v=7)
            ends.append(_log_end(home))
        killed = tmp_path / "killed"
        shutil.copytree(home, killed)
    segment = max((killed / "wal").iterdir())
    content = bytearray(segment.read_bytes())
    start, end = ends[-2], ends[-1]
    if random.random() < 0.5:
        content[start + random.randrange(8, end - start - 40) :] = bytes(len(content))
    else:
        content[start + random.randrange(end - start)] ^= 1 << random.randrange(8)
    segment.write_bytes(content[: segment.stat().st_size])
    with nyala.open(killed, read_only=True) as reader:
        found = rows(reader)
        assert len(found) == 22, "the last of the three commits is not there"
        with nyala.open(killed, **SMALL) as recovered:
            assert rows(recovered) == found
            put(recovered, 99)
            assert rows(reader) == rows(recovered) and len(rows(reader)) == 23


def _log_end(home: Path) -> int:
    """Return one past the last byte of the newest segment that is not zero, rounded up as groups are."""
    used = len(max((home / "wal").iterdir()).read_bytes().rstrip(b"\0"))
    return used + -used % 8


def test_damage_in_the_middle_of_the_log_is_told(home: Path, tmp_path: Path) -> None:
    with nyala.open(home, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        put(holder, *range(20))
        middle = _log_end(home)
        put(holder, 50)
        put(holder, 51)
        killed = tmp_path / "killed"
        shutil.copytree(home, killed)
    segment = max((killed / "wal").iterdir())
    content = bytearray(segment.read_bytes())
    content[middle + 50] ^= 16
    segment.write_bytes(content)
    errors = []
    for how in ({"read_only": True}, SMALL):
        with pytest.raises(CorruptionError) as caught:
            nyala.open(killed, **how)
        errors.append((caught.value.path, caught.value.offset))
    assert errors[0] == errors[1] == (f"wal/{segment.name}", middle)


def test_a_damaged_file_takes_its_tablet_only(home: Path, holder: Database) -> None:
    holder.create_table("u", SCHEMA, "id")
    for name in ("t", "u"):
        put(holder, 1, 2, table=name)
        holder.table(name).maintain("flush")
    tablet = holder.table("t").tablets()[0].tablet
    file = next((home / "tablets" / str(tablet)).glob("*.base"))
    file.write_bytes(file.read_bytes()[:-9] + bytes(9))
    with nyala.open(home, read_only=True) as reader:
        with pytest.raises(CorruptionError, match="quarantine"):
            rows(reader)
        assert len(rows(reader, "u")) == 2
        assert [each.path for each in reader.health().damaged] == [f"tablets/{tablet}/{file.name}"]


def test_a_directory_that_was_put_back_is_read_anew(home: Path, tmp_path: Path) -> None:
    with nyala.open(home, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        put(holder, 1)
    shutil.copytree(home, tmp_path / "earlier")
    with nyala.open(home, read_only=True) as reader:
        with nyala.open(home, **SMALL) as holder:
            put(holder, 2, 3)
            assert len(rows(reader)) == 3
        home.rename(tmp_path / "later")
        with pytest.raises(UnavailableError, match="check the path"):
            rows(reader)
        (tmp_path / "earlier").rename(home)
        assert len(rows(reader)) == 1
        with nyala.open(home, **SMALL) as holder:
            put(holder, 8)
            assert [row["id"] for row in rows(reader)] == [1, 8]


def test_another_store_at_the_path_is_read_anew(home: Path, tmp_path: Path, holder: Database, reader: Database) -> None:
    put(holder, 1)
    assert len(rows(reader)) == 1
    holder.close()
    home.rename(tmp_path / "former")
    with nyala.open(home, **SMALL) as other:
        other.create_table("t", SCHEMA, "id")
        put(other, 4, 5)
        assert [row["id"] for row in rows(reader)] == [4, 5]


def test_a_checkpoint_is_read_as_it_is(tmp_path: Path, holder: Database) -> None:
    put(holder, *range(30))
    holder.checkpoint(tmp_path / "copy")
    before = tree(tmp_path / "copy")
    with nyala.open(tmp_path / "copy", read_only=True) as reader:
        assert len(rows(reader)) == 30
    assert tree(tmp_path / "copy") == before and (tmp_path / "copy" / "checkpoint").exists()


@pytest.mark.parametrize("key", [b"k" * 32, None])
def test_an_encrypted_store_needs_its_key(home: Path, key: bytes | None) -> None:
    with nyala.open(home, key=b"k" * 32, **SMALL) as holder:
        holder.create_table("t", SCHEMA, "id")
        if key is None:
            with pytest.raises(InvalidArgumentError, match="is encrypted with the key"):
                nyala.open(home, read_only=True)
            return
        with nyala.open(home, read_only=True, key=key) as reader:
            for each in range(40):
                put(holder, *range(each, each + 100), v=each)
                assert rows(reader) == rows(holder)
                if each % 10 == 9:
                    holder.table("t").maintain("flush")


# How long it may live


def test_a_reader_beside_constant_compactions_keeps_no_files_and_no_memory(holder: Database, reader: Database) -> None:
    def round_of_work(v: int) -> None:
        put(holder, *range(200), v=v)
        for op in ("flush", "compact"):
            holder.table("t").maintain(op)
        assert {row["v"] for row in rows(reader)} == {v}

    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    for each in range(5):
        round_of_work(each)
    before = open_files()
    for each in range(40):
        round_of_work(each)
    assert open_files() <= before + 2
    store: Any = reader._store
    assert len(store._source._attached) < 10 and store._source._kept_bytes < 1 << 20


def test_many_threads_share_their_looks(holder: Database, reader: Database) -> None:
    put(holder, 0, v=0)
    acknowledged, failures = [0], []

    def read() -> None:
        table = reader.table("t")
        for _ in range(30):
            at_least = acknowledged[0]
            row = table.get(0)
            if row is None or row["v"] < at_least:
                failures.append((row, at_least))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for each in threads:
        each.start()
    for step in range(1, 60):
        put(holder, 0, v=step)
        acknowledged[0] = step
        if step % 20 == 0:
            holder.table("t").maintain("flush")
    for each in threads:
        each.join()
    assert not failures


def test_a_closed_reader_says_so(home: Path, holder: Database) -> None:
    put(holder, 1)
    with nyala.open(home, read_only=True) as reader:
        table = reader.table("t")
    for ask in (table.count, lambda: table.get(1), reader.tables, lambda: table.insert([{"id": 1}])):
        with pytest.raises(UnavailableError, match="the store is closed"):
            ask()
    reader.close()


def test_a_forgotten_reader_leaves_nothing(home: Path, holder: Database) -> None:
    put(holder, *range(100))
    holder.table("t").maintain("flush")
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(5):
        reader = nyala.open(home, read_only=True)
        assert reader.table("t").count() == 100
        del reader
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before[0]


def test_a_forked_process_opens_its_own(home: Path, holder: Database) -> None:
    put(holder, 1)
    program = """
import json, os, sys
import nyala
reader = nyala.open(sys.argv[1], read_only=True)
read, write = os.pipe()
if os.fork() == 0:
    answers = []
    try:
        reader.table("t").count()
    except nyala.UnavailableError as error:
        answers.append(error.message)
    answers.append(nyala.open(sys.argv[1], read_only=True).table("t").count())
    os.write(write, json.dumps(answers).encode())
    os._exit(0)
os.wait()
print(os.read(read, 1 << 16).decode())
print(reader.table("t").count())
"""
    done = subprocess.run([sys.executable, "-c", program, home], capture_output=True, text=True, timeout=60)
    answers, count = done.stdout.splitlines()
    assert "open it after the fork" in json.loads(answers)[0] and json.loads(answers)[1] == 1 and count == "1"


def test_damage_is_no_reason_to_fail_for_ever(home: Path, holder: Database, reader: Database) -> None:
    """A manifest that cannot be read is an error; once it can, the reader goes on."""
    put(holder, 1)
    assert len(rows(reader)) == 1
    manifest = home / "manifest"
    good = manifest.read_bytes()
    (home / "bad").write_bytes(good[:-1])
    (home / "bad").rename(manifest)
    with pytest.raises(StoreError):
        rows(reader)
    (home / "good").write_bytes(good)
    (home / "good").rename(manifest)
    put(holder, 2)
    assert len(rows(reader)) == 2

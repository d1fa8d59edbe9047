"""A reader beside the process that has a store: what it leaves alone, what it makes of damage, how long it lives."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import LocalFileSystem
from nyala.engine.replica.opening import open_to_read
from nyala.schemas.errors import (
    CorruptionError,
    InvalidArgumentError,
    StoreError,
    UnavailableError,
)
from tests.doubles.faulty import NAMES, SYNCS, WRITES, FaultRule, FaultyFileSystem
from tests.engine.replica.live_stores import SCHEMA, SMALL, put, rows, tree


@pytest.fixture
def reader(home: Path, holder: Database) -> Iterator[Database]:
    with nyala.open(home, read_only=True) as database:
        yield database


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
    ways: list[dict[str, Any]] = [{"read_only": True}, SMALL]
    for how in ways:
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

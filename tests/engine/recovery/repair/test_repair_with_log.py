"""While the log reaches back to the beginning, a repair loses nothing, whatever happened to table and files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.repair import repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import CorruptionError
from tests.dose import by_night

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32()), ("s", pa.string()), ("gone", pa.int8())])
SPLIT = [nyala.range("k", bounds=[((0,), (300,)), ((300,), (600,))])]
KEYS = range(600)


def open_store(path: Path) -> Database:
    return nyala.open(path, maintenance="off", wal_segment_bytes=1 << 20)


def rows(keys: list[int], random: Random) -> dict[str, list[Any]]:
    return {"k": keys, "v": [random.randrange(100) for _ in keys], "s": [f"s{random.randrange(9)}" for _ in keys]}


def work(db: Database, random: Random) -> None:
    table = db.table("t")
    for _ in range(2):
        table.upsert(rows(random.sample(KEYS, 150), random))
        table.update_ignore({"k": (some := random.sample(KEYS, 40)), "v": [random.randrange(100) for _ in some]})
        table.delete_ignore({"k": random.sample(KEYS, 60)})
        with db.transaction() as both:
            both.upsert("t", rows(random.sample(KEYS, 20), random))
            both.upsert("other", {"k": [random.randrange(5)], "v": [random.randrange(100)]})
        table.update_where({"v": "v + 1"}, where=f"s = 's{random.randrange(9)}'")
        for operation in random.sample(["flush", "flush_deltas", "minor_compact", "major_compact", "compact"], 2):
            table.maintain(operation)


def alter(table: Table, step: int) -> None:
    change = table.alter()
    if step == 0:
        change.add_column("new", "int32", nullable=False, read_default=5, write_default=6).apply()
    elif step == 1:
        change.drop_column("gone").widen_column("v", "int64").apply()
    elif step == 2:
        change.split_partition(150).apply()
    else:
        change.rename_column("new", "renamed").set_option("comment", "altered").apply()


def shown(db: Database) -> list[dict[str, Any]]:
    return [*db.table("t").scan(ordered=True).to_arrow().to_pylist(), *db.table("other").scan().to_arrow().to_pylist()]


def harm(path: Path, random: Random, of_other: Path) -> None:
    found = [file for file in sorted((path / "tablets").rglob("*.*")) if file.parent != of_other]
    for file in random.sample(found, min(random.randint(1, 3), len(found))):
        content = bytearray(file.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        if random.random() < 0.3:
            file.unlink()
        else:
            file.write_bytes(content if random.random() < 0.7 else content[:-5])


@pytest.mark.parametrize("seed", by_night(range(4), range(2)))
def test_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with open_store(tmp_path) as db:
        db.create_table("t", SCHEMA, primary_key=["k"], partition_by=SPLIT, unique_key=True)
        db.create_table("other", pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())]), primary_key=["k"])
        db.create_table("keeper", data={"k": [1]}, primary_key=["k"])  # never flushed: the log is kept for it
    for step in range(4):
        with open_store(tmp_path) as db:
            work(db, random)
            alter(db.table("t"), step)
            work(db, random)
            before = shown(db)
            (other,) = db.table("other").stats()["tablets"]
        harm(tmp_path, random, tmp_path / "tablets" / str(other["tablet"]))
        for _ in range(random.randrange(3)):  # restarts in quarantine, with writes to what is sound
            with open_store(tmp_path) as db:
                key = random.randrange(5)
                db.table("other").upsert({"k": [key], "v": [7]})
                before = [row for row in before if row.keys() != {"k", "v"} or row["k"] != key]
                before.append({"k": key, "v": 7})
                db.table("other").maintain("flush")
        repair_store(LocalFileSystem(tmp_path), apply=True)
        assert not repair_store(LocalFileSystem(tmp_path)).is_needed
        for _ in range(2):
            with open_store(tmp_path) as db:
                assert _sorted(shown(db)) == _sorted(before), f"seed {seed}, step {step}"
            assert verify_store(LocalFileSystem(tmp_path)).is_sound


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (len(row), row["k"]))


def test_a_table_that_was_dropped_is_repaired_and_recalled(tmp_path: Path) -> None:
    with open_store(tmp_path) as db:
        table = db.create_table("t", SCHEMA, primary_key=["k"], partition_by=SPLIT)
        table.upsert(rows([1, 2, 400], Random(0)))
        before = table.scan(ordered=True).to_arrow()
        table.maintain("flush")
    min((tmp_path / "tablets").rglob("*.base")).unlink()
    with open_store(tmp_path) as db:
        with pytest.raises(CorruptionError):
            db.table("t").update_where({"v": "v + 1"}, where="k < 5")
        db.table("t").alter().add_column("new", "int32", read_default=1).apply()
        db.drop_table("t", keep_seconds=3600)
    repair_store(LocalFileSystem(tmp_path), apply=True)
    with open_store(tmp_path) as db:
        db.recall_table("t")
        found = db.table("t").scan(ordered=True).to_arrow()
        assert found.drop_columns(["new"]).equals(before) and set(found["new"].to_pylist()) == {1}

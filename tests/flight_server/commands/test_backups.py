"""A repair takes what no sound file has from a backup: all that has not changed since is as it was."""

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
from nyala.engine.recovery.repair import RowsetRepair, repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.flight_server.commands.backups import FolderBackups
from nyala.jobs import backup, restore
from nyala.schemas.errors import SnapshotTooOldError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64()), ("s", pa.string())])
OPTIONS: dict[str, Any] = {"maintenance": "off", "wal_segment_bytes": 1 << 16}
SPLIT = [nyala.range("k", bounds=[((0,), (1000,)), ((1000,), (2000,))])]
Rows = dict[int, tuple[int | None, str | None]]


def rows(keys: range | list[int], v: int = 0) -> dict[str, list[Any]]:
    return {"k": list(keys), "v": [v + key for key in keys], "s": [f"row {key}" for key in keys]}


def shown(db: Database, table: str = "t") -> Rows:
    found = db.table(table).scan().to_arrow().to_pydict()
    return {k: (v, s) for k, v, s in zip(found["k"], found["v"], found["s"], strict=True)}


def free_log(db: Database) -> None:
    """Let the log tell no more of what is in files."""
    filler = db.create_table("filler", SCHEMA, primary_key=["k"])
    for number in range(3):
        filler.upsert({"k": [number], "v": [1], "s": ["x" * 60_000]})
    filler.maintain("flush")
    db.drop_table("filler")


def make(db: Database, partition_by: Any = SPLIT) -> Table:
    return db.create_table("t", SCHEMA, primary_key=["k"], partition_by=partition_by)


def harm(path: Path, what: str = "cut", suffix: str = "base", tablet: int = 0) -> Path:
    """Damage the oldest file of a kind, of the first or another tablet."""
    directory = sorted((path / "tablets").iterdir(), key=lambda each: int(each.name))[tablet]
    file = min(directory.glob(f"*.{suffix}"), key=lambda each: int(each.stem))
    content = bytearray(file.read_bytes())
    if what != "cut":
        content[content.index(what.encode())] ^= 1
    file.write_bytes(content[:-5] if what == "cut" else content)
    return file


def repaired(path: Path, backups: Path) -> list[RowsetRepair]:
    fs = LocalFileSystem(path)
    with FolderBackups(backups) as source:
        told = repair_store(fs, backups=source)
        assert not told.is_applied
        report = repair_store(fs, apply=True, backups=source)
    assert report.repairs == told.repairs and report.is_applied
    assert verify_store(fs).is_sound
    return report.repairs


def test_a_tablet_that_is_lost_comes_from_the_newest_backup(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        table = make(db)
        table.upsert(rows(range(10)))
        table.upsert(rows(range(1000, 1010)))
        backup(db, "t", backups)
        table.upsert(rows([3, 50], v=100))
        table.delete({"k": [4]})
        assert backup(db, "t", backups).kind == "increment"
        table.upsert(rows([5, 60, 1005], v=200))
        table.delete({"k": [6]})
        table.maintain("flush")
        free_log(db)
        table.upsert(rows([7], v=300))
        now = shown(db)
    harm(store)
    (repair,) = repaired(store, backups)
    assert (repair.action, repair.rows_from_backup, repair.rows_lost) == ("take it from the backup", 10, None)
    assert str(backups) in (repair.backup or "")
    with nyala.open(store, **OPTIONS) as db:
        found = shown(db)
        assert 60 not in found, "it came after the backup"
        assert found[5] == (5, "row 5") and found[6] == (6, "row 6"), "as they were in the backup"
        assert found[3] == (103, "row 3") and found[50] == (150, "row 50") and 4 not in found, "by the increment"
        assert found[7] == (307, "row 7"), "by the log"
        assert {k: row for k, row in found.items() if k >= 1000} == {k: row for k, row in now.items() if k >= 1000}
        assert db.table("t").insert(rows([60])).applied == 1
        with pytest.raises(SnapshotTooOldError):
            db.table("t").changes(since=1).to_arrow()
        assert backup(db, "t", backups, force_full=True).kind == "full"


def test_an_increment_does_not_go_on_over_a_repair(tmp_path: Path) -> None:
    """It would not tell of the rows that were lost."""
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        make(db).upsert(rows(range(10)))
        db.table("t").maintain("flush")
        free_log(db)
        backup(db, "t", backups)
    harm(store)
    repair_store(LocalFileSystem(store), apply=True)
    with nyala.open(store, **OPTIONS) as db, pytest.raises(SnapshotTooOldError):
        backup(db, "t", backups)


def test_cells_of_a_damaged_page_come_from_the_backup(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    plain = {"s": nyala.ColumnOptions(encoding="plain", compression="none")}
    with nyala.open(store, **OPTIONS) as db:
        table = db.create_table("t", SCHEMA, primary_key=["k"], column_options=plain)
        table.upsert(rows(range(10)))
        table.maintain("flush")
        backup(db, "t", backups)
        table.update({"k": [2], "s": ["changed"]})
        table.update({"k": [3], "v": [-3]})
        table.maintain("flush_deltas")
        free_log(db)
        now = shown(db)
    harm(store, "row 5")
    (repair,) = repaired(store, backups)
    assert (repair.rows_lost, repair.rows_kept, repair.cells_lost) == (0, 10, {})
    assert repair.cells_from_backup == {"s": 9}, "one was changed since"
    with nyala.open(store, **OPTIONS) as db:
        assert shown(db) == now, "all of it is known"


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (pa.list_(pa.int64()), [1], [2]),
        (pa.struct([("a", pa.string())]), {"a": "x"}, {"a": "y"}),
        (pa.map_(pa.string(), pa.int64()), None, [("k", 1)]),
        (pa.float16(), 1.5, 2.5),
        (pa.month_day_nano_interval(), (1, 2, 3), (1, 2, 4)),
    ],
    ids=str,
)
def test_changes_of_every_type_come_from_the_backup(tmp_path: Path, kind: pa.DataType, old: Any, new: Any) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        schema = pa.schema([pa.field("k", pa.int64(), False), ("cell", kind)])
        table = db.create_table("t", schema, primary_key=["k"])
        table.upsert(pa.table({"k": [1, 2], "cell": pa.array([old, old], kind)}, schema=schema))
        table.maintain("flush")
        table.update(pa.table({"k": [2], "cell": pa.array([new], kind)}, schema=schema))
        table.maintain("flush_deltas")
        backup(db, "t", backups)
        free_log(db)
        now = table.scan(ordered=True).to_arrow()
    harm(store, suffix="redo")
    (repair,) = repaired(store, backups)
    assert repair.cells_from_backup == {"cell": 1}
    with nyala.open(store, **OPTIONS) as db:
        assert db.table("t").scan(ordered=True).to_arrow().equals(now)


def test_changes_of_a_lost_file_come_from_the_backup(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        table = make(db, ())
        table.upsert(rows(range(10)))
        table.maintain("flush")
        table.update({"k": [2], "s": ["changed"]})
        table.delete({"k": [3]})
        table.maintain("flush_deltas")
        backup(db, "t", backups)
        table.upsert(rows([3], v=7))
        table.update({"k": [4], "s": ["since"]})
        table.maintain("flush_deltas")
        free_log(db)
        now = shown(db)
    harm(store, suffix="redo")
    (repair,) = repaired(store, backups)
    assert repair.cells_from_backup == {"s": 1}
    with nyala.open(store, **OPTIONS) as db:
        assert shown(db) == now


def test_a_table_without_a_backup_is_repaired_without(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        make(db).upsert(rows(range(10)))
        db.table("t").maintain("flush")
        db.create_table("other", SCHEMA, primary_key=["k"]).upsert(rows([1]))
        backup(db, "other", backups)
        free_log(db)
    harm(store)
    with FolderBackups(backups) as source:
        report = repair_store(LocalFileSystem(store), apply=True, backups=source)
    (repair,) = report.repairs
    assert repair.action == "give it up" and repair.backup is None
    (advice,) = report.advice
    assert "has no backup of table 't' of this store" in advice


def test_a_backup_from_before_an_alteration_and_a_split(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        table = make(db)
        table.upsert(rows(range(10)))
        table.upsert(rows(range(1000, 1010)))
        backup(db, "t", backups)
        change = table.alter().add_column("new", "int32", read_default=7).drop_column("v").rename_column("s", "text")
        change.rename("renamed").apply()
        table = db.table("renamed")
        table.alter().split_partition(5).apply()
        table.maintain("flush")
        table.maintain("compact")
        free_log(db)
        now = table.scan(ordered=True).to_arrow().to_pydict()
    for directory in (store / "tablets").iterdir():
        for file in directory.glob("*.base"):
            file.unlink()
    for repair in repaired(store, backups):
        assert repair.action == "take it from the backup"
    with nyala.open(store, **OPTIONS) as db:
        assert db.table("renamed").scan(ordered=True).to_arrow().to_pydict() == now


@pytest.mark.parametrize("seed", range(6))
def test_what_has_not_changed_since_the_backup_is_as_it_was(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    store, backups = tmp_path / "store", tmp_path / "backups"
    keys = range(2000)
    with nyala.open(store, **OPTIONS) as db:
        table = make(db)
        _work(table, random, keys)
        backup(db, "t", backups)
        if random.random() < 0.5:
            _work(table, random, keys)
            backup(db, "t", backups)
        then = shown(db)
        _work(table, random, keys)
        free_log(db)
        now = shown(db)
    files = [file for file in sorted((store / "tablets").rglob("*.*")) if file.suffix != ".undo"]
    for file in random.sample(files, min(3, len(files))):
        content = bytearray(file.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        file.write_bytes(content if random.random() < 0.8 else content[:-5])
    repaired(store, backups)
    with nyala.open(store, **OPTIONS) as db:
        found = shown(db)
    for key in keys:
        if key in then and then[key] == now.get(key):
            assert found.get(key) == now.get(key), f"seed {seed}, key {key}"


def _work(table: Table, random: Random, keys: range) -> None:
    for _ in range(3):
        table.upsert(rows(random.sample(keys, 400), v=random.randrange(1000)))
        table.update_ignore({"k": (some := random.sample(keys, 50)), "s": [f"s{random.random()}" for _ in some]})
        table.delete_ignore({"k": random.sample(keys, 60)})
        for operation in random.sample(["flush", "flush_deltas", "minor_compact", "major_compact", "compact"], 3):
            table.maintain(operation)
    table.maintain("flush")
    table.maintain("flush_deltas")


def test_the_recipe_of_the_docs_after_a_repair_without_a_backup(tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "backups"
    with nyala.open(store, **OPTIONS) as db:
        table = make(db)
        table.upsert(rows(range(10)))
        table.upsert(rows(range(1000, 1010)))
        table.maintain("flush")
        backup(db, "t", backups)
        free_log(db)
        now = shown(db)
    harm(store)
    repair_store(LocalFileSystem(store), apply=True)
    with nyala.open(store, **OPTIONS) as db:
        db.table("t").upsert(rows([3], v=9))
        restore(db, backups, "t", name="t before")
        db.table("t").insert_ignore(db.table("t before").scan().to_arrow())
        assert shown(db) == now | {3: (12, "row 3")}

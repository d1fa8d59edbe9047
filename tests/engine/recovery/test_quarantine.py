"""A damaged file costs its own tablet only: the store opens, and all else is read, written, altered and flushed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import CorruptionError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64()), ("s", pa.string())])
OPTIONS: dict[str, Any] = {"maintenance": "off", "wal_segment_bytes": 1 << 16}
OTHERS = list(range(100, 110))
"""Keys of the tablet that stays sound; those below 100 are of the one that is harmed."""


def open_store(path: Path, **options: Any) -> Database:
    return nyala.open(path, **(OPTIONS | options))


def rows(keys: range | list[int], v: int = 0) -> dict[str, list[Any]]:
    return {"k": list(keys), "v": [v] * len(keys), "s": [f"row {key}" for key in keys]}


def filled(path: Path) -> None:
    """Make a table of two ranges, each with base, UNDO, REDO and rewritten columns and rows in the log, and another."""
    with open_store(path) as db:
        split = [nyala.range("k", bounds=[((0,), (100,)), ((100,), (200,))])]
        table = db.create_table("t", SCHEMA, primary_key=["k"], partition_by=split)
        table.upsert(rows(range(10)))
        table.upsert(rows(OTHERS))
        table.maintain("flush")
        table.update({"k": [1, 101], "v": [7, 7]})
        table.maintain("flush_deltas")
        table.maintain("major_compact")
        table.update({"k": [2, 102], "v": [8, 8]})
        table.maintain("flush_deltas")
        table.upsert(rows([50, 150]))
        db.create_table("other", SCHEMA, primary_key=["k"]).upsert(rows(range(5)))
        db.table("other").maintain("flush")


def kinds(path: Path) -> dict[str, Path]:
    """Return the files of the tablet of the lower range, by kind."""
    directory = min((path / "tablets").iterdir(), key=lambda each: int(each.name))
    bases = sorted(directory.glob("*.base"), key=lambda each: int(each.stem))
    (undo,), (redo,) = list(directory.glob("*.undo"))[:1], list(directory.glob("*.redo"))
    return {"base": bases[0], "columns": bases[-1], "undo": undo, "redo": redo}


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


HARM: dict[str, Callable[[Path], object]] = {
    "deleted": lambda file: file.unlink(),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-7]),
    "flipped": lambda file: flip(file, -60),
    "a directory": lambda file: (file.unlink(), file.mkdir()),
}


@contextmanager
def refused(file: str) -> Iterator[None]:
    with pytest.raises(CorruptionError, match=file) as caught:
        yield
    assert "quarantine" in caught.value.message and "nyala repair" in caught.value.message
    assert "\n" not in caught.value.message


def check(db: Database, file: str) -> None:
    """Check that all but the lower range of `t` works, and that whoever needs it is told which file is damaged."""
    table: Table = db.table("t")
    for read in (
        lambda: table.scan().to_arrow(),
        lambda: table.scan(["v"], where="k >= 5").to_arrow(),
        lambda: table.scan(ordered=True).to_arrow(),
        lambda: table.scan().count(),
        lambda: table.get((3,)),
        lambda: table.upsert(rows([3])),
        lambda: table.delete({"k": [3]}),
        lambda: table.insert(rows([60, 160])),
        lambda: table.changes(since=db.now()).to_arrow(),
    ):
        with refused(file):
            read()
    with refused(file), db.transaction() as transaction:
        transaction.upsert("t", rows([3, 103]))
    read = table.scan(where="k >= 100", ordered=True).to_arrow().to_pydict()
    assert read["k"][:10] == OTHERS and read["v"][:4] == [0, 7, 8, 0]
    assert (table.get((101,)) or {})["v"] == 7
    assert table.get((160,)) is None, "what was refused was refused whole"
    health = db._store.health()
    assert health.status == "degraded"
    (damaged,) = health.damaged
    assert (damaged.path, damaged.table, damaged.is_quarantined) == (file, "t", True)
    tablets = table.stats()["tablets"]
    assert [bool(tablet["quarantine"]) for tablet in tablets] == [True, False]


@pytest.mark.parametrize("how", HARM)
@pytest.mark.parametrize("kind", ["base", "columns", "undo", "redo"])
def test_one_damaged_file_costs_one_tablet(tmp_path: Path, kind: str, how: str) -> None:
    filled(tmp_path)
    file = kinds(tmp_path)[kind]
    whole, name = file.read_bytes(), str(file.relative_to(tmp_path))
    HARM[how](file)
    with open_store(tmp_path) as db:
        check(db, name)
        db.table("t").upsert(rows([170], v=1))
        db.table("t").alter().add_column("new", "int32").apply()
        for operation in ("flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc"):
            db.table("t").maintain(operation)
            db.table("other").maintain(operation)
        assert db.table("other").scan().count() == 5
        db.create_table("made", SCHEMA, primary_key=["k"]).upsert(rows([1]))
    with open_store(tmp_path) as db:
        check(db, name)
        assert db.table("t").get((170,)) == {"k": 170, "v": 1, "s": "row 170", "new": None}
        assert db.table("made").get((1,)) is not None
    if file.is_dir():
        file.rmdir()
    file.write_bytes(whole)  # whoever gets the file back has all rows, also those that were in the log only
    with open_store(tmp_path) as db:
        found = db.table("t").scan(["k", "v"], ordered=True).to_arrow().to_pydict()
        assert found["k"] == [*range(10), 50, *OTHERS, 150, 170]
        assert found["v"][:4] == [0, 7, 8, 0]
        assert db._store.health().status == "ok"
    assert verify_store(LocalFileSystem(tmp_path)).is_sound


def test_a_tablet_in_quarantine_is_dropped_with_its_range_or_table(tmp_path: Path) -> None:
    for what in ("range", "table"):
        path = tmp_path / what
        filled(path)
        file = kinds(path)["base"]
        HARM["cut"](file)
        with open_store(path) as db:
            if what == "range":
                db.table("t").alter().drop_range_partition([0], [100]).apply()
                assert db.table("t").scan().count() == len(OTHERS) + 1
                db.table("t").alter().add_range_partition([0], [100]).apply()
                db.table("t").upsert(rows([3]))
            else:
                db.drop_table("t")
            assert db._store.health().status == "ok"
        assert not file.exists()
        with open_store(path) as db:
            assert db.tables() == (["other", "t"] if what == "range" else ["other"])
        assert verify_store(LocalFileSystem(path)).is_sound


def test_the_log_keeps_what_a_tablet_in_quarantine_needs(tmp_path: Path) -> None:
    filled(tmp_path)
    file = kinds(tmp_path)["base"]
    whole = file.read_bytes()
    oldest = min((tmp_path / "wal").iterdir())
    HARM["cut"](file)
    for _ in range(2):
        with open_store(tmp_path) as db:
            for number in range(8):
                db.table("other").upsert({"k": [number], "v": [1], "s": ["x" * 60_000]})
            db.table("other").maintain("flush")
            db.table("t").maintain("flush")
    assert oldest.exists() and len(list((tmp_path / "wal").iterdir())) > 8
    file.write_bytes(whole)
    with open_store(tmp_path) as db:
        assert db.table("t").get((50,)) == {"k": 50, "v": 0, "s": "row 50"}
        db.table("t").maintain("flush")
        db.table("t").maintain("flush_deltas")
        assert not oldest.exists(), "once it is in files the log is freed"


def test_the_log_is_freed_where_a_tablet_in_quarantine_needs_none_of_it(tmp_path: Path) -> None:
    filled(tmp_path)
    with open_store(tmp_path) as db:
        db.table("t").maintain("flush")
    oldest = min((tmp_path / "wal").iterdir())
    HARM["cut"](kinds(tmp_path)["base"])
    with open_store(tmp_path) as db:
        for number in range(8):
            db.table("other").upsert({"k": [number], "v": [1], "s": ["x" * 60_000]})
        db.table("other").maintain("flush")
        assert not oldest.exists()


def test_damage_that_the_replay_meets_is_no_more_than_a_quarantine(tmp_path: Path) -> None:
    """Pages are not read at the opening, but keys of rows in the log are looked up."""
    filled(tmp_path)
    with open_store(tmp_path) as db:
        db.table("t").upsert(rows([3, 103], v=9))
        file = kinds(tmp_path)["base"]
    content = file.read_bytes()
    for place in range(64, len(content), 48):
        flip(file, place)
    with open_store(tmp_path) as db:
        with refused(str(file.relative_to(tmp_path))):
            db.table("t").get((3,))
        assert db.table("t").get((103,)) == {"k": 103, "v": 9, "s": "row 103"}
    file.write_bytes(content)
    with open_store(tmp_path) as db:
        assert db.table("t").get((3,)) == {"k": 3, "v": 9, "s": "row 3"}
        assert db.table("t").scan().count() == 22


def test_numbers_and_moments_go_on_after_those_of_a_tablet_in_quarantine(tmp_path: Path) -> None:
    with open_store(tmp_path) as db:
        table = db.create_table("t", SCHEMA, primary_key=["k"], unique_key=False)
        table.insert(rows(range(10)))
        table.maintain("flush")
        before = db.now()
    HARM["cut"](min((tmp_path / "tablets").rglob("*.base")))
    with open_store(tmp_path) as db:
        assert db.now() > before
        with pytest.raises(CorruptionError):
            db.table("t").insert(rows([1]))

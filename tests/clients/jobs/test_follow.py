"""Files that are followed: each is loaded once and whole, whatever fails between, and whoever else follows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs.files.follow_job import FILES
from nyala.jobs import FollowedFile, FollowResult, follow, load
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, UnavailableError

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("city", pa.string(), False)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    return place


def make(db: Database) -> Table:
    return db.create_table("homes", SCHEMA, "k")


def put(folder: Path, name: str, text: str, at: int = 1) -> Path:
    """Write a file whole, with its modification time in seconds."""
    hidden = (folder / name).with_name(f"_{Path(name).name}")
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text(text)
    os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


def cities(db: Database) -> dict[int, str]:
    return {row["k"]: row["city"] for row in db.table("homes").scan(ordered=True).to_arrow().to_pylist()}


def files(db: Database) -> dict[str, str]:
    rows = db.table(FILES).scan().to_arrow().to_pylist()
    return {row["path"].rsplit("/", 1)[1]: row["state"] for row in rows}


def test_each_file_is_loaded_once(db: Database, folder: Path) -> None:
    make(db)
    put(folder, "b.csv", "k,city\n1,Oslo\n2,Bergen\n", at=2)
    put(folder, "a.jsonl", '{"k": 1, "city": "Alta"}\n', at=1)
    pq.write_table(pa.table({"k": [3], "city": ["Moss"]}), folder / "c.parquet")
    put(folder, "_hidden.csv", "k,city\n9,Nowhere\n")
    assert follow(db, "homes", folder, once=True) == FollowResult(table="homes", loaded=3, rows=4)
    assert cities(db) == {1: "Oslo", 2: "Bergen", 3: "Moss"}, "in the order of their times"
    db.table("homes").delete({"k": [1]})
    assert follow(db, "homes", folder, once=True) == FollowResult(table="homes")
    put(folder, "below/d.csv", "k,city\n4,Voss\n")
    assert follow(db, "homes", folder, once=True).loaded == 1
    assert cities(db) == {2: "Bergen", 3: "Moss", 4: "Voss"}
    assert files(db) == dict.fromkeys(("a.jsonl", "b.csv", "c.parquet", "d.csv"), "loaded")


def test_files_in_hidden_folders_are_left_alone(db: Database, tmp_path: Path) -> None:
    """Unfinished files of Spark lie in such folders. Folders of partitions, and the root, may have any name."""
    make(db)
    folder = tmp_path / "_in" / ".there"
    for number, name in enumerate(("_temporary/0/part", ".x/b", "more/_y/c", "_b/k=1/d", "_day=1/e", "k=_1/f", "g")):
        place = folder / f"{name}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"k,city\n{number},Oslo\n")
    assert follow(db, "homes", folder, once=True).loaded == 3
    assert set(cities(db)) == {4, 5, 6}
    db.table("homes").delete_where("k >= 0")
    assert load(db, "homes", folder).applied == 3
    assert set(cities(db)) == {4, 5, 6}


def test_a_file_with_a_row_that_does_not_fit_is_refused_as_a_whole(db: Database, folder: Path) -> None:
    make(db)
    put(folder, "bad.csv", "k,city\n1,Oslo\nx,Bergen\n", at=1)
    put(folder, "null.jsonl", '{"k": 2, "city": "Alta"}\n{"k": 3, "city": null}\n', at=2)
    put(folder, "columns.csv", "k,town\n4,Moss\n", at=3)
    put(folder, "broken.parquet", "PAR1 no more", at=4)
    put(folder, "readme.txt", "What is here", at=5)
    put(folder, "good.csv", "k,city\n5,Voss\n", at=6)
    seen: list[FollowedFile] = []
    result = follow(db, "homes", folder, once=True, report=seen.append)
    assert (result.loaded, result.refused) == (1, 5)
    assert cities(db) == {5: "Voss"}
    why = {each.path.rsplit("/", 1)[1]: each.message for each in seen}
    assert "1 row cannot be loaded, the first in line 3" in why["bad.csv"] and "'x'" in why["bad.csv"]
    assert "the table refuses 1 row" in why["null.jsonl"] and "NOT NULL" in why["null.jsonl"]
    assert "no column 'town'" in why["columns.csv"]
    assert "cannot be read" in why["broken.parquet"] and "suffix" in why["readme.txt"]
    assert files(db)["bad.csv"] == "refused"
    put(folder, "bad.csv", "k,city\n1,Oslo\n", at=1)
    assert follow(db, "homes", folder, once=True).loaded == 0, "its name is known"
    db.table(FILES).delete_where("path LIKE '%bad.csv'")
    assert follow(db, "homes", folder, once=True).loaded == 1
    assert cities(db) == {1: "Oslo", 5: "Voss"}


def test_files_are_taken_as_they_come_and_when_they_are_complete(db: Database, folder: Path) -> None:
    make(db)
    stop, seen = threading.Event(), []
    loaded = threading.Condition()

    def report(file: FollowedFile) -> None:
        with loaded:
            seen.append((Path(file.path).name, file.state))
            loaded.notify_all()

    def wait_for(count: int) -> None:
        with loaded:
            assert loaded.wait_for(lambda: len(seen) >= count, 60)

    runs = threading.Thread(
        target=follow, args=(db, "homes", folder), kwargs={"interval": 0.1, "stop": stop, "report": report}
    )
    runs.start()
    try:
        put(folder, "a.csv", "k,city\n1,Oslo\n")
        wait_for(1)
        put(folder, "b.csv", "k,city\n2,Bergen\n")
        wait_for(2)
        put(folder, "a.csv", "k,city\n1,Alta\n3,Moss\n", at=9)
        wait_for(3)
    finally:
        stop.set()
        runs.join()
    assert seen == [("a.csv", "loaded"), ("b.csv", "loaded"), ("a.csv", "changed")]
    assert cities(db) == {1: "Oslo", 2: "Bergen"}


def test_a_file_that_grows_while_it_is_read_is_left_for_later(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(db)
    file = put(folder, "a.csv", "k,city\n1,Oslo\n")
    store, grown = db._store, []
    stage = store.stage

    def growing(*args: Any) -> Any:
        if len(grown) < times:
            grown.append(file.write_text("k,city\n1,Oslo\n" + "2,Bergen\n" * (len(grown) + 1)))
        return stage(*args)

    monkeypatch.setattr(store, "stage", growing)
    times = 100
    result = follow(db, "homes", folder, once=True, interval=0.1)
    assert (result.loaded, result.left) == (0, 1)
    assert cities(db) == {} and files(db) == {}
    times = len(grown) + 1
    result = follow(db, "homes", folder, once=True, interval=0.1)
    assert (result.loaded, result.left) == (1, 0)
    assert cities(db) == {1: "Oslo", 2: "Bergen"}


@pytest.mark.parametrize("verb", ["stage", "commit_transaction"])
@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_process_that_ends_at_any_call_loads_a_file_once(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str, call: int, is_done: bool
) -> None:
    """Rows are inserted, so that a second time would be an error."""
    make(db)
    put(folder, "a.csv", "k,city\n1,Oslo\n2,Bergen\n", at=1)
    put(folder, "b.csv", "k,city\n3,Alta\n", at=2)
    store, calls = db._store, []
    real: Callable[..., Any] = getattr(store, verb)

    def ending(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == call + 1:
            if is_done:
                real(*args)
            raise SystemExit
        return real(*args)

    with monkeypatch.context() as ended:
        ended.setattr(store, verb, ending)
        with pytest.raises(SystemExit):
            follow(db, "homes", folder, op="insert", once=True)
    follow(db, "homes", folder, op="insert", once=True)
    assert cities(db) == {1: "Oslo", 2: "Bergen", 3: "Alta"}
    assert files(db) == {"a.csv": "loaded", "b.csv": "loaded"}


def test_two_processes_share_the_files(db: Database, folder: Path) -> None:
    make(db)
    for number in range(20):
        put(folder, f"{number}.csv", f"k,city\n{number},Oslo\n", at=number)
    results: list[FollowResult] = []

    def run() -> None:
        results.append(follow(db, "homes", folder, op="insert", once=True))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.loaded for each in results) == 20 and sum(each.refused for each in results) == 0
    assert len(cities(db)) == 20


def test_a_store_that_comes_back_gets_the_files(db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(db)
    put(folder, "a.csv", "k,city\n1,Oslo\n")
    store, stop, failures = db._store, threading.Event(), []
    stage = store.stage

    def failing(*args: Any) -> Any:
        if len(failures) < 2:
            failures.append(args)
            raise UnavailableError("the store is away")
        return stage(*args)

    monkeypatch.setattr(store, "stage", failing)
    result = follow(db, "homes", folder, interval=0.1, stop=stop, report=lambda file: stop.set())
    assert (result.loaded, len(failures)) == (1, 2)
    put(folder, "b.csv", "k,city\n2,Bergen\n")
    failures.clear()
    with pytest.raises(UnavailableError, match="away"):
        follow(db, "homes", folder, once=True)


def test_a_disk_that_fails_now_and_then_refuses_no_file(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(db)
    put(folder, "a.csv", "k,city\n1,Oslo\n")
    looks = 0
    real = nyala.clients.jobs.files.input_files.InputFile._stream

    def failing(self: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise OSError("the disk is tired")
        return real(self)

    monkeypatch.setattr("nyala.clients.jobs.files.input_files.InputFile._stream", failing)
    stop = threading.Event()
    result = follow(db, "homes", folder, interval=0.1, stop=stop, report=lambda file: stop.set())
    assert (result.loaded, result.refused) == (1, 0)


def test_wrong_places_and_tables(db: Database, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="homes"):
        follow(db, "homes", folder, once=True)
    make(db)
    with pytest.raises(NotFoundError, match="there is no folder"):
        follow(db, "homes", tmp_path / "nowhere", once=True)
    with pytest.raises(InvalidArgumentError, match="unknown operation"):
        follow(db, "homes", folder, op="blend", once=True)

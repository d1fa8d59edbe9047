"""Distributed compaction through the front door: embedded and over Flight, with threads and with processes."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.clients.offline_jobs import bulk_compact as compaction
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from tests.engine.phases import at

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string()), ("at", pa.timestamp("us"))])


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    with Store.open(home, StoreOptions(maintenance="off")) as opened:
        yield opened


def cities(db: Database) -> nyala.Table:
    """Return a table of two tablets with four rowsets each that overlap, and changes in memory."""
    table = db.create_table("cities", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    for part in range(4):
        ids = range(part, 4_000, 4)
        table.upsert({"id": ids, "city": [f"city {number % 9}" for number in ids], "at": [None] * 1_000})
        table.maintain("flush")
    table.upsert({"id": range(100, 200), "city": ["changed"] * 100})
    table.delete({"id": range(0, 4_000, 50)})
    return table


def rows_of(table: nyala.Table, **how: Any) -> pa.Table:
    return table.scan(ordered=True, **how).to_arrow()


def test_a_table_is_compacted_while_it_is_written(db: Database, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cities(db)
    first = db.now()
    before = rows_of(table, as_of=first)

    def meanwhile() -> None:
        table.upsert({"id": [1, 50, 9_000], "city": ["new"] * 3})
        table.maintain("flush_deltas")
        table.delete({"id": [2]})

    at(monkeypatch, (compaction, "merge_task"), False, meanwhile)
    made = table.bulk_compact(directory=home, workers=1)
    assert (made.tasks, made.rowsets_before, made.rowsets, made.rows, made.conflicts) == (2, 8, 2, 4_000, [])
    assert rows_of(table, as_of=first).equals(before)
    now = rows_of(table)
    changed = table.changes(first).to_arrow()
    assert sorted(changed["id"].to_pylist()) == [1, 2, 50, 9_000]
    assert now.num_rows == before.num_rows + 1 and now["city"].to_pylist().count("new") == 3
    assert not list((home / "compactions").iterdir())
    again = table.bulk_compact(directory=home)
    assert again.rowsets_before <= 4 and rows_of(table).equals(now)
    assert not table.bulk_compact(directory=home).tasks, "nothing is left to be done"


def test_other_processes_can_merge(db: Database, home: Path) -> None:
    table = cities(db)
    before = rows_of(table)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        made = table.bulk_compact(directory=home, executor=executor)
    assert made.rowsets == 2 and rows_of(table).equals(before)


def test_what_cannot_be_is_said(db: Database, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cities(db)
    with pytest.raises(InvalidArgumentError, match="not the directory of this store"):
        table.bulk_compact(directory=tmp_path)
    with pytest.raises(InvalidArgumentError, match="unknown executor 'moon'"):
        table.bulk_compact(directory=home, executor="moon")
    with pytest.raises(NotFoundError, match="no tablet 99"):
        table.bulk_compact(directory=home, tablets=[99])
    if repr(db).startswith("Database(FlightStore"):
        with pytest.raises(InvalidArgumentError, match="give the store's directory"):
            table.bulk_compact()
    refused: list[str] = []

    def another() -> None:
        with pytest.raises(ConflictError, match="already handed out") as error:
            table.bulk_compact(directory=home)
        refused.append(str(error.value))
        table.maintain("flush_deltas")

    at(monkeypatch, (compaction, "merge_task"), True, another)
    assert table.bulk_compact(directory=home, workers=1, tablets=[table.tablets()[0].tablet]).tasks == 1
    assert len(refused) == 1

    def broken(*_: object) -> None:
        raise RuntimeError("a worker is lost")

    with monkeypatch.context() as lost:
        lost.setattr(compaction, "merge_task", broken)
        with pytest.raises(RuntimeError):
            table.bulk_compact(directory=home)
    assert not list((home / "compactions").iterdir()), "what was begun is given up"
    assert table.maintain("compact")


def test_a_conflict_ends_one_task(db: Database, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cities(db)
    before = rows_of(table)
    committed: list[object] = []
    commit = Store.compaction_commit

    def one_conflict(store: Store, asked: Any) -> Any:
        committed.append(asked)
        if len(committed) == 1:
            raise ConflictError("the tablet was compacted")
        return commit(store, asked)

    monkeypatch.setattr(Store, "compaction_commit", one_conflict)
    made = table.bulk_compact(directory=home)
    assert made.conflicts == ["the tablet was compacted"] and made.rowsets == 1 and rows_of(table).equals(before)


@pytest.mark.parametrize("is_remote", [False, True], ids=["embedded", "remote"])
def test_rowsets_are_merged_in_the_bucket_of_a_store(is_remote: bool, tmp_path: Path) -> None:
    home = home_at(f"file://{tmp_path / 'bucket'}", "a")
    with Store.open(home, StoreOptions(maintenance="off", bucket_cache=str(tmp_path / "cache"))) as opened:
        server = FlightServer(opened, "grpc://127.0.0.1:0")
        with connect(f"grpc://127.0.0.1:{server.port}") if is_remote else nullcontext(Database(opened)) as db:
            table = cities(db)
            first = db.now()
            before = rows_of(table)
            with pytest.raises(NotFoundError, match="not in this bucket"):
                table.bulk_compact(directory=f"file://{tmp_path / 'other'}")
            assert all(tablet["rowsets"] == 4 for tablet in table.stats()["tablets"])
            with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
                made = table.bulk_compact(executor=executor)
            assert (made.tasks, made.rowsets_before, made.rowsets, made.rows, made.conflicts) == (2, 8, 2, 4_000, [])
            assert rows_of(table).equals(before) and rows_of(table, as_of=first).equals(before)
        server.shutdown()
    assert not home.bucket.list("stores/a/compactions/"), "nothing is left behind"
    report = verify_bucket(home)
    assert report.is_sound and not report.notes, (report.problems, report.notes)


def test_a_compaction_is_renewed_after_a_token_could_not_be_had() -> None:
    asked, is_over = list[str](), threading.Event()

    def renew(compaction_id: str) -> None:
        asked.append(compaction_id)
        if len(asked) == 1:
            raise KeyError("token")
        is_over.set()

    store, plan = SimpleNamespace(compaction_renew=renew), SimpleNamespace(ttl_seconds=0.03, compaction_id="c")
    with compaction._renewed(cast(Any, store), cast(Any, plan)):
        assert is_over.wait(30)

"""Ctrl-C while a table is created, altered, split or dropped: all of it or nothing, and the store goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from tests.engine.phases import at

OPTIONS = StoreOptions(maintenance="off")
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
ROWS = [{"k": key, "v": key} for key in (1, 7)]


def create(database: Database, name: str = "new") -> None:
    database.create_table(name, SCHEMA, ["k"]).insert(ROWS)


def replace(database: Database) -> None:
    database.drop_table("t")
    create(database, "t")


CHANGES: dict[str, tuple[Callable[[Database], object], str]] = {
    "create": (create, "new"),
    "rename": (lambda database: database.table("t").alter().rename("new").apply(), "new"),
    "split": (lambda database: database.table("t").alter().split_partition(5).apply(), "t"),
    "replace": (replace, "t"),
    "recall": (lambda database: database.recall_table("dropped"), "dropped"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_ctrl_c_at_the_commit_stops_nothing(monkeypatch: pytest.MonkeyPatch, change: str, after: bool) -> None:
    fs = MemoryFileSystem()
    store = Store.open(fs, OPTIONS)
    database = Database(store)
    database.create_table("t", SCHEMA, ["k"], partition_by=[nyala.range("k", bounds=[(0, 10)])]).insert(ROWS)
    create(database, "dropped")
    database.drop_table("dropped", keep_seconds=1000)
    work, name = CHANGES[change]
    at(monkeypatch, (ManifestFile, "commit"), not after, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        work(database)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert store.health().status == "ok"
    if change in ("create", "replace"):
        create(database, name) if name not in database.list_tables() else database.table(name).upsert(ROWS)
    assert database.table(name).scan(ordered=True).to_arrow().to_pylist() == ROWS
    database.table(name).maintain("flush")
    names = sorted(database.list_tables())
    store.close()
    report = verify_store(fs)
    assert report.is_sound, report.problems
    with Store.open(fs, OPTIONS) as again:
        assert sorted(Database(again).list_tables()) == names
        assert Database(again).table(name).scan(ordered=True).to_arrow().to_pylist() == ROWS
        entries = again._environment.manifest.current.tables
        assert len({table.name for table in entries}) == len(entries)

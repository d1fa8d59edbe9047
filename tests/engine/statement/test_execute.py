"""A statement changes the table that it reads, whatever happens to the names of tables meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import ConflictError, NotFoundError
from nyala.schemas.protocol.service import ScanStream

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("state", pa.string())])
Change = Callable[[Table], Any]
STATEMENTS: dict[str, Change] = {
    "delete": lambda table: table.delete_where("state = 'gone'"),
    "delete in order": lambda table: table.delete_where("id >= 0 AND id < 9"),
    "delete of one row": lambda table: table.delete_where("id = 1"),
    "update": lambda table: table.update_where({"state": "'new'"}, where="state = 'gone'"),
}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=1)) as opened:
        db = Database(opened)
        db.create_table("t", SCHEMA, ["id"]).insert({"id": [1, 2, 3], "state": ["keep", "keep", "gone"]})
        db.create_table("t_new", SCHEMA, ["id"]).insert({"id": [1, 2, 3], "state": ["gone", "keep", "keep"]})
        yield opened


def rows(store: Store, name: str) -> list[dict[str, Any]]:
    return Database(store).table(name).scan(ordered=True).to_arrow().to_pylist()


def swap(store: Store) -> None:
    db = Database(store)
    db.table("t").alter().rename("t_old").apply()
    db.table("t_new").alter().rename("t").apply()


def once(monkeypatch: pytest.MonkeyPatch, store: Store, is_before: bool, happens: Callable[[], object]) -> None:
    """Let something happen once, before or after the first scan of a statement."""
    original, left = store._statements._scan, [happens]

    def scan(*given: Any) -> ScanStream:
        if is_before and left:
            left.pop()()
        found = original(*given)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(store._statements, "_scan", scan)


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_does_not_follow_a_name_to_another_table(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, is_before: bool
) -> None:
    old, new = rows(store, "t"), rows(store, "t_new")
    table = Database(store).table("t")
    once(monkeypatch, store, is_before, lambda: swap(store))
    with pytest.raises(ConflictError, match="table 't' was renamed to 't_old' meanwhile; nothing was applied"):
        STATEMENTS[name](table)
    assert rows(store, "t_old") == old and rows(store, "t") == new
    STATEMENTS[name](Database(store).table("t"))  # which means the new one now
    assert rows(store, "t_old") == old and rows(store, "t") != new


@pytest.mark.parametrize("is_before", [True, False])
def test_a_restore_does_not_follow_a_name_to_another_table(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    db = Database(store)
    moment = db.now()
    for name in ("t", "t_new"):
        db.table(name).delete({"id": [2]})
    old, new = rows(store, "t"), rows(store, "t_new")
    once(monkeypatch, store, is_before, lambda: swap(store))
    with pytest.raises(ConflictError, match="renamed"):
        db.table("t").restore(moment)
    assert rows(store, "t_old") == old and rows(store, "t") == new


def test_a_numbered_statement_that_lost_its_table_is_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    once(monkeypatch, store, False, lambda: swap(store))
    numbered = {"writer": "w", "seq": 1}
    with pytest.raises(ConflictError, match="renamed"):
        Database(store).table("t").delete_where("state = 'gone'", **numbered)
    assert Database(store).table("t").delete_where("state = 'gone'", **numbered).applied == 1
    assert [row["id"] for row in rows(store, "t")] == [2, 3]


def test_a_statement_does_not_change_a_table_that_was_recalled_under_another_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recalled() -> None:
        Database(store).drop_table("t", keep_seconds=60)
        Database(store).recall_table("t", "t_old")

    old = rows(store, "t")
    once(monkeypatch, store, False, recalled)
    with pytest.raises(ConflictError, match="renamed to 't_old'"):
        Database(store).table("t").delete_where("state = 'gone'")
    assert rows(store, "t_old") == old


def test_a_statement_ends_when_its_table_is_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced() -> None:
        Database(store).drop_table("t")
        Database(store).table("t_new").alter().rename("t").apply()

    new = rows(store, "t_new")
    once(monkeypatch, store, False, replaced)
    with pytest.raises(NotFoundError, match="table 't' was dropped"):
        Database(store).table("t").delete_where("state = 'gone'")
    assert rows(store, "t") == new

"""Grants and revokes beside tables that get the names of others: they are of the table that a name means when they are
committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.manifest import Manifest, ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, NotFoundError
from nyala.schemas.store.grants import GrantChange

Listed = list[tuple[str, list[str] | None]]


def columns(*names: str) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), False), *((name, pa.int64()) for name in names)])


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as opened:
        db = Database(opened)
        db.create_table("t", columns("public", "secret"), ["id"])
        db.create_table("t_new", columns("secret", "public"), ["id"])
        yield opened


def replaced(store: Store) -> None:
    db = Database(store)
    db.table("t_new").alter().rename("t", replaces=db.table("t").describe()["table_id"]).apply()


def swapped(store: Store) -> None:
    db = Database(store)
    db.table("t").alter().rename("t_old").apply()
    db.table("t_new").alter().rename("t").apply()


def dropped(store: Store) -> None:
    store.drop_table("t")


def kept(store: Store) -> None:
    store.drop_table("t", 60)


def first(monkeypatch: pytest.MonkeyPatch, store: Store, happens: Callable[[Store], object]) -> None:
    """Let something happen just before the next edit of the manifest."""
    commit, left = ManifestFile.commit, [happens]

    def later(self: ManifestFile, edit: Callable[[Manifest], Manifest]) -> Manifest:
        if left:
            left.pop()(store)
        return commit(self, edit)

    monkeypatch.setattr(ManifestFile, "commit", later)


def change(*names: str, table: str = "t") -> GrantChange:
    return GrantChange.model_validate(
        {"table": table, "user": "eve", "privileges": ["read"], "columns": list(names) or None}
    )


def listed(store: Store) -> Listed:
    return [(grant.table, grant.columns) for grant in store.grants()]


@pytest.mark.parametrize("happens", [replaced, swapped])
def test_a_grant_is_of_the_table_that_has_the_name_at_its_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Store], object]
) -> None:
    first(monkeypatch, store, happens)
    assert [(each.table, each.columns) for each in store.grant(change("public"))] == [("t", ["public"])]
    assert listed(store) == [("t", ["public"])]


@pytest.mark.parametrize("names", [(), ("public",)])
def test_a_revoke_is_of_the_table_that_has_the_name_at_its_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    store.grant(change(*names))
    store.grant(change(*names, table="t_new"))
    first(monkeypatch, store, swapped)
    store.revoke(change(*names))
    assert listed(store) == [("t_old", list(names) or None)]


@pytest.mark.parametrize("names", [(), ("public",)])
def test_a_revoke_is_of_the_table_that_takes_the_place_of_another(
    store: Store, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    store.grant(change(*names))
    first(monkeypatch, store, replaced)
    assert store.revoke(change(*names)) == [] and listed(store) == []


@pytest.mark.parametrize("happens", [dropped, kept])
def test_a_table_that_is_dropped_meanwhile_gets_no_grant(
    store: Store, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Store], object]
) -> None:
    first(monkeypatch, store, happens)
    with pytest.raises(NotFoundError, match=r"there is no table 't'.*; the tables are: t_new"):
        store.grant(change())
    assert store.grants() == []
    with pytest.raises(InvalidArgumentError, match="table 't_new' has no column 'x'; it has id, secret, public"):
        store.grant(change("x", table="t_new"))

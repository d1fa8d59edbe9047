"""Scans that run while grants, columns and tables change: what they read is known by its number, not by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.flight_server.security.identity import Identity
from nyala.schemas.errors import NotFoundError, PermissionDeniedError, StoreError
from nyala.schemas.protocol.service import ScanStream, StoreService
from nyala.schemas.rows.scan import ScanSpec
from tests.flight_server.guarded import Guarded

ALICE = Identity("alice", frozenset({"team"}))


@pytest.fixture
def guarded(guarded: Guarded) -> Guarded:
    with nyala.connect(guarded.served.url, token=guarded.admin_token) as db:
        for first in (100, 200):  # a rowset each, and so a batch each
            db.table("t").insert([{"k": first + n, "a": n, "b": "y"} for n in range(10)])
            db.table("t").maintain("flush")
    return guarded


def store_of(guarded: Guarded) -> StoreService:
    return guarded.served.server.store_of(ALICE)


def alter(guarded: Guarded, *steps: dict[str, Any], table: str = "t") -> None:
    guarded.admin.action("alter_table", table=table, steps=[*steps])


def rename(name: str, to: str) -> dict[str, Any]:
    return {"op": "rename_column", "name": name, "to": to}


def begun(guarded: Guarded, **spec: Any) -> ScanStream:
    found = store_of(guarded).scan(ScanSpec(table="t", **spec))
    assert next(found.batches).num_rows == 10
    return found


def rest(found: ScanStream) -> int:
    return pa.Table.from_batches(found.batches, found.schema).num_rows


def swap(guarded: Guarded) -> None:
    """Give the name of ``a`` to ``b``."""
    alter(guarded, rename("a", "c"), rename("b", "a"))


def swap_tables(guarded: Guarded) -> None:
    """Give the name of the table to a new one."""
    alter(guarded, {"op": "rename", "to": "u"})
    guarded.make_table()


@pytest.mark.parametrize("spec", [{"columns": ["a"]}, {"columns": [], "where": "a >= 0"}])
def test_a_column_with_the_name_of_another_is_not_it(guarded: Guarded, spec: dict[str, Any]) -> None:
    guarded.set_grants({"read": frozenset("a")})
    found = begun(guarded, **spec)
    swap(guarded)
    guarded.set_grants({"read": frozenset("a")})
    with pytest.raises(PermissionDeniedError, match="column 'a'"):
        rest(found)


def test_a_renamed_column_whose_grant_is_revoked_ends_the_scan(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset("a")})
    found = begun(guarded, columns=["a"])
    alter(guarded, rename("a", "c"))
    guarded.set_grants({"read": frozenset("k")})
    with pytest.raises(PermissionDeniedError, match="column 'a'"):
        rest(found)


def test_a_table_with_the_name_of_another_is_not_it(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset("kab")})
    found = begun(guarded)
    swap_tables(guarded)
    guarded.set_grants({}, "u")
    guarded.set_grants({"read": frozenset("kab")})
    with pytest.raises(PermissionDeniedError):
        rest(found)


@pytest.mark.parametrize("change", [swap, swap_tables])
def test_what_is_renamed_is_read_on(guarded: Guarded, change: Callable[[Guarded], None]) -> None:
    guarded.set_grants({"read": frozenset("ab")})
    found = begun(guarded, columns=["a"], where="b = 'y' or b = 'x'")
    change(guarded)
    assert rest(found) == 20


@pytest.mark.parametrize("change", [swap, swap_tables])
@pytest.mark.parametrize("where", [None, "k = 100", "k < 150 and a is not null"])
def test_names_that_change_before_a_scan_begins(
    guarded: Guarded, change: Callable[[Guarded], None], where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the check of its columns."""
    guarded.set_grants({"read": frozenset("ak")})
    scan = type(guarded.store).scan

    def later(store: Any, spec: ScanSpec) -> ScanStream:
        monkeypatch.undo()
        change(guarded)
        return scan(store, spec)

    monkeypatch.setattr(type(guarded.store), "scan", later)
    with pytest.raises((PermissionDeniedError, NotFoundError)):
        rest(store_of(guarded).scan(ScanSpec(table="t", columns=["a"], where=where)))


def test_an_order_reads_no_more_than_it_says(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset("ab")})
    found = store_of(guarded).scan(
        ScanSpec.model_validate({"table": "t", "columns": ["a"], "order_by": [{"column": "b"}]})
    )
    assert rest(found) == 30


def test_a_get_of_a_row_ends_with_its_grant(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.set_grants({"read": frozenset("kab")})
    store, table = store_of(guarded), guarded.store.describe_table("t")
    get_row = type(guarded.store).get_row

    def later(*given: Any) -> Any:
        monkeypatch.undo()
        found = get_row(*given)
        guarded.set_grants({"read": frozenset("ka")})
        return found

    guarded_store: Any = store
    assert guarded_store.get_row(table, [1])["a"] == 1
    monkeypatch.setattr(type(guarded.store), "get_row", later)
    with pytest.raises(StoreError, match="column 'b'"):
        guarded_store.get_row(table, [1])

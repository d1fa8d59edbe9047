"""Statistics tell nothing that needs ``read`` to callers without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.grant_statements import ALL, SCHEMA, privileges
from tests.flight_server.guarded import Guarded
from tests.flight_server.http_client import Port
from tests.flight_server.test_console import tree

SUMS = ("memory_bytes", "bytes_on_disk", "redo_bytes", "undo_bytes", "dropped_bytes")
HIDDEN = {"encodings": [], "bytes_on_disk": 0, "raw_bytes": 0}


def told(guarded: Guarded, name: str = "t") -> dict[str, Any]:
    with nyala.connect(guarded.served.url, token=guarded.user_token) as db:
        return db.table(name).stats()


def test_bytes_of_a_column_are_for_its_readers(guarded: Guarded) -> None:
    guarded.set_grants(privileges(insert=" ".join(ALL), read="k a"))
    whole, shown = guarded.store.table_stats("t").model_dump(mode="json"), told(guarded)
    assert shown["columns"] == [*whole["columns"][:2], {"name": "b"} | HIDDEN]
    assert whole["columns"][2]["raw_bytes"] > 0
    assert (shown["live_rows"], shown["last_change"]) == (10, whole["last_change"])


@pytest.mark.parametrize("granted", ["insert", "maintain"])
def test_who_reads_nothing_learns_the_number_of_rows(guarded: Guarded, granted: str) -> None:
    guarded.set_grants(privileges(**{granted: " ".join(ALL)}))
    shown = told(guarded)
    assert shown["columns"] == [{"name": name} | HIDDEN for name in ("k", "a", "b")]
    assert (shown["live_rows"], shown["last_change"]) == (10, 0)
    (tablet,) = shown["tablets"]
    assert (tablet["live_rows"], tablet["rows_written"], tablet["rows_read"]) == (10, 0, 0)


def test_sums_of_bytes_are_for_readers_of_all_columns_and_for_operators(guarded: Guarded) -> None:
    """A sum over all columns tells of a column, since the others' bytes can be taken off."""
    whole = guarded.store.table_stats("t").model_dump(mode="json")
    guarded.set_grants(privileges(insert=" ".join(ALL), read="k a"))
    shown = told(guarded)
    (tablet,) = shown["tablets"]
    assert [shown["bytes_on_disk"], shown["memory"], tablet["layout"], tablet["key_index"]["bytes"]] == [0, None, [], 0]
    assert [tablet[name] for name in SUMS] == [0] * len(SUMS)
    guarded.store.grant(GrantChange(user="alice", table="*", privileges=[Privilege.MAINTAIN]))
    shown = told(guarded)
    assert (shown["bytes_on_disk"], shown["tablets"]) == (whole["bytes_on_disk"], whole["tablets"])
    assert shown["columns"][2] == {"name": "b"} | HIDDEN
    guarded.store.revoke(GrantChange(user="alice", table="*", privileges=[Privilege.MAINTAIN]))
    guarded.set_grants(privileges(read=" ".join(ALL)))
    assert {**told(guarded), "memory": None} == {**whole, "memory": None}


def test_a_cell_that_equals_a_secret_changes_no_statistics(guarded: Guarded) -> None:
    guarded.set_grants(privileges(insert=" ".join(ALL), read="k"))
    seen = []
    for number, guess in enumerate(("hunter2-hunter2-hunter2", "hunter3-hunter3-hunter3")):
        name = f"vault{number}"
        with nyala.connect(guarded.served.url, token=guarded.admin_token) as db:
            db.create_table(name, SCHEMA, primary_key=["k"])
            db.table(name).insert([{"k": 1, "a": 1, "b": "hunter2-hunter2-hunter2"}])
            guarded.set_grants(privileges(insert=" ".join(ALL), read="k"), name)
            with nyala.connect(guarded.served.url, token=guarded.user_token) as user:
                user.table(name).insert([{"k": 2, "a": 1, "b": guess}])
            db.table(name).maintain("flush")
        shown = told(guarded, name)
        tablets = [{**tablet, "tablet": 0, "history_floor": 0} for tablet in shown["tablets"]]
        seen.append({**shown, "name": "", "last_change": 0, "tablets": tablets})
    assert seen[0] == seen[1]


def test_the_console_shows_no_bytes_of_columns_that_the_user_may_not_read(
    port: Callable[..., Port], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    made = {name: create_token(tokens, name)[0] for name in ("alice", "bob")}
    one = port(ServeOptions(tokens=tokens, admins=("alice",), audit_log=tmp_path / "audit.log"))
    one.served.store.grant(GrantChange(user="bob", table="homes", privileges=[Privilege.READ], columns=["id"]))

    def cells(user: str) -> list[list[str]]:
        text = one.ask("/console/table?name=homes", made[user])[1]
        body = next(tree(text).iter("tbody"))
        return [["".join(cell.itertext()) for cell in row] for row in body]

    whole, shown = cells("alice"), cells("bob")
    assert shown[0][:7] == whole[0][:7] and shown[0][0] == "id"
    assert {tuple(row[3:]) for row in shown[1:]} == {("",) * 5}
    assert all(row[4] for row in whole)

"""Ways around grants, through the front door: each was open once, or could be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.grant_statements import ALL, Caller, OpenSession, batch
from tests.flight_server.guarded import Guarded


@pytest.fixture
def guarded(guarded: Guarded) -> Guarded:
    guarded.make_table("mine")
    guarded.set_grants({"read": frozenset("a")})
    guarded.set_grants({"read": frozenset(ALL)}, "mine")
    return guarded


# Tickets with the lease of another


def lease_of(guarded: Guarded, **spec: Any) -> dict[str, Any]:
    """Plan a scan; return what reads the rows that were kept for it."""
    told = json.loads(guarded.user.info(**spec).endpoints[0].ticket.ticket)
    return {"lease": told["lease"], "as_of": told["as_of"]}


def by_session(guarded: Guarded, **spec: Any) -> None:
    OpenSession(guarded.user).ask({"scan": {"table": "t", **spec}})


@pytest.fixture(params=["ticket", "session"])
def read(request: pytest.FixtureRequest, guarded: Guarded) -> Callable[..., Any]:
    return guarded.user.scan if request.param == "ticket" else lambda **spec: by_session(guarded, **spec)


def test_a_lease_reads_no_other_table(guarded: Guarded) -> None:
    guarded.make_table("other")
    with pytest.raises(fl.FlightUnauthorizedError):
        guarded.user.scan()
    lease = lease_of(guarded, columns=["a"])
    guarded.admin.action("alter_table", table="mine", steps=[{"op": "drop_column", "name": "b"}])
    assert guarded.user.scan(table="mine", **lease).column_names == ["k", "a"]
    guarded.set_grants({"read": frozenset("a")}, "other")
    lease = lease_of(guarded, table="other", columns=["a"])
    guarded.set_grants({}, "other")
    assert guarded.user.scan(table="mine", **lease).column_names == ["k", "a"]


def test_a_lease_reads_no_column_by_an_older_name(guarded: Guarded, read: Callable[..., Any]) -> None:
    steps = {"b": {"op": "rename_column", "name": "b", "to": "c"}, "c": {"op": "drop_column", "name": "c"}}
    for name, step in steps.items():
        lease = lease_of(guarded, columns=["a"])
        guarded.admin.action("alter_table", table="t", steps=[step])
        for spec in (
            {"columns": [name]},
            {"columns": ["a"], "where": f"{name} = 'x'"},
            {"aggregate": {"n": [name, "max"]}},
            {"aggregate": {"n": ["*", "count"]}, "group_by": [name]},
            {"columns": ["a"], "order_by": [{"column": name}]},
        ):
            with pytest.raises((fl.FlightError, pa.ArrowException, RuntimeError), match=f"no column '{name}'"):
                read(**spec, **lease)


def test_a_lease_reads_what_it_did_if_nothing_has_another_name(guarded: Guarded) -> None:
    lease = lease_of(guarded, columns=["a"])
    guarded.admin.action("alter_table", table="t", steps=[{"op": "add_column", "name": "more", "type": "int64"}])
    assert guarded.user.scan(columns=["a"], **lease).num_rows == 10


# A table with the name of all tables


def test_no_table_has_the_name_of_all_tables(guarded: Guarded) -> None:
    guarded.store.grant(GrantChange(user="alice", table="*", privileges=[Privilege.ALTER]))
    guarded.set_grants({"admin": frozenset()}, "mine")
    rename = {"op": "rename", "to": "*"}
    guarded.make_table("gone")
    guarded.user.action("drop_table", table="gone", keep_seconds=100)
    column = {"name": "k", "type": "int64", "nullable": False}
    for name, body in (
        ("alter_table", {"table": "mine", "steps": [rename]}),
        ("create_table", {"name": "*", "columns": [column], "primary_key": ["k"]}),
        ("recall_table", {"table": "gone", "new_name": "*"}),
    ):
        with pytest.raises(fl.FlightError, match="a table cannot be named"):
            guarded.user.action(name, **body)
    with pytest.raises(fl.FlightError, match="no grant to read"):
        guarded.user.scan()


def test_grants_on_an_older_table_of_that_name_are_on_it_alone(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.schemas.table.altered.check_table_name", lambda *_: None)
    guarded.set_grants({"admin": frozenset()}, "mine")
    guarded.admin.action("alter_table", table="mine", steps=[{"op": "rename", "to": "*"}])
    guarded.store.grant(GrantChange(user="bob", table="*", privileges=[Privilege.READ]))
    with pytest.raises(fl.FlightUnauthorizedError, match="no grant to read on columns 'b', 'k' of table 't'"):
        guarded.user.scan()
    with pytest.raises(fl.FlightUnauthorizedError, match="on all tables"):
        guarded.user.action("grant", user="alice", table="*", privileges=["read"])
    assert {each["user"] for each in guarded.user.action("grants")["grants"]} == {"alice"}
    assert guarded.user.scan(table="*").num_rows == 10


# What answers tell


def test_who_changes_grants_learns_only_of_those_on_its_tables(guarded: Guarded) -> None:
    guarded.set_grants({"admin": frozenset()}, "mine")
    guarded.set_grants({"read": frozenset("a")}, user="carol")
    change = {"user": "carol", "table": "mine", "privileges": ["read"]}
    assert [each["table"] for each in guarded.user.action("grant", **change)["grants"]] == ["mine"]
    assert guarded.user.action("revoke", **change)["grants"] == []
    assert [each["table"] for each in guarded.admin.action("revoke", **change)["grants"]] == ["t"]


def test_grants_on_columns_that_are_gone_show_nothing(guarded: Guarded) -> None:
    guarded.admin.action("alter_table", table="t", steps=[{"op": "drop_column", "name": "a"}])
    with pytest.raises(fl.FlightError, match="there is no table 't'; the tables are: mine"):
        guarded.user.scan(aggregate={"n": ["*", "count"]})
    assert [each["table"] for each in guarded.user.action("grants")["grants"]] == ["mine"]


def test_errors_of_statements_show_keys_to_who_may_read_them(guarded: Guarded) -> None:
    column = {"op": "add_column", "name": "n", "type": "int64", "nullable": False, "read_default": 7}
    guarded.admin.action("alter_table", table="t", steps=[column])
    guarded.set_grants({"read": frozenset(["a", "n"]), "update": frozenset("n")})
    body = {"table": "t", "kind": "update", "set": {"n": "NULLIF(n, 7)"}, "where": "a = 3"}
    (error,) = guarded.user.action("execute", **body)["errors"]
    assert error["message"] == "column 'n' is NOT NULL, but the value is NULL"
    guarded.set_grants({"read": frozenset(["k", "a", "n"]), "update": frozenset("n")})
    (error,) = guarded.user.action("execute", **body)["errors"]
    assert error["message"].endswith("; it has the key (k=3)")


def commits(guarded: Guarded, caller: Caller) -> dict[str, Any]:
    (page,) = caller.client.do_action(fl.Action("commits", b'{"table":"mine"}'), caller.options)
    return json.loads(page.body.to_pybytes())


def test_commits_show_writers_to_administrators_of_the_table(guarded: Guarded) -> None:
    """Who knows a writer could take its next number, whose write would then count as applied."""
    with nyala.connect(guarded.served.url, token=guarded.admin_token) as db, db.transaction() as work:
        work.insert("mine", [{"k": 77, "a": 1, "b": "new"}])
    guarded.store.begin_write(
        WriteCommand(table="mine", op=Operation.UPSERT, writer="nightly"), batch("k a"), 1
    ).result()
    seen = commits(guarded, guarded.admin)
    assert seen["writer"][-1] == "nightly" and any(seen["transaction"])
    hidden = commits(guarded, guarded.user)
    assert not any(hidden["writer"]) and not any(hidden["transaction"])
    assert "root" in seen["user"] and not any(hidden["user"]) and hidden["operation"] == seen["operation"]
    assert (hidden["timestamp"], hidden["inserted"]) == (seen["timestamp"], seen["inserted"])
    guarded.set_grants({"admin": frozenset()}, "mine")
    assert commits(guarded, guarded.user) == seen


def test_a_transaction_tells_no_hidden_table(guarded: Guarded) -> None:
    guarded.set_grants({"insert": frozenset(ALL)}, "mine")
    guarded.set_grants({})
    guarded.admin.transaction = "tx"
    guarded.admin.stage("upsert", "k b")
    for act in (
        lambda: guarded.user.commit(parts=["p"]),
        lambda: guarded.user.action("abort_transaction", transaction="tx"),
    ):
        with pytest.raises(fl.FlightUnauthorizedError, match="may not write all parts of transaction 'tx'") as denied:
            act()
        assert "'t'" not in str(denied.value)


def test_denials_are_of_what_was_asked(guarded: Guarded) -> None:
    before = len(guarded.audit.read_text().splitlines())
    assert not list(guarded.user.client.list_flights(options=guarded.user.options))[1:]
    for name, body in (
        ("create_table", {"name": "new", "columns": [{"name": "k", "type": "int64"}], "primary_key": ["k"]}),
        ("recall_table", {"table": "gone"}),
        ("release_pin", {"pin_id": "7-pin"}),
        ("grant", {"user": "alice", "table": "*", "privileges": ["read"]}),
        ("commit_transaction", {"transaction": "tx"}),
        ("metrics", {}),
    ):
        with pytest.raises(fl.FlightUnauthorizedError):
            guarded.user.action(name, **body)
    told = [json.loads(line) for line in guarded.audit.read_text().splitlines()[before:]]
    assert [(each["action"], each.get("table", each.get("id"))) for each in told] == [
        ("create_table", "new"),
        ("recall_table", "gone"),
        ("release_pin", "7-pin"),
        ("grant", "*"),
        ("commit_transaction", None),
        ("metrics", None),
    ]
    assert told[4]["transaction"] == "tx"


def test_a_grant_that_ends_while_a_scan_begins(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request of the same user may learn of it first."""
    described = guarded.store.describe_table

    def meanwhile(name: str) -> Any:
        monkeypatch.undo()
        about = described(name)
        guarded.set_grants({})
        assert guarded.user.action("tables")["tables"] == ["mine"]
        return about

    monkeypatch.setattr(guarded.store, "describe_table", meanwhile)
    with pytest.raises(fl.FlightError, match="there is no table 't'"):
        guarded.user.scan(columns=["a"])


def test_who_administers_a_table_does_not_use_up_all_grants(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.catalog.grants.TABLE_GRANTS_MAX", 5)
    monkeypatch.setattr("nyala.engine.catalog.grants.GRANTS_MAX", 8)
    guarded.set_grants({"admin": frozenset()}, "mine")

    def give(caller: Caller, user: str, table: str) -> None:
        caller.action("grant", user=user, table=table, privileges=["read"])

    for number in range(4):
        give(guarded.user, f"u{number}", "mine")
    give(guarded.user, "u3", "mine")
    with pytest.raises(fl.FlightError, match="table 'mine' can have at most 5 grants: grant to roles"):
        give(guarded.user, "u4", "mine")
    guarded.user.action("revoke", user="u3", table="mine", privileges=["read"])
    give(guarded.user, "u4", "mine")
    for user, table in (("u0", "t"), ("u0", "*")):
        give(guarded.admin, user, table)
    with pytest.raises(fl.FlightError, match="a store can have at most 8"):
        give(guarded.admin, "u1", "*")


def test_long_grants_are_limited_too(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.catalog.grants.TABLE_GRANT_BYTES_MAX", 1_000)
    monkeypatch.setattr("nyala.engine.catalog.grants.GRANT_BYTES_MAX", 1_500)
    guarded.set_grants({"admin": frozenset()}, "mine")

    def give(caller: Caller, user: str, table: str) -> None:
        caller.action("grant", user=user, table=table, privileges=["read"])

    give(guarded.user, "u" * 500, "mine")
    with pytest.raises(fl.FlightError, match="the grants of table 'mine' can have at most 1,000 bytes: grant to roles"):
        give(guarded.user, "v" * 500, "mine")
    with pytest.raises(fl.FlightError, match="the grants of a store can have at most 1,500 bytes"):
        for number in range(3):
            give(guarded.admin, f"{number}" + "w" * 400, "t")
    guarded.user.action("revoke", user="u" * 500, table="mine", privileges=["read"])
    give(guarded.user, "v" * 500, "mine")


def test_nobody_guesses_the_scans_of_others(guarded: Guarded) -> None:
    """Who knows the lease of a scan may release it, and others may then find that its history is gone."""
    leases = [lease_of(guarded, columns=["a"])["lease"] for _ in range(2)]
    digits = list(zip(*leases, strict=True))
    assert all(len(each) == 32 for each in leases)
    assert sum(one == other for one, other in digits) < 16, "16 of 32 digits alike: one in 10 billion"

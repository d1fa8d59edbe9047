"""Grants through the front door: every kind of request by users with all kinds of grants."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nyala
from nyala.__main__ import main
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.guarded_store import GuardedStore
from nyala.schemas.errors import PermissionDeniedError
from nyala.schemas.protocol.server_verbs import ACTIONS as SERVED
from nyala.schemas.protocol.session import SessionRequest
from nyala.schemas.rows.changes import ChangeSpec
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.statement import Statement
from nyala.schemas.rows.transaction import TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.store.maintenance import FailingWork
from nyala.schemas.table.table import QUOTAS, UPKEEP, TableOptions
from tests.doubles.grant_actions import ACTIONS
from tests.doubles.grant_statements import ALL, PLAIN, REQUESTS, SCHEMA, OpenSession, expected, outcome, privileges
from tests.flight_server.guarded import Guarded
from tests.flight_server.served import Served

USERS: dict[str, dict[str, frozenset[str]]] = {
    "nothing": {},
    **{f"only {each}": privileges(**{each: " ".join(ALL)}) for each in ("read", "insert", "update", *PLAIN)},
    **{
        f"{each} {columns}": privileges(**{each: columns})
        for each in ("read", "insert", "update")
        for columns in ("a", "b", "k a", "a b", "k a b")
    },
    "read and upsert some": privileges(read="a k b", insert="k a", update="a"),
    "read some, update another": privileges(read="k b", update="a"),
    "read some and delete": privileges(read="b", delete=""),
    "write all": privileges(insert="k a b", update="k a b", delete=""),
    "all but admin": privileges(read="k a b", insert="k a b", update="k a b", delete="", alter="", maintain=""),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("grants"))
    made.make_table()
    yield made
    made.close()


def check_all(guarded: Guarded, has: dict[str, frozenset[str]], everywhere: frozenset[str] = frozenset()) -> None:
    wrong = {}
    for name, asked in {**REQUESTS, **ACTIONS}.items():
        wanted, found = expected(has, everywhere, asked), outcome(asked, guarded.user)
        if found == "ok" and asked.after:
            asked.after(guarded.admin)
        if found != wanted:
            wrong[name] = (wanted, found)
    assert not wrong


@pytest.mark.parametrize("user", USERS)
def test_the_matrix(shared: Guarded, user: str) -> None:
    shared.set_grants(USERS[user])
    check_all(shared, USERS[user])


def test_the_matrix_has_every_verb_and_every_request_of_a_session(guarded: Guarded) -> None:
    def asked() -> dict[str, int]:
        return {verb: sum(counts) for verb, counts, _ in guarded.served.server.calls.metrics.requests()}

    before = asked()
    for each in (*REQUESTS.values(), *ACTIONS.values()):
        if outcome(each, guarded.admin) == "ok" and each.after:
            each.after(guarded.admin)
    in_matrix = {verb for verb, count in asked().items() if count > before.get(verb, 0)}
    calls = {"do_get", "do_put", "do_exchange", "get_flight_info", "get_schema", "list_flights"}
    sessions = {f"session_{name}" for name in SessionRequest.model_fields.keys() - {"arrow_schema", "columns"}}
    assert {*SERVED, *calls, *sessions} - in_matrix == set()


def test_the_rules_look_at_every_field_of_a_request() -> None:
    """A new field of these may name columns or tables: teach ``needs`` and the matrix, and then add it here."""
    of_columns = {"columns", "where", "order_by", "aggregate", "group_by", "ordered", "key_lower", "key_upper"}
    of_keys = {"marks", "split_bytes"}
    neither = {"table", "as_of", "changes", "max_staleness", "limit", "offset", "partial", "all_parts", "tablet"}
    neither |= {"partition", "here", "tablets_here", "lease", "pin", "planned", "now"}
    assert ScanSpec.model_fields.keys() == of_columns | of_keys | neither
    assert ChangeSpec.model_fields.keys() == {"since", "until", "before", "every"}
    statement = {"table", "kind", "set", "where", "as_of", "durability", "writer", "seq", "here", "table_id"}
    assert Statement.model_fields.keys() == statement
    write = {"table", "op", "atomic", "durability", "writer", "commit", "if_timestamp", "stage"}
    write |= {"count_replaced", "rules", "table_id"}
    assert WriteCommand.model_fields.keys() == write
    assert Stage.model_fields.keys() == {"transaction", "part", "table_id"}
    assert TableOptions.model_fields.keys() == {*QUOTAS, *UPKEEP, "comment", "order_by", "ttl"}
    commit = {"transaction", "parts", "truncate", "table_ids", "if_timestamp", "app_id", "app_version"}
    assert TransactionCommit.model_fields.keys() == commit


@pytest.mark.parametrize("words", ["read", "alter", "admin", "insert", "maintain", "alter maintain"])
def test_grants_on_all_tables(shared: Guarded, words: str) -> None:
    shared.set_grants({})
    has = privileges(**dict.fromkeys(words.split(), " ".join(ALL)))
    shared.set_grants(has, "*")
    try:
        check_all(shared, has, frozenset(has))
        assert shared.user.action("tables")["tables"] == ["t"]
    finally:
        shared.set_grants({}, "*")


def test_grants_to_a_role(shared: Guarded) -> None:
    shared.set_grants({"read": frozenset("a")})
    shared.set_grants({"read": frozenset("b")}, role="team")
    shared.set_grants({"delete": frozenset()}, role="another team")
    try:
        check_all(shared, privileges(read="a b"))
    finally:
        shared.set_grants({}, role="team")


def test_an_administrator_may_do_everything(shared: Guarded) -> None:
    shared.set_grants({})
    user, shared.user = shared.user, shared.admin
    try:
        check_all(shared, privileges(admin=""), frozenset({"admin"}))
    finally:
        shared.user = user


def columns_of(draw: Any) -> frozenset[str]:
    return frozenset(draw(st.sets(st.sampled_from(ALL), min_size=1)))


@st.composite
def changes(draw: Any) -> list[tuple[bool, str, frozenset[str] | None]]:
    """Grants and revocations, each of a privilege on some columns, or None."""
    return [
        (draw(st.booleans()), name, columns_of(draw) if name not in PLAIN and draw(st.booleans()) else None)
        for name in draw(st.lists(st.sampled_from(("read", "insert", "update", *PLAIN)), max_size=8))
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes(),
    st.lists(
        st.sampled_from(sorted(name for name, each in REQUESTS.items() if not each.after)), min_size=1, max_size=6
    ),
)
def test_grants_and_revocations_as_the_model(
    shared: Guarded, made: list[tuple[bool, str, frozenset[str] | None]], asked: list[str]
) -> None:
    shared.set_grants({})
    has: dict[str, frozenset[str]] = {}
    for is_grant, name, columns in made:
        change = GrantChange(
            user="alice", table="t", privileges=[Privilege(name)], columns=None if columns is None else sorted(columns)
        )
        is_whole = (name, None) in wholes(has)
        if is_grant:
            shared.store.grant(change)
            before = has.get(name, frozenset())
            has[name] = WHOLE if columns is None or is_whole else before | columns
        elif columns is not None and is_whole:
            with pytest.raises(nyala.InvalidArgumentError, match="on all columns"):
                shared.store.revoke(change)
        else:
            shared.store.revoke(change)
            left = frozenset() if columns is None else has.get(name, frozenset()) - columns
            has = {each: there for each, there in has.items() if each != name} | ({name: left} if left else {})
        for each in asked:
            assert outcome(REQUESTS[each], shared.user) == expected(has, frozenset(), REQUESTS[each]), each


WHOLE = frozenset({*ALL, "columns to come"})


def wholes(has: dict[str, frozenset[str]]) -> set[tuple[str, None]]:
    return {(name, None) for name, columns in has.items() if columns == WHOLE}


def test_a_hidden_table_is_as_a_missing_one(guarded: Guarded) -> None:
    guarded.make_table("seen")
    guarded.set_grants({"read": frozenset("a")}, "seen")
    assert guarded.user.action("tables")["tables"] == ["seen"]
    assert [each.descriptor.path for each in guarded.user.client.list_flights(options=guarded.user.options)] == []
    for name, asked in REQUESTS.items():
        if asked.is_of_servers:
            continue
        with pytest.raises((fl.FlightError, pa.ArrowException, RuntimeError, KeyError)) as hidden:
            asked.run(guarded.user)
        guarded.store.drop_table("t")
        with pytest.raises((fl.FlightError, pa.ArrowException, RuntimeError, KeyError)) as missing:
            asked.run(guarded.user)
        said = "there is no table 't'; the tables are: seen"
        assert said in str(hidden.value) and said in str(missing.value), name
        guarded.make_table()


def test_a_list_of_tables_shows_whole_tables_only_as_flights(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset(ALL)})
    (info,) = guarded.user.client.list_flights(options=guarded.user.options)
    assert info.descriptor.path == [b"t"] and guarded.user.read(info)[0].num_rows == 10


def test_a_ticket_ends_with_the_grant(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset("a")})
    info = guarded.user.info(columns=["a"])
    assert guarded.user.read(info)[0].num_rows == 10
    guarded.set_grants({"read": frozenset("b")})
    with pytest.raises(fl.FlightUnauthorizedError, match="column 'a' of table 't'"):
        guarded.user.read(info)
    guarded.set_grants({})
    with pytest.raises(fl.FlightError, match="there is no table 't'; the tables are: none"):
        guarded.user.read(info)


def test_single_rows_take_the_short_way_under_grants_too() -> None:
    assert {"get_row", "write_row", "begin_row"} <= vars(GuardedStore).keys()


def test_a_session_ends_its_answers_with_the_grant(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset(ALL), "insert": frozenset(ALL)})
    session = OpenSession(guarded.user)
    get = {"get": "t"}, {"key": [1]}
    row = {"write": {"table": "t", "op": "insert"}, "columns": ["k"]}
    assert session.ask(*get)["row"] is not None
    assert session.ask(row, {"row": [100]})["applied"] == 1
    guarded.set_grants({"read": frozenset("a")})
    for asked in (get, (row, {"row": [101]})):
        with pytest.raises(RuntimeError, match="PERMISSION_DENIED"):
            session.ask(*asked)
    assert session.ask({"scan": {"table": "t", "columns": ["a"]}})["rows"] == 11
    session.writer.close()


def test_short_ranges_in_a_session_end_with_the_grant(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset(ALL)})
    session = OpenSession(guarded.user)
    whole: dict[str, Any] = {"table": "t", "where": "k >= 2 AND k < 5"}
    part = {**whole, "columns": ["k"]}
    assert [session.ask({"scan": asked})["rows"] for asked in (whole, part)] == [3, 3]
    guarded.set_grants({"read": frozenset("k")})
    assert session.ask({"scan": part})["rows"] == 3
    with pytest.raises(RuntimeError, match="PERMISSION_DENIED"):
        session.ask({"scan": whole})
    guarded.set_grants({"read": frozenset("a")})
    with pytest.raises(RuntimeError, match="PERMISSION_DENIED"):  # the filter reads k
        session.ask({"scan": {**whole, "columns": ["a"]}})
    session.writer.close()


def test_a_running_scan_ends_with_the_grant(guarded: Guarded) -> None:
    with nyala.connect(guarded.served.url, token=guarded.admin_token) as db:
        rows = pa.table({"k": range(100, 3_000_000), "a": range(100, 3_000_000)})
        db.table("t").insert(rows)
    guarded.set_grants({"read": frozenset(["k", "a"])})
    reader = guarded.user.client.do_get(fl.Ticket(b'{"table":"t","columns":["k","a"]}'), guarded.user.options)
    assert reader.read_chunk().data.num_rows
    guarded.set_grants({"read": frozenset("k")})
    with pytest.raises(fl.FlightUnauthorizedError, match="column 'a'"):
        while True:
            reader.read_chunk()


def test_staged_parts_end_with_the_grant(guarded: Guarded) -> None:
    guarded.set_grants({"insert": frozenset(["k", "a"])})
    guarded.user.stage("insert_ignore", "k a")
    guarded.set_grants({"insert": frozenset(["k"])})
    with pytest.raises(fl.FlightUnauthorizedError, match="insert on column 'a'"):
        guarded.user.commit(parts=["p"])
    with pytest.raises(fl.FlightUnauthorizedError, match="insert on column 'a'"):
        guarded.user.action("abort_transaction", transaction="tx")
    guarded.set_grants({"insert": frozenset(["k", "a"])})
    assert guarded.user.commit(parts=["p"])["rows"] == 1


def test_staged_parts_of_others_are_not_committed(guarded: Guarded) -> None:
    guarded.set_grants({"insert": frozenset(["k", "a"])})
    guarded.admin.transaction = "tx"
    guarded.admin.stage("upsert", "k b")
    for act in (
        lambda: guarded.user.commit(parts=["p"]),
        lambda: guarded.user.action("abort_transaction", transaction="tx"),
    ):
        with pytest.raises(fl.FlightUnauthorizedError, match="insert on column 'b'"):
            act()


def test_who_may_write_nothing_commits_nothing(guarded: Guarded) -> None:
    """The name of a transaction, or the version of an application, would be taken."""
    for has in (privileges(), privileges(read="k a b")):
        guarded.set_grants(has)
        with pytest.raises(fl.FlightUnauthorizedError):
            guarded.user.commit(app_id="job", app_version=1 << 60)
    guarded.set_grants({"insert": frozenset(["k", "a"])})
    guarded.user.stage("insert_ignore", "k a")
    assert not guarded.user.commit(parts=["p"], app_id="job", app_version=1)["skipped"]


@pytest.mark.parametrize(
    "ids", [("import_begin", "import_abort", "import_id"), ("pin_snapshot", "release_pin", "pin_id")]
)
def test_what_is_kept_for_others_is_theirs(guarded: Guarded, ids: tuple[str, str, str]) -> None:
    begin, end, name = ids
    guarded.make_table("other")
    guarded.set_grants({"read": frozenset(ALL), "insert": frozenset(ALL)}, "other")
    kept = guarded.admin.action(begin, table="t")[name]
    with pytest.raises(fl.FlightUnauthorizedError):
        guarded.user.action(end, **{name: kept})
    mine = guarded.user.action(begin, table="other")[name]
    guarded.user.action(end, **{name: mine})


def test_a_renamed_column_keeps_its_grant_and_a_new_one_has_none(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset("a")})

    def alter(*steps: dict[str, Any]) -> None:
        guarded.admin.action("alter_table", table="t", steps=[*steps])

    alter({"op": "rename_column", "name": "a", "to": "c"}, {"op": "rename_column", "name": "b", "to": "a"})
    assert guarded.user.scan(columns=["c"]).num_rows == 10
    with pytest.raises(fl.FlightUnauthorizedError, match="column 'a'"):
        guarded.user.scan(columns=["a"])
    guarded.store.grant(GrantChange(user="alice", table="t", privileges=[Privilege.READ], columns=["k"]))
    alter({"op": "drop_column", "name": "c"}, {"op": "add_column", "name": "c", "type": "int64"})
    with pytest.raises(fl.FlightUnauthorizedError, match="column 'c'"):
        guarded.user.scan(columns=["c"])
    guarded.set_grants({"read": frozenset(["k", "a", "c"])})
    assert guarded.user.scan().num_rows == 10
    alter({"op": "add_column", "name": "d", "type": "int64"})
    with pytest.raises(fl.FlightUnauthorizedError, match="column 'd'"):
        guarded.user.scan()
    with pytest.raises(RuntimeError, match="column 'd'"):
        guarded.user.session({"get": "t"}, {"key": [1]})


@pytest.mark.parametrize("option", ["max_rows", "max_bytes"])
def test_who_may_alter_a_table_does_not_set_its_quota(guarded: Guarded, option: str) -> None:
    steps = [{"op": "set_option", "option": option, "value": 1}]
    comment = {"op": "set_option", "option": "comment", "value": "mine"}
    guarded.set_grants({"alter": frozenset()})
    guarded.user.action("alter_table", table="t", steps=[comment])
    with pytest.raises(fl.FlightUnauthorizedError, match="admin"):
        guarded.user.action("alter_table", table="t", steps=[comment, *steps])
    guarded.set_grants({"alter": frozenset(), "admin": frozenset()})
    assert guarded.user.action("alter_table", table="t", steps=steps)["options"][option] == 1


def test_python_and_the_command_line_name_the_grant_that_an_option_needs(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded.set_grants({"alter": frozenset()}, "*")
    with nyala.connect(guarded.served.url, token=guarded.user_token) as db:
        costly: Any = [{"maintenance": "off"}, {"history_max_age_seconds": 8 * 86_400}, {"cell_bytes_max": 1 << 20}]
        for options in costly:
            with pytest.raises(PermissionDeniedError, match="maintain on all tables"):
                db.create_table("u", SCHEMA, primary_key=["k"], **options)
        table = db.create_table("u", SCHEMA, primary_key=["k"], history_max_age_seconds=60)
        with pytest.raises(PermissionDeniedError, match="maintain on"):
            table.alter().set_option("history_max_age_seconds", 30).apply()
        with pytest.raises(PermissionDeniedError, match="maintain on"):
            db.drop_table("u", keep_seconds=8 * 86_400)
        with pytest.raises(PermissionDeniedError, match="maintain on all tables"):
            table.alter().rename("t", replaces=db.table("t").describe()["table_id"], keep_seconds=8 * 86_400).apply()
    file = tmp_path / "alice.token"
    file.write_text(guarded.user_token)
    file.chmod(0o600)
    words = ["--token-file", str(file), "alter", "u", "--set-option", "maintenance=off", "--url", guarded.served.url]
    monkeypatch.setattr("sys.argv", ["nyala", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code and "maintain on" in capsys.readouterr().err


def test_a_new_table_of_the_same_name_has_no_grants(guarded: Guarded) -> None:
    guarded.set_grants({"read": frozenset(ALL)})
    guarded.admin.action("alter_table", table="t", steps=[{"op": "rename", "to": "u"}])
    assert guarded.user.action("tables")["tables"] == ["u"]
    guarded.make_table()
    with pytest.raises(fl.FlightError, match="there is no table 't'; the tables are: u"):
        guarded.user.scan()
    guarded.admin.action("drop_table", table="u", keep_seconds=100)
    assert guarded.user.action("tables")["tables"] == []
    assert guarded.user.action("grants")["grants"] == []
    guarded.admin.action("recall_table", table="u")
    assert guarded.user.action("tables")["tables"] == ["u"]


def test_grants_survive_a_restart(tmp_path: Path) -> None:
    def opened() -> Store:
        return Store.open(tmp_path / "data", StoreOptions(maintenance="off"))

    guarded = Guarded(tmp_path, opened())
    guarded.make_table()
    guarded.set_grants({"read": frozenset("a"), "insert": frozenset(ALL)})
    guarded.user.stage("insert_ignore", "k a")
    told = guarded.admin.action("grants")
    guarded.close()
    guarded.store = opened()
    guarded.start()
    assert guarded.admin.action("grants") == told
    for name, wanted in (("scan of a column", "ok"), ("scan of all", "denied"), ("put: insert", "ok")):
        assert outcome(REQUESTS[name], guarded.user) == wanted
    guarded.set_grants({"read": frozenset("a")})
    with pytest.raises(fl.FlightUnauthorizedError, match="insert on table 't'"):
        guarded.user.commit(parts=["p"])  # its file is read again to learn what it needs
    guarded.close()


def test_who_sees_which_grants(guarded: Guarded) -> None:
    guarded.make_table("other")
    guarded.set_grants({"read": frozenset("a")})
    guarded.set_grants({"read": frozenset(ALL)}, "other", user="bob")
    guarded.set_grants({"admin": frozenset()}, "other", role="team")
    seen = {(each["user"], each["role"], each["table"]) for each in guarded.user.action("grants")["grants"]}
    assert seen == {("alice", None, "t"), ("bob", None, "other"), (None, "team", "other")}
    guarded.set_grants({}, "other", role="team")
    (own,) = guarded.user.action("grants")["grants"]
    assert (own["table"], own["privilege"], own["columns"]) == ("t", "read", ["a"])
    assert len(guarded.admin.action("grants")["grants"]) == 2


def test_only_administrators_learn_where_the_processes_are(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "p1 at grpc+unix:///run/nyala/p1.sock cannot be reached"
    down = guarded.store.health().model_copy(update={"status": "degraded", "reason": reason, "processes": {"p1": "u"}})
    monkeypatch.setattr(guarded.store, "health", lambda: down)
    assert guarded.admin.action("health")["reason"] == reason
    told = guarded.user.action("health")
    assert told["status"] == "degraded" and "p1" not in json.dumps(told)
    single = down.model_copy(update={"reason": "the disk is full", "processes": {}})
    monkeypatch.setattr(guarded.store, "health", lambda: single)
    assert guarded.user.action("health")["reason"] == "the disk is full"


def test_only_who_sees_a_table_learns_that_its_maintenance_fails(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [
        FailingWork(name=f"flush {name}", table=name, error="INTERNAL: a bug", failures=1, since=0.0, next_try=1.0)
        for name in ("t", "hidden", "")
    ]
    failing = guarded.store.health().model_copy(update={"status": "degraded", "failing": works})
    monkeypatch.setattr(guarded.store, "health", lambda: failing)
    guarded.set_grants({"read": frozenset("a")})
    assert [work["table"] for work in guarded.user.action("health")["failing"]] == ["t"]
    assert len(guarded.admin.action("health")["failing"]) == 3


def test_grants_by_the_python_client(guarded: Guarded) -> None:
    with nyala.connect(guarded.served.url, token=guarded.admin_token) as db:
        (one,) = db.grant("read", on="t", to="alice", columns=["k", "a"])
        assert (one.user, one.table, one.privilege, one.columns) == ("alice", "t", "read", ["k", "a"])
        assert [str(each.privilege) for each in db.grant(["insert", "delete"], on=db.table("t"), role="team")] == [
            "insert",
            "delete",
        ]
        with nyala.connect(guarded.served.url, token=guarded.user_token) as mine:
            table = mine.table("t")
            table.insert([{"k": 77, "a": 1, "b": "new"}])
            assert sorted(table.scan(columns=["k"]).to_arrow()["k"].to_pylist())[-1] == 77
            assert table.scan(columns=["a"], where="k = 77").to_arrow()["a"].to_pylist() == [1]
            for denied in (lambda: table.scan().to_arrow(), lambda: table.get(77), lambda: mine.drop_table("t")):
                with pytest.raises(nyala.PermissionDeniedError):
                    denied()
        assert db.revoke("read", on="t", to="alice", columns=["k", "a"]) == []
        with pytest.raises(nyala.InvalidArgumentError, match="either a user or a role"):
            db.grant("read", on="t")
        with pytest.raises(nyala.InvalidArgumentError, match="privileges"):
            db.grant("fly", on="t", to="alice")
        with pytest.raises(nyala.InvalidArgumentError, match="has no column 'x'; it has k, a, b"):
            db.grant("read", on="t", to="alice", columns=["x"])
        with pytest.raises(nyala.InvalidArgumentError, match="delete cannot be granted on columns"):
            db.grant("delete", on="t", to="alice", columns=["a"])
        with pytest.raises(nyala.NotFoundError):
            db.grant("read", on="missing", to="alice")


def test_without_authentication_grants_change_nothing(serve: Callable[..., Served]) -> None:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    served = serve(store)
    with nyala.connect(served.url) as db:
        db.create_table("t", SCHEMA, primary_key=["k"]).insert([{"k": 1}])
        db.grant("read", on="t", to="alice", columns=["k"])
        assert db.table("t").scan().to_arrow().num_rows == 1
    store.close()

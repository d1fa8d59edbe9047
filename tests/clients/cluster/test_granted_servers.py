"""Grants where several servers, or several processes, share the tables."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.flight.credentials import Credentials, TokenFile
from nyala.flight_server.security.token_file import create_token
from tests.clients.cluster.processes_server import ProcessesServer
from tests.clients.cluster.test_credentials import Start, start  # noqa: F401
from tests.doubles.certificates import Authority
from tests.doubles.grant_statements import REQUESTS, SCHEMA, Caller, expected, outcome, privileges

Answer = TypeVar("Answer")
ALONE = {"import", "pin", "merge outside", "move"}
"""What several servers do not do."""
USERS = (
    {},
    privileges(read="a"),
    privileges(read="k a b", maintain=""),
    privileges(read="k b", insert="k a b", update="a", delete=""),
)


@pytest.fixture
def token(tmp_path: Path) -> str:
    return create_token(tmp_path / "tokens.json", "root", ("admin",))[0]


def give(db: nyala.Database, has: dict[str, frozenset[str]]) -> None:
    for each in db.grants():
        if each.user == "alice":
            db.revoke(each.privilege, on="t", to="alice")
    for name, columns in has.items():
        db.grant(name, on="t", to="alice", columns=sorted(columns) if columns else None)


def make_table(db: nyala.Database) -> None:
    table = db.create_table(
        "t", SCHEMA, primary_key=["k"], partition_by=[nyala.partition.hash("k", buckets=4)], if_not_exists=True
    )
    table.insert([{"k": number, "a": number, "b": "x"} for number in range(10)])


def whose(db: nyala.Database) -> set[tuple[str | None, str | None]]:
    """Return the operations and users of all commits, of which each server makes some."""
    found = db.commits("t")
    return set(zip(found["operation"].to_pylist(), found["user"].to_pylist(), strict=True))


def check(db: nyala.Database, user: Caller, skipped: set[str]) -> None:
    for has in USERS:
        give(db, has)
        found = {name: outcome(asked, user) for name, asked in REQUESTS.items() if name not in skipped}
        assert found == {name: expected(has, frozenset(), REQUESTS[name]) for name in found}


def test_two_servers(start: Start, token: str, tmp_path: Path) -> None:  # noqa: F811
    """Each enforces them for its own callers, and asks the other as a server."""
    own, _ = create_token(tmp_path / "tokens.json", "server", ("admin",))
    mine, _ = create_token(tmp_path / "tokens.json", "alice")
    (tmp_path / "secret").write_text(own)
    location = start(Credentials.of(TokenFile(tmp_path / "secret")))
    with nyala.connect(location, token=token) as db:
        make_table(db)
        user = Caller(location, mine)
        writes = {name for name, each in REQUESTS.items() if {*each.needs} & {"insert", "update", "delete"}}
        give(db, privileges(read="a"))
        assert user.scan(columns=["a"]).num_rows == 10  # of both servers
        check(db, user, ALONE | writes | {"plan and tickets", "drop", "rename", "alter"})  # these go to the other, too
        with nyala.connect(location, token=mine) as client:
            give(db, privileges(read="k a", insert="k a"))
            table = client.table("t")
            table.insert([{"k": number, "a": 1} for number in range(100, 200)])
            assert table.scan(columns=["a"], where="k >= 100").to_arrow().num_rows == 100
            assert sorted(table.scan(columns=["k"], ordered=True).to_arrow()["k"].to_pylist())[-1] == 199
            for denied in (
                lambda: table.scan(columns=["b"]).to_arrow(),
                lambda: table.get(1),
                lambda: client.drop_table("t"),
            ):
                with pytest.raises(nyala.PermissionDeniedError):
                    denied()
            with client.transaction() as work:
                work.insert(table, [{"k": number, "a": 1} for number in range(200, 220)])
            assert set(client.commits("t")["user"].to_pylist()) == {None, "alice"}
            assert whose(db) == {("insert", "root"), ("insert", "alice"), ("transaction", "alice")}
            give(db, privileges(read="k", delete=""))
            assert table.delete_where("k >= 210").applied == 10
            give(db, {})
            with pytest.raises(nyala.NotFoundError):
                table.scan(columns=["a"]).to_arrow()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[ProcessesServer]:
    with tempfile.TemporaryDirectory() as folder:
        made = ProcessesServer(Path(folder) / "data")
        yield made
        if made.process:
            made.stop()


def test_several_processes(processes: ProcessesServer, token: str, tmp_path: Path) -> None:
    """At the public address; other clients than administrators are not told of the processes."""
    mine, _ = create_token(tmp_path / "tokens.json", "alice")
    options = ("--processes", "2", "--tokens", str(tmp_path / "tokens.json"))
    processes.start(*options)
    with nyala.connect(processes.url, token=token) as db:
        make_table(db)
        user = Caller(processes.url, mine)
        admin = Caller(processes.url, token)
        assert user.action("health")["processes"] == {} and len(admin.action("health")["processes"]) == 2
        assert len(admin.action("placement")["servers"]) == 2
        with pytest.raises(fl.FlightUnauthorizedError, match="no grant to admin on all tables"):
            user.action("placement")
        give(db, privileges(read="a"))
        assert wait(lambda: user.scan(columns=["a"])).num_rows == 10
        db.table("t").alter().rename_column("b", "c").apply()
        tickets = [json.loads(each.ticket.ticket) for each in user.info(columns=["a"]).endpoints]
        db.table("t").alter().rename_column("c", "b").apply()
        for each in tickets:  # kept from before, where it was another's name
            told = {name: found for name, found in each.items() if name != "planned"} | {"columns": ["c"]}
            with pytest.raises(fl.FlightError, match="no column 'c'"):
                user.scan(**told)
        admin.action("revoke", user="alice", table="t", privileges=["read"])
        assert outcome(REQUESTS["scan of a column"], user) == "hidden"  # at once: it was changed here
        admin.action("grant", user="alice", table="t", privileges=["read"], columns=["a"])
        has = privileges(read="a")
        skipped = ALONE | {"drop", "rename"}
        found = {name: outcome(asked, user) for name, asked in REQUESTS.items() if name not in skipped}
        assert found == {name: expected(has, frozenset(), REQUESTS[name]) for name in found}
    assert processes.stop() == 0
    processes.start(*options)
    with nyala.connect(processes.url, token=token) as db, nyala.connect(processes.url, token=mine) as client:
        give(db, privileges(read="k a", insert="k a"))
        # Its names of writers tell the processes, which ask nobody; an administrator goes to them directly.
        wait(lambda: client.table("t").insert([{"k": number, "a": 1} for number in range(100, 120)]))
        assert whose(db) == {("insert", None), ("insert", "alice")}
        give(db, privileges(read="a"))
    user = Caller(processes.url, mine)
    assert outcome(REQUESTS["scan of a column"], user) == "ok" and outcome(REQUESTS["scan of all"], user) == "denied"


def wait(act: Callable[[], Answer]) -> Answer:
    """Try for two seconds: a change made at the processes is known after one."""
    for _ in range(20):
        try:
            return act()
        except (pa.ArrowException, nyala.StoreError):
            time.sleep(0.1)
    return act()


def test_several_processes_behind_tls(processes: ProcessesServer, tmp_path: Path) -> None:
    """The public address has the TLS and asks who calls; the processes are reached by it alone, or by their owner."""
    authority = Authority(tmp_path)
    pair, tokens = authority.server(), tmp_path / "tokens.json"
    root, alice = (create_token(tokens, user)[0] for user in ("root", "alice"))
    processes.start(
        *("--processes", "2", "--tls-cert", str(pair.certificate), "--tls-key", str(pair.key)),
        *("--tokens", str(tokens), "--set", "admins=root", "--set", f"audit_log={tmp_path / 'audit.log'}"),
    )
    assert processes.url.startswith("grpc+tls://")
    with nyala.connect(processes.url, token=root, tls_roots=authority.roots) as db:
        make_table(db)
        db.grant(["read", "insert"], on="t", to="alice", columns=["k", "a"])
    with nyala.connect(processes.url, token=alice, tls_roots=authority.roots) as mine:
        table = wait(lambda: mine.table("t"))
        table.insert([{"k": number, "a": 1} for number in range(100, 120)])
        assert table.scan(columns=["k"], where="k >= 100").to_arrow().num_rows == 20
        with pytest.raises(nyala.PermissionDeniedError, match="column 'b'"):
            table.scan(columns=["b"]).to_arrow()
    wrongs: list[dict[str, Any]] = [{"tls_roots": authority.roots}, {"token": alice}]
    for wrong in wrongs:
        with pytest.raises((nyala.UnauthenticatedError, nyala.UnavailableError)):
            nyala.connect(processes.url, retries=False, **wrong).tables()
    assert processes.stop() == 0
    assert '"user": "alice", "action": "scan", "outcome": "denied"' in (tmp_path / "audit.log").read_text()

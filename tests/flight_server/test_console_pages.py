"""The pages of the console about rows, users, settings, the log, jobs and servers: what they show, and to whom."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.http.console import sample
from nyala.flight_server.http.console.servers import servers_page
from nyala.flight_server.http.console.visit import Surroundings, Visit
from nyala.flight_server.runtime.logs import RecentLog
from nyala.flight_server.security.token_file import create_token, read_tokens
from nyala.flight_server.settings.settings import ServeOptions, read_settings
from nyala.flight_server.stores.fixed_whereabouts import OwnStore
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.store.placement import Placement, ServerIdentity
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.flight_server.http_client import Port, ask
from tests.flight_server.served import SCHEMA, Served
from tests.flight_server.test_console import NASTY, listed, tree, words
from tests.flight_server.test_http import Process

ROWS = "/console/rows?name=homes"
ADMINISTRATORS = ("/console/settings", "/console/log")
OPERATORS = ("/console/jobs", "/console/servers")
SECRETS = ("hunter2", "sesame", "swordfish", "letmein")


@pytest.fixture
def users(port: Callable[..., Port], tmp_path: Path) -> tuple[Port, dict[str, str]]:
    """A server with an administrator and users without rights, and their tokens."""
    tokens = tmp_path / "tokens.json"
    made = {name: create_token(tokens, name)[0] for name in ("alice", "bob", "carol")}
    return port(ServeOptions(tokens=tokens, admins=("alice",), audit_log=tmp_path / "audit.log")), made


def granted(
    one: Port, user: str, *privileges: Privilege, table: str = "homes", columns: list[str] | None = None
) -> None:
    one.served.store.grant(GrantChange(user=user, table=table, privileges=list(privileges), columns=columns))


def test_some_rows_are_shown_as_text(port: Callable[..., Port]) -> None:
    one = port()
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        *map(pa.field, "abt", (pa.string(), pa.binary(), pa.date32())),
    ]
    with nyala.connect(one.served.url) as db:
        table = db.create_table("all", pa.schema(fields), primary_key=["id"])
        table.insert([{"id": 1, "a": NASTY, "b": b"\x00\xff", "t": dt.date(2024, 2, 29)}])
        table.insert([{"id": 2}])
        table.insert([{"id": 3, "a": "x" * 60_000 + "end", "b": b"y" * 60_000}])
        table.insert([{"id": number} for number in range(10, 99)])
    assert words(one.ask(ROWS)[1]).endswith("The table has no rows.")
    status, text = one.ask("/console/rows?name=all")
    rows = {row[0].text: ["".join(cell.itertext()) for cell in row[1:]] for row in next(tree(text).iter("tbody"))}
    assert status == 200 and len(rows) == 20 and "<script" not in text
    assert rows["1"] == [NASTY, "00 ff", "2024-02-29"] and rows["2"] == ["NULL"] * 3
    assert rows["3"] == ["x" * 200 + "...", "79 " * 49 + "79 ...", "NULL"] and len(text) < 30_000


def test_rows_are_those_that_a_scan_would_return(users: tuple[Port, dict[str, str]], tmp_path: Path) -> None:
    one, tokens = users
    with nyala.connect(one.served.url, token=tokens["alice"]) as db:
        db.table("homes").insert([{"id": 1, "city": "hunter2", "price": 12.5}])
    assert "hunter2" in one.ask(ROWS, tokens["alice"])[1]
    assert one.ask(ROWS)[0] == 401 and one.ask(ROWS, tokens["bob"])[0] == 404
    granted(one, "bob", Privilege.INSERT, Privilege.MAINTAIN)
    status, text = one.ask(ROWS, tokens["bob"])
    assert status == 403 and "hunter2" not in text and '"action": "scan", "outcome": "denied"' in audited(tmp_path)
    assert ROWS not in one.ask("/console/table?name=homes", tokens["bob"])[1]
    for columns, seen, hidden in ((["price"], "12.5", "hunter2"), (["id", "city"], "hunter2", "12.5")):
        granted(one, "carol", Privilege.READ, columns=columns)
        text = one.ask(ROWS, tokens["carol"])[1]
        assert seen in text and hidden not in text and f"read {3 - len(columns)} of its 3 columns" in words(text)
        assert ROWS in one.ask("/console/table?name=homes", tokens["carol"])[1]
        one.served.store.revoke(GrantChange(user="carol", table="homes", privileges=[Privilege.READ]))


def audited(folder: Path) -> str:
    return (folder / "audit.log").read_text()


def test_a_scan_that_finds_no_rows_for_long_ends(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    one.served.put("homes", one.served.rows(1000))
    one.served.store.maintain("homes", "flush")
    monkeypatch.setattr(sample, "_SECONDS", -1.0)
    status, text = one.ask(ROWS)
    assert status == 503 and "read the table with a client" in text
    assert one.served.server.admission.running == 0


def test_users_and_grants_are_for_those_who_may_know_them(users: tuple[Port, dict[str, str]], tmp_path: Path) -> None:
    one, tokens = users
    granted(one, "bob", Privilege.READ, columns=["id", "city"])
    granted(one, "bob", Privilege.INSERT)
    granted(one, "carol", Privilege.MAINTAIN, table="*")
    text = one.ask("/console/users", tokens["alice"])[1]
    logins, grants = ([["".join(cell.itertext()) for cell in row] for row in body] for body in tree(text).iter("tbody"))
    entries = {each.user: each for each in read_tokens(tmp_path / "tokens.json").tokens}
    assert {row[0]: (row[2], row[3]) for row in logins} == {
        name: ("yes" if name == "alice" else "", entries[name].id) for name in tokens
    }
    assert grants == [
        ["bob", "user", "homes", "read (id, city), insert"],
        ["carol", "user", "all tables", "maintain"],
    ]
    for name, token in tokens.items():
        assert token not in text and token.split("_", 2)[2] not in text and entries[name].sha256 not in text
    text = one.ask("/console/users", tokens["bob"])[1]
    assert listed(text) == ["bob"] and "carol" not in text and "alice" not in text and entries["bob"].id not in text
    assert listed(one.ask("/console/users?sort=table&order=down", tokens["alice"])[1])  # the users
    assert "all tables" not in words(one.ask("/console/users?q=HOMES", tokens["alice"])[1])


def test_a_server_without_login_says_that_grants_bind_nobody(port: Callable[..., Port]) -> None:
    text = words(port().ask("/console/users")[1])
    assert "everyone may do everything" in text and "Only administrators" not in text


def test_pages_of_the_process_are_for_those_who_run_it(users: tuple[Port, dict[str, str]]) -> None:
    one, tokens = users
    for path in (*ADMINISTRATORS, *OPERATORS):
        assert one.ask(path)[0] == 401
        assert (one.ask(path, tokens["alice"])[0], one.ask(path, tokens["bob"])[0]) == (200, 403)
    granted(one, "bob", Privilege.MAINTAIN, table="*")
    assert [one.ask(path, tokens["bob"])[0] for path in (*ADMINISTRATORS, *OPERATORS)] == [403, 403, 200, 200]


def test_settings_are_shown_without_secrets(port: Callable[..., Port], tmp_path: Path) -> None:
    flags = {
        "data": str(tmp_path),
        "key_command": f"echo {SECRETS[0]}",
        "import_storage": f"s3://user:{SECRETS[1]}@bucket/x?secret_key={SECRETS[2]}",
        "traces": f"https://user:{SECRETS[3]}@collector:4318",
        "advertise": f"grpc://a:{SECRETS[0]}@m1:8815,grpc://m2:8815",
        "scans_max": 7,
    }
    settings = read_settings(flags, ["flush_bytes=1048576"], {"NYALA_PUTS_MAX": "9"}, None)
    one = port(around=Surroundings("a", settings.shown))
    status, text = one.ask("/console/settings")
    rows = {row[0].text: [cell.text or "" for cell in row] for row in next(tree(text).iter("tbody"))}
    assert status == 200 and not any(secret in text for secret in SECRETS)
    assert rows["scans_max"][1:3] == ["7", "--scans-max"] and rows["puts_max"][1:3] == ["9", "NYALA_PUTS_MAX"]
    assert rows["flush_bytes"][1:3] == ["1048576 (1.0 MiB)", "--set"] and rows["calls_max"][1:3] == ["64", ""]
    assert rows["advertise"][1] == "grpc://***@m1:8815, grpc://m2:8815" and rows["key_command"][1] == "***"
    assert set(listed(text)[: len(flags) + 2]) == {*flags, "flush_bytes", "puts_max"}, "first what is set"
    assert set(listed(one.ask("/console/settings?q=scans_max")[1])) == {"scans_max"}


def test_the_last_lines_of_the_log_are_shown(port: Callable[..., Port]) -> None:
    log = RecentLog(lines_max=5, length_max=1000)
    logger = logging.getLogger("nyala.tested")
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        one = port(around=Surroundings(log=log))
        assert "There are no such lines" in words(one.ask("/console/log")[1])
        for number in range(3):
            logger.info("line %d of the past", number)
        logger.warning("%s", NASTY)
        logger.info("%s", "y" * 100_000)
        try:
            raise InvalidArgumentError("what is wrong")
        except InvalidArgumentError:
            logger.exception("it failed")
        logger.info("the last")
    finally:
        logger.removeHandler(log)
        logger.setLevel(logging.NOTSET)
    status, text = one.ask("/console/log")
    rows = [["".join(cell.itertext()) for cell in row] for row in next(tree(text).iter("tbody"))]
    assert status == 200 and [row[1] for row in rows] == ["info", "error", "info", "warning", "info"]
    assert rows[0][3] == "the last" and rows[3][3] == NASTY and rows[4][3] == "line 2 of the past"
    assert "Traceback" in rows[1][3] and "what is wrong" in rows[1][3] and len(text) < 10_000
    assert [row[0] for row in _levels(one, "level=warning")] == ["error", "warning"]
    assert [row[0] for row in _levels(one, "level=error&q=FAILED")] == ["error"]
    assert one.ask("/console/log?level=loud")[0] == 400


def _levels(one: Port, query: str) -> list[list[str]]:
    (body,) = tree(one.ask(f"/console/log?{query}")[1]).iter("tbody")
    return [["".join(cell.itertext()) for cell in row][1:] for row in body]


def test_long_work_and_what_is_kept_for_it_are_shown(port: Callable[..., Port]) -> None:
    one = port()
    one.served.action("maintain", {"table": "homes", "op": "flush"})
    with nyala.connect(one.served.url) as db:
        db.create_table("mansions", SCHEMA, primary_key=["id"])
        db.drop_table("mansions", keep_seconds=1000)
        with db.transaction() as transaction:
            transaction.insert("homes", one.served.rows(3))
            text = words(one.ask("/console/jobs")[1])
            assert "transactions 1" in text
    text = words(one.ask("/console/jobs")[1])
    assert "maintain homes" in text and "transactions 0" in text and "mansions" in text


def test_a_process_that_stands_by_says_for_whom(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    assert "no other process can have it" in words(one.ask("/console/servers")[1])
    holder = Holder(locations=["grpc://m1:8815"], epoch=12)
    told = Whereabouts(name="a", state="standby", holder=holder, end=3456, age_seconds=0.2, lag_seconds=0.3)
    process: Any = OwnStore()
    monkeypatch.setattr(process, "whereabouts", lambda: told.model_copy(update={"trouble": "the cache is full"}))
    one.served.server.process = process
    text = words(one.ask("/console/servers")[1])
    assert "this process replica grpc://m1:8815 12 3,456 200 ms 300 ms" in text
    assert "stands by" in text and "It could not take the store over: the cache is full" in text


def test_a_served_store_shows_its_settings_and_its_log(tmp_path: Path) -> None:
    with Process(tmp_path, "--scans-max", "7", "--set", "key_index_bytes=1048576") as served:
        settings, castles, log = (
            ask(served.http + path) for path in ("/console/settings", "/console/table?name=castles", "/console/log")
        )
    assert words(settings[1]).count("--set") == 1 and "scans_max 7 --scans-max" in words(settings[1])
    assert castles[0] == 404 and "NOT_FOUND" in words(log[1])


def test_servers_of_a_placement_are_asked_at_all_of_their_locations(serve: Callable[..., Served]) -> None:
    other = serve(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    other.server.process = OwnStore(name="b")
    placement = Placement(servers={"a": ("grpc://127.0.0.1:1",), "b": (other.url, "grpc://127.0.0.1:2")})
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", placement=placement, server="a"))
    gateway = Gateway(store, ServerIdentity(placement, "a"))
    one = serve(gateway)
    one.server.process = OwnStore(name="a")
    text = servers_page(Visit(one.server, None)).write().decode()
    rows = [["".join(cell.itertext()) for cell in row][:4] for row in next(tree(text).iter("tbody"))]
    assert rows == [
        ["a", "this process", "holder", "here"],
        ["b", other.url, "holder", "here"],
        ["b", "grpc://127.0.0.1:2", "away", ""],
    ]
    gateway.close()
    other.store.close()

"""Who may call: tokens, on every verb, in running streams, and what is never shown."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.flight.credentials import Credentials, TokenFile
from nyala.flight_server.requests import calls
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token, read_tokens, revoke_tokens
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import (
    InvalidArgumentError,
    NotFoundError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from nyala.schemas.store.description import Health
from nyala.schemas.table.table import TableDefinition
from tests.doubles.raw_streams import RawStreams
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served, code_of

ROW = {"id": 1, "city": "Oslo", "price": 2.0}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def token(tokens: Path) -> str:
    return create_token(tokens, "alice", ("writer",))[0]


@pytest.fixture
def guarded(serve: Callable[..., Served], tokens: Path, token: str) -> Served:
    store = FakeStore()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    return serve(store, None, Security(ServeOptions(tokens=tokens, admins=("alice", "bob", "carol"))))


def shown(token: str, scheme: str = "Bearer") -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"authorization", f"{scheme} {token}".encode())])


def ask_once(client: fl.FlightClient, options: fl.FlightCallOptions) -> None:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'), options)
    writer.begin(pa.schema([]))
    writer.write_metadata(b'{"get":"homes"}\n{"key":[1]}\n')
    assert b'"row"' in reader.read_chunk().app_metadata.to_pybytes()
    writer.close()


def put(client: fl.FlightClient, options: fl.FlightCallOptions) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA, options)
    with writer:
        writer.write_batch(pa.RecordBatch.from_pylist([ROW], SCHEMA))


VERBS: dict[str, Callable[[fl.FlightClient, fl.FlightCallOptions], Any]] = {
    "list_flights": lambda client, options: list(client.list_flights(options=options)),
    "get_flight_info": lambda client, options: client.get_flight_info(fl.FlightDescriptor.for_path("homes"), options),
    "get_schema": lambda client, options: client.get_schema(fl.FlightDescriptor.for_path("homes"), options),
    "do_get": lambda client, options: client.do_get(fl.Ticket(b'{"table":"homes"}'), options).read_all(),
    "do_put": put,
    "do_exchange": ask_once,
    "list_actions": lambda client, options: client.list_actions(options),
    "do_action": lambda client, options: list(client.do_action(fl.Action("tables", b""), options)),
    "unknown action": lambda client, options: list(client.do_action(fl.Action("x", b""), options)),
}
NOBODY = fl.FlightCallOptions()


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_asks_who_calls(guarded: Served, token: str, verb: str) -> None:
    call = VERBS[verb]
    for wrong in (NOBODY, shown(token[:-1] + ("A" if token[-1] != "A" else "B"))):
        with pytest.raises((fl.FlightUnauthenticatedError, pa.ArrowInvalid)) as caught:
            call(guarded.client, wrong)
        assert "UNAUTHENTICATED: " in str(caught.value) and token not in str(caught.value)
        if verb != "get_schema":  # pyarrow keeps its text only
            assert code_of(caught.value) == "UNAUTHENTICATED"
    assert guarded.store.scan  # nothing of it broke the server
    if verb == "unknown action":
        with pytest.raises(fl.FlightServerError, match="unknown action"):
            call(guarded.client, shown(token))
    else:
        call(guarded.client, shown(token))
        call(guarded.client, shown(token, "bEARER"))


@pytest.mark.parametrize("method", ["DoPut", "DoExchange"])
@pytest.mark.parametrize("shown", [{}, {"authorization": "Bearer nyala_" + "0" * 12 + "_" + "A" * 43}])
def test_a_stream_is_rejected_before_its_first_message(guarded: Served, method: str, shown: dict[str, str]) -> None:
    """Otherwise anyone could occupy threads with streams that send nothing. pyarrow's client always sends a message."""
    streams = RawStreams(guarded.server.port, method, 1, shown)
    streams.wait_for(lambda each: b"UNAUTHENTICATED: " in each.received)
    streams.close()


def test_a_put_is_rejected_before_its_handler(guarded: Served, token: str) -> None:
    handled: list[str] = []
    check = guarded.server.check_caller
    guarded.server.check_caller = lambda context, verb: (handled.append(verb), check(context, verb))[1]
    with pytest.raises(fl.FlightUnauthenticatedError):
        put(guarded.client, NOBODY)
    assert handled == []
    put(guarded.client, shown(token))
    assert handled == ["do_put"]


def test_the_verbs_are_all_there_are() -> None:
    of_flight = {"list_flights", "get_flight_info", "get_schema", "do_get", "do_put", "list_actions", "do_action"}
    offered = {name for name in vars(fl.FlightServerBase) if name.startswith(("do_", "get_", "list_"))}
    assert offered == of_flight | {"do_exchange"} <= {*VERBS}


BAD = {
    "nothing": "",
    "a word": "nyala",
    "an id alone": "nyala_{id}_",
    "another secret": "nyala_{id}_" + "A" * 43,
    "another id": "nyala_" + "0" * 12 + "_{secret}",
    "more after it": "{token}x",
    "more before it": "x{token}",
    "in capitals": "{upper}",
    "its hash": "{hash}",
    "its hash as the secret": "nyala_{id}_{hash}",
    "twice": "{token} {token}",
    "a null byte": "{token}%00",
    "a long one": "{token}" + "A" * 7000,
    "a JWT without a signature": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.",
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_token_is_rejected(guarded: Served, tokens: Path, token: str, case: str) -> None:
    (entry,) = read_tokens(tokens).tokens
    parts = {"token": token, "id": entry.id, "secret": token[-43:], "hash": entry.sha256, "upper": token.upper()}
    bad = BAD[case].format(**parts)
    with pytest.raises(fl.FlightUnauthenticatedError):
        VERBS["do_action"](guarded.client, shown(bad))


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_another_scheme_is_rejected(guarded: Served, token: str, scheme: str) -> None:
    with pytest.raises(fl.FlightUnauthenticatedError):
        VERBS["do_action"](guarded.client, shown(token, scheme))


def test_two_headers_are_rejected(guarded: Served, token: str) -> None:
    twice = fl.FlightCallOptions(
        headers=[(b"authorization", b"Bearer x"), (b"authorization", b"Bearer " + token.encode())]
    )
    with pytest.raises(fl.FlightUnauthenticatedError):
        VERBS["do_action"](guarded.client, twice)


def test_anyone_learns_whether_the_server_works_and_nothing_else(guarded: Served, token: str) -> None:
    with nyala.connect(guarded.url) as db:
        assert (db.health().status, db.health().version) == ("ok", "")
        with pytest.raises(UnauthenticatedError, match="give connect"):
            db.tables()
    with pytest.raises(UnauthenticatedError, match="not valid here"):
        nyala.connect(guarded.url, token=f"{token}x")
    assert guarded.action("health") == {"status": "ok"}


def test_an_expired_token_is_rejected(guarded: Served, tokens: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    late, _ = create_token(tokens, "bob", expires=now - dt.timedelta(seconds=1))
    with pytest.raises(UnauthenticatedError, match="has expired"):
        nyala.connect(guarded.url, token=late)


def test_a_new_token_is_known_at_once(guarded: Served, tokens: Path) -> None:
    for user in ("bob", "carol"):
        token, _ = create_token(tokens, user)
        with nyala.connect(guarded.url, token=token) as db:
            assert db.tables() == ["homes"]


def test_a_wrong_file_leaves_the_old_tokens_in_force(
    guarded: Served, tokens: Path, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokens.write_text("{")
    guarded.server._security.load_again()  # pyright: ignore[reportOptionalMemberAccess]
    assert "the old tokens stay in force" in caplog.text
    with nyala.connect(guarded.url, token=token) as db:
        assert db.tables() == ["homes"]


def session(client: fl.FlightClient, token: str) -> Callable[[], Any]:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'), shown(token))
    writer.begin(pa.schema([]))

    def ask() -> Any:
        writer.write_metadata(b'{"get":"homes"}\n{"key":[1]}\n')
        return reader.read_chunk().app_metadata.to_pybytes()

    return ask


def test_a_session_ends_with_its_token(guarded: Served, tokens: Path, token: str) -> None:
    other, _ = create_token(tokens, "bob", expires=dt.datetime.now(dt.UTC) + dt.timedelta(seconds=6))
    expiring, revoked = session(guarded.client, other), session(guarded.client, token)
    assert b'"row"' in revoked() and b'"row"' in expiring()
    revoke_tokens(tokens, user="alice")
    for ask in (revoked, expiring):
        with pytest.raises(fl.FlightUnauthenticatedError, match="was running"):
            for _ in range(300):
                ask()
                time.sleep(0.1)


def test_a_session_looks_at_its_token_itself(
    guarded: Served, tokens: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls.Call, "end", lambda *_: None)  # as with a gRPC that cannot end calls
    ask = session(guarded.client, token)
    assert b'"row"' in ask()
    revoke_tokens(tokens, user="alice")
    guarded.server._security.load_again()  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(fl.FlightUnauthenticatedError, match="was revoked while the call was running"):
        ask()


def test_a_stream_that_waits_ends_with_its_token(guarded: Served, tokens: Path, token: str) -> None:
    writer, reader = guarded.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA, shown(token))
    writer.write_with_metadata(pa.RecordBatch.from_pylist([ROW], SCHEMA), b'{"seq":0}')
    assert reader.read() is not None
    revoke_tokens(tokens, user="alice")
    while reader.read() is not None:
        pass
    with pytest.raises(fl.FlightUnauthenticatedError, match="was revoked while the call was running"):
        writer.close()


def test_a_client_goes_on_with_the_next_token(guarded: Served, tokens: Path, token: str, tmp_path: Path) -> None:
    current = [token]
    file = tmp_path / "secret"
    file.write_text(token + "\n")
    with (
        nyala.connect(guarded.url, token=lambda: current[0]) as db,
        nyala.connect(guarded.url, token=TokenFile(file)) as by_file,
    ):
        db.table("homes").insert([ROW])
        assert db.table("homes").get(1) == by_file.table("homes").get(1) == ROW
        current[0], _ = create_token(tokens, "alice")
        file.write_text(current[0])
        revoke_tokens(tokens, frozenset({token.split("_")[1]}))
        time.sleep(2)  # its sessions end meanwhile
        assert db.table("homes").get(1) == by_file.table("homes").get(1) == ROW
        assert db.table("homes").scan().to_arrow().num_rows == 1


def test_a_certificate_is_not_given_in_vain(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="would present no client certificate"):
        nyala.connect("grpc://192.0.2.1:8815", client_cert=tmp_path / "me.pem")
    Credentials.of(client_cert=tmp_path / "me.pem").connect("grpc://localhost:1", []).close()


def test_anyone_is_not_told_why_a_server_does_not_work(guarded: Served, token: str) -> None:
    def broken() -> Health:
        raise UnavailableError("the server p3 is away")

    guarded.store.health = broken
    ask = fl.Action("health", b"")
    with pytest.raises(fl.FlightUnavailableError, match="the server is not healthy") as caught:
        list(guarded.client.do_action(ask))
    assert code_of(caught.value) == "UNAVAILABLE" and "p3" not in str(caught.value)
    with pytest.raises(fl.FlightUnavailableError, match="p3 is away"):
        list(guarded.client.do_action(ask, shown(token)))


def test_no_secret_is_shown(guarded: Served, tokens: Path, token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    credentials = Credentials.of(token)
    assert token not in repr(credentials) and token not in str(credentials)
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    with nyala.connect(guarded.url, token=token) as db:
        assert token not in repr(db) and token not in repr(db._store) and token not in repr(vars(db._store))
    for bad in (f"{token} x", f"{token}\n", f"{token}\u00e9", token * 200):
        with pytest.raises(StoreError) as caught:
            nyala.connect(guarded.url, token=bad)
        assert token not in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="would send the token unencrypted") as caught:
        nyala.connect("grpc://192.0.2.1:8815", token=token)
    assert token not in str(caught.value)
    assert token[-43:] not in caplog.text and token[-43:] not in tokens.read_text()


def test_the_file_is_private_and_must_stay_so(tokens: Path, token: str) -> None:
    assert tokens.stat().st_mode & 0o777 == 0o600
    os.chmod(tokens, 0o660)
    with pytest.raises(InvalidArgumentError, match="other users can write"):
        Security(ServeOptions(tokens=tokens))
    with pytest.raises(NotFoundError, match="nyala token create"):
        Security(ServeOptions(tokens=tokens.with_name("none")))


def test_a_served_file_belongs_to_root_or_the_server(tokens: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_to_another(tokens, monkeypatch)
    with pytest.raises(InvalidArgumentError, match="belongs to the user"):
        Security(ServeOptions(tokens=tokens))
    assert len(read_tokens(tokens).tokens) == 1  # as `nyala token` reads it


def give_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        os.chown(path, 12345, 12346)


def test_a_changed_file_keeps_its_owner_and_mode(tokens: Path, token: str) -> None:
    """A server of another user must be able to read it, or it would keep the old tokens."""
    os.chmod(tokens, 0o640)
    if os.geteuid() == 0:
        os.chown(tokens, 12345, 12346)
    before = tokens.stat()
    create_token(tokens, "bob")
    revoke_tokens(tokens, user="alice")
    after = tokens.stat()
    assert tokens.with_name(tokens.name + ".lock").stat().st_uid == before.st_uid
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert [each.user for each in read_tokens(tokens).tokens] == ["bob"]


def test_a_file_that_cannot_be_kept_alike_is_left_alone(
    tokens: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(InvalidArgumentError, match="cannot be written: Operation not permitted"):
        revoke_tokens(tokens, user="alice")
    assert [each.user for each in read_tokens(tokens).tokens] == ["alice"]
    assert {each.name for each in tokens.parent.iterdir()} == {tokens.name, tokens.name + ".lock"}


def test_a_revocation_is_durable(tokens: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is synced after the file has its name."""
    left: list[int] = []
    sync = os.fsync

    def recorded(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            left.append(len(read_tokens(tokens).tokens))
        sync(number)

    monkeypatch.setattr(os, "fsync", recorded)
    revoke_tokens(tokens, user="alice")
    assert left == [0]


@pytest.mark.parametrize("user", ["", " alice", "a\nb", "a" * 129, "a\x00"])
def test_a_user_has_a_plain_name(tokens: Path, user: str) -> None:
    with pytest.raises(InvalidArgumentError):
        create_token(tokens, user)


def test_tokens_made_at_once_are_all_kept(tokens: Path) -> None:
    command = [sys.executable, "-m", "nyala", "token", "create", "--tokens", str(tokens)]
    running = [subprocess.Popen([*command, f"user-{number}"], stdout=subprocess.PIPE) for number in range(4)]
    assert all(each.wait() == 0 for each in running)
    assert {each.user for each in read_tokens(tokens).tokens} == {f"user-{number}" for number in range(4)}


def nyala_token(*arguments: str, tokens: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nyala", "token", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NYALA_TOKENS": str(tokens)})


def test_the_commands(tokens: Path, guarded: Served) -> None:
    made = nyala_token("create", "bob", "--role", "reader", "--expires-in", "30d", "--json", tokens=tokens)
    said = json.loads(made.stdout)
    assert (said["user"], said["roles"]) == ("bob", ["reader"])
    environment = os.environ | {"NYALA_TOKEN": said["token"], "NYALA_URL": guarded.url}
    command = [sys.executable, "-m", "nyala"]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, env=environment)
    assert listed.stdout == "homes\n"
    known = nyala_token("list", tokens=tokens)
    assert (
        said["id"] in known.stdout
        and said["token"] not in known.stdout + nyala_token("list", "--json", tokens=tokens).stdout
    )
    assert nyala_token("revoke", said["id"], tokens=tokens).stdout == f"revoked the token {said['id']} of bob\n"
    again = nyala_token("revoke", said["id"], tokens=tokens)
    assert again.returncode == 4 and "has no token" in again.stderr
    guarded.server._security.load_again()  # pyright: ignore[reportOptionalMemberAccess]
    refused = subprocess.run([*command, "list"], capture_output=True, text=True, env=environment)
    assert refused.returncode == 8 and refused.stderr.startswith("UNAUTHENTICATED: ")
    assert said["token"] not in refused.stderr

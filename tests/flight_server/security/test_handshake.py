"""Handshakes: a user and a token as the password, for a token that soon expires."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.security.audit import AuditLog
from nyala.flight_server.security.handshake import Handshakes
from nyala.flight_server.security.identity import Identity
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token, revoke_tokens
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import Served


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def token(tokens: Path) -> str:
    return create_token(tokens, "alice")[0]


@pytest.fixture
def served(serve: Callable[..., Served], tokens: Path, token: str, tmp_path: Path) -> Served:
    options = ServeOptions(
        tokens=tokens, handshake_seconds=60, admins=("alice", "bob"), audit_log=tmp_path / "audit.log"
    )
    return serve(FakeStore(), None, Security(options))


def tables(served: Served, header: tuple[bytes, bytes]) -> Any:
    return list(served.client.do_action(fl.Action("tables", b""), fl.FlightCallOptions(headers=[header])))


def entries(tmp_path: Path) -> list[tuple[str, str, str, str | None]]:
    told = map(json.loads, (tmp_path / "audit.log").read_text().splitlines())
    return [(each["user"], each["action"], each["outcome"], each.get("id")) for each in told]


def test_a_handshake_gives_a_token_of_the_user(served: Served, token: str, tmp_path: Path) -> None:
    name, value = served.client.authenticate_basic_token("alice", token)
    assert name == b"authorization" and value.startswith(b"Bearer nyala_handshake_") and token.encode() not in value
    assert tables(served, (name, value))
    assert served.client.authenticate_basic_token("alice", token) == (name, value), "the same again, while it is new"
    assert entries(tmp_path) == [("alice", "handshake", "ok", None)], "it is noted when a token is given"
    assert token not in (tmp_path / "audit.log").read_text()


def test_it_ends_with_the_token_that_was_shown(served: Served, tokens: Path, token: str) -> None:
    given = served.client.authenticate_basic_token("alice", token)
    revoke_tokens(tokens, user="alice")
    served.server._security.load_again()  # type: ignore[union-attr]
    with pytest.raises(fl.FlightUnauthenticatedError):
        tables(served, given)
    with pytest.raises(fl.FlightUnauthenticatedError):
        served.client.authenticate_basic_token("alice", token)


@pytest.mark.parametrize("user", ["bob", "", "Alice"])
def test_the_user_must_be_that_of_the_token(served: Served, token: str, user: str, tmp_path: Path) -> None:
    with pytest.raises(fl.FlightUnauthenticatedError, match="is not valid here") as caught:
        served.client.authenticate_basic_token(user, token)
    assert token not in str(caught.value)
    assert entries(tmp_path) == [("", "handshake", "UNAUTHENTICATED", user)]


def test_a_token_of_a_handshake_is_no_password(served: Served, token: str) -> None:
    _, value = served.client.authenticate_basic_token("alice", token)
    with pytest.raises(fl.FlightUnauthenticatedError):
        served.client.authenticate_basic_token("alice", value.removeprefix(b"Bearer ").decode())


def test_other_calls_take_no_password(served: Served, token: str) -> None:
    basic = base64.b64encode(f"alice:{token}".encode())
    with pytest.raises(fl.FlightUnauthenticatedError):
        tables(served, (b"authorization", b"Basic " + basic))
    with pytest.raises(fl.FlightUnauthenticatedError):
        tables(served, (b"authorization", b"Bearer nyala_handshake_" + b"A" * 43))


def test_without_the_option_there_is_none(serve: Callable[..., Served], tokens: Path, token: str) -> None:
    bare = serve(FakeStore(), None, Security(ServeOptions(tokens=tokens)))
    with pytest.raises(pa.ArrowNotImplementedError):
        bare.client.authenticate_basic_token("alice", token)


@pytest.mark.parametrize("options", [{}, {"tls_client_ca": Path("ca.crt")}])
def test_what_handshakes_need(options: dict[str, Any], tokens: Path, token: str) -> None:
    given = {"tokens": tokens} if options else {"admins": ("alice",), "tls_client_ca": Path("ca.crt")}
    with pytest.raises(InvalidArgumentError, match=r"handshake_seconds|TLS needs"):
        Security(ServeOptions(handshake_seconds=60, **given, **options))


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


class Passwords:
    """Passwords of the form NAME-right."""

    expires = math.inf

    def __call__(self, password: str) -> Identity:
        user, _, rest = password.partition("-")
        if rest[:5] != "right":
            raise UnauthenticatedError("no")
        return Identity(user, expires=self.expires)


def basic(user: str, password: str, scheme: str = "Basic") -> str:
    return f"{scheme} {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_failures_are_limited_by_user_and_lock_nobody_out() -> None:
    clock = Clock()
    handshakes = Handshakes(60, Passwords(), None, clock)
    for _ in range(10):
        with pytest.raises(UnauthenticatedError):
            handshakes.begin(basic("alice", "wrong"))
    for password in ("guess", "bob-right"):
        with pytest.raises(UnavailableError) as caught:
            handshakes.begin(basic("alice", password))
        assert caught.value.retry_after_seconds == 60
    assert handshakes.begin(basic("alice", "alice-right")), "anyone can name her"
    assert handshakes.begin(basic("bob", "bob-right"))
    clock.now += 60
    with pytest.raises(UnauthenticatedError):
        handshakes.begin(basic("alice", "wrong"))


def test_failures_of_many_names_are_limited_together() -> None:
    handshakes = Handshakes(60, Passwords(), None, Clock())
    for number in range(1_000):
        with pytest.raises(UnauthenticatedError):
            handshakes.begin(basic(f"user {number}", "wrong"))
    with pytest.raises(UnavailableError):
        handshakes.begin(basic("bob", "wrong"))
    assert len(handshakes._failures) == 1_000
    assert handshakes.begin(basic("bob", "bob-right"))


@pytest.mark.parametrize("left", [5, 29, 45, 60])
def test_a_password_that_ends_soon_gets_one_token(monkeypatch: pytest.MonkeyPatch, left: float) -> None:
    clock, check = Clock(), Passwords()
    monkeypatch.setattr("time.time", clock)
    check.expires = clock.now + left
    handshakes = Handshakes(60, check, None, clock)
    given = set()
    for _ in range(5):
        given.add(handshakes.begin(basic("alice", "alice-right")))
        clock.now += 0.9 * left / 5
    (token,) = given
    found = handshakes.identity(token)
    assert found is not None and found.expires == check.expires and len(handshakes._of_tokens) == 1


def test_at_most_two_tokens_are_kept_of_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    handshakes = Handshakes(60, Passwords(), None, clock)
    monkeypatch.setattr(handshakes, "_given_again", lambda *_: None)
    given = [handshakes.begin(basic("alice", "alice-right")) for _ in range(5)]
    assert [handshakes.identity(token) is not None for token in given] == [False] * 3 + [True] * 2


def test_handshakes_push_nothing_out_of_the_audit_log(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.log", 1 << 20, 3)
    handshakes = Handshakes(60, Passwords(), audit, Clock())
    for number in range(100):  # as many JWTs of one user
        handshakes.begin(basic("alice", f"alice-right {number}"))
    handshakes.begin(basic("bob", "bob-right"))
    audit.close()
    assert entries(tmp_path) == [(user, "handshake", "ok", None) for user in ("alice", "bob", "alice")]
    told = [json.loads(line).get("repeated") for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert told == [None, None, 99]


def test_a_new_token_is_given_in_the_second_half_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    handshakes = Handshakes(60, Passwords(), None, clock)
    first = handshakes.begin(basic("alice", "alice-right"))
    clock.now += 29
    assert handshakes.begin(basic("alice", "alice-right")) == first
    clock.now += 2
    second = handshakes.begin(basic("alice", "alice-right"))
    assert second != first
    assert all(found and found.is_valid for found in map(handshakes.identity, (first, second)))
    clock.now += 40
    found = handshakes.identity(first)
    assert found is not None and not found.is_valid and "has expired" in found.ended
    handshakes.begin(basic("alice", "alice-right"))
    assert handshakes.identity(first) is None


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic ", "Basic !", "Basic YQ", basic("a", "b", "Bearer"), "Basic /w=="]
)
def test_what_is_no_header_of_a_handshake(header: str) -> None:
    with pytest.raises(UnauthenticatedError, match="authorization: Basic"):
        Handshakes(60, Passwords(), None).begin(header)

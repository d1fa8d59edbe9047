"""Calls that arrive by the thousand: what they cost is decided before they get a thread."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.clients.flight.errors import store_error
from nyala.flight_server.security import entrance, openings
from nyala.flight_server.security.entrance import Entrance
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token, revoke_tokens
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import NOT_BEGUN, UnavailableError
from nyala.schemas.table.table import TableDefinition
from tests.doubles.raw_streams import RawStreams
from tests.doubles.waiting import until
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served

FEW = 64
"""Threads that a flood may take: strangers who are let in in two tenths of a second, and some that gRPC keeps."""
MANY = 300
"""Of 400 strangers at once, those that are rejected at least, however slow the machine is."""


class Door:
    """A server with authentication, and the tokens of alice and bob."""

    def __init__(self, folder: Path, serve: Callable[..., Served], config: ServerConfig | None = None) -> None:
        self.file = folder / "tokens.json"
        self.tokens = {user: create_token(self.file, user, ("admin",))[0] for user in ("alice", "bob")}
        store = FakeStore()
        store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        self.served = serve(store, config, Security(ServeOptions(tokens=self.file, handshake_seconds=60)))
        self.port = self.served.server.port

    @property
    def entrance(self) -> Entrance:
        authentication = self.served.server._authentication
        assert authentication is not None
        return authentication.entrance

    def of(self, user: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[user]}"}

    def ask(self, user: str = "alice", client: fl.FlightClient | None = None) -> Any:
        headers = [(b"authorization", self.of(user)["authorization"].encode())]
        options = fl.FlightCallOptions(headers=headers, timeout=20)
        (result,) = (client or self.served.client).do_action(fl.Action("now", b""), options)
        return json.loads(result.body.to_pybytes())


@pytest.fixture
def door(tmp_path: Path, serve: Callable[..., Served]) -> Door:
    return Door(tmp_path, serve)


@pytest.fixture
def opened() -> Iterator[Callable[..., RawStreams]]:
    """Open raw streams, which are closed at the end."""
    made: list[RawStreams] = []

    def start(*arguments: Any) -> RawStreams:
        made.append(RawStreams(*arguments))
        return made[-1]

    yield start
    for each in made:
        with suppress(OSError):
            each.close()


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize("method", ["DoPut", "DoExchange", "Handshake", "DoGet"])
@pytest.mark.parametrize("shown", [None, "Bearer nyala_" + "0" * 12 + "_" + "A" * 43])
def test_streams_of_strangers_are_rejected_without_a_thread(
    door: Door, opened: Callable[..., RawStreams], method: str, shown: str | None
) -> None:
    door.ask()
    before = threads()
    strangers = opened(door.port, method, 400, {} if shown is None else {"authorization": shown})
    most = threads()
    deadline = time.monotonic() + 20
    while len(strangers.ended) < (MANY if method == "DoGet" else 400):  # those that were let in send no message
        assert time.monotonic() < deadline, len(strangers.ended)
        most = max(most, threads())
        assert door.ask()["timestamp"] > 0
    assert most <= before + FEW
    assert door.entrance.rejected > 300
    text = b"UNAUTHENTICATED: " if shown is None else f"UNAVAILABLE: {NOT_BEGUN}".encode()
    assert text in strangers.received


def test_a_stranger_who_is_alone_is_told_all(door: Door) -> None:
    for _ in range(10):
        with pytest.raises(fl.FlightUnauthenticatedError) as caught:
            list(door.served.client.do_action(fl.Action("now", b"")))
        assert json.loads(caught.value.extra_info)["code"] == "UNAUTHENTICATED"
    assert door.entrance.rejected == 0


def test_a_token_that_was_not_used_before_gets_in_beside_a_crowd(door: Door, opened: Callable[..., RawStreams]) -> None:
    crowd = opened(door.port, "DoGet", 400)
    door.ask("bob")
    crowd.wait_for(lambda streams: len(streams.ended) >= MANY)
    garbage = {"authorization": "Bearer nyala_" + "0" * 12 + "_" + "A" * 43}
    opened(door.port, "DoGet", 400, garbage).wait_for(lambda streams: len(streams.ended) >= MANY)
    until(lambda: _gets_in(door, "alice"))
    assert all(door.entrance.knows(door.of(user)["authorization"]) for user in ("alice", "bob"))


def _gets_in(door: Door, user: str) -> bool:
    try:
        door.ask(user)
    except fl.FlightUnavailableError as error:
        said = store_error(error)
        assert isinstance(said, UnavailableError) and said.retry_after_seconds and not said.answer_is_lost
        return False
    return True


def test_one_connections_crowd_leaves_a_place_to_another_connection(
    door: Door, opened: Callable[..., RawStreams]
) -> None:
    crowd = opened(door.port, "DoAction", 400)
    for _ in range(20):
        crowd.open("DoAction", 20, {})
        assert door.served.action("health")["status"] == "ok"
        time.sleep(0.1)
    assert door.entrance.rejected > 400


def test_health_is_answered_to_few_strangers_at_once(door: Door, opened: Callable[..., RawStreams]) -> None:
    crowd = opened(door.port, "DoAction", 400)
    crowd.wait_for(lambda streams: len(streams.ended) >= MANY)
    assert f"UNAVAILABLE: {NOT_BEGUN}".encode() in crowd.received
    assert b"UNAUTHENTICATED" not in crowd.received
    door.ask()


def test_a_known_callers_crowd_is_let_in_bit_by_bit_and_all_of_it(door: Door) -> None:
    door.ask()
    clients = [fl.connect(door.served.url, generic_options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    with ThreadPoolExecutor(80) as pool:
        answers = list(pool.map(lambda number: door.ask("alice", clients[number % 4]), range(800)))
    assert len(answers) == 800


@pytest.mark.parametrize("is_gone", [False, True])
def test_calls_that_never_start_hold_up_nobody(door: Door, opened: Callable[..., RawStreams], is_gone: bool) -> None:
    """Those of a client that is gone, and of one that sends no message where there is no call without it."""
    for user in ("alice", "bob"):
        door.ask(user)
    crowd = opened(door.port, "DoAction", 400, door.of("alice"))
    if is_gone:
        crowd.close()
    began = time.monotonic()
    for _ in range(10):
        door.ask("bob")
    assert time.monotonic() - began < 5
    until(lambda: not door.entrance._waiting)


def test_a_revoked_token_is_a_strangers(door: Door) -> None:
    door.ask()
    assert door.entrance.knows(door.of("alice")["authorization"])
    revoke_tokens(door.file, user="alice")
    with pytest.raises(fl.FlightUnauthenticatedError):
        while True:
            door.ask()
    assert not door.entrance.knows(door.of("alice")["authorization"])
    door.ask("bob")


def test_a_user_has_few_streams_without_a_message(
    door: Door, opened: Callable[..., RawStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openings, "_OF_USER_MAX", 3)
    door.ask()
    silent = opened(door.port, "DoPut", 10, door.of("alice"))
    silent.wait_for(lambda streams: len(streams.ended) == 7)
    assert b"3 streams of the user 'alice' have sent no message yet" in silent.received
    bobs = opened(door.port, "DoExchange", 3, door.of("bob"))
    silent.close()
    until(lambda: _puts(door, "alice"))
    assert not bobs.ended


def test_silent_streams_of_certificates_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "_OF_USER_MAX", 2)
    counted = openings.Openings()
    silent = [counted.begin(""), counted.begin("")]
    with pytest.raises(UnavailableError, match="2 streams of all users of client certificates have sent no message"):
        counted.begin("")
    counted.begin("alice")  # a token tells who opens it
    silent[0].end()
    counted.begin("")


@pytest.mark.parametrize("method", ["DoPut", "DoExchange"])
def test_silent_streams_of_a_user_take_no_more_threads_than_it_may_have(
    door: Door, opened: Callable[..., RawStreams], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(openings, "_OF_USER_MAX", 40)
    for user in ("alice", "bob"):
        door.ask(user)
    before = threads()
    crowds = [opened(door.port, method, 300, door.of("alice")) for _ in range(4)]
    most = threads()
    deadline = time.monotonic() + 20
    while sum(len(each.ended) for each in crowds) < 4 * 300 - 40:
        assert time.monotonic() < deadline, [len(each.ended) for each in crowds]
        most = max(most, threads())
        assert _puts(door, "bob")
    assert most <= before + 40 + FEW
    assert entrance._SILENT.encode() in b"".join(each.received for each in crowds)
    for each in crowds:
        each.close()
    until(lambda: _puts(door, "alice"))


def test_streams_of_clients_that_are_gone_hold_up_nobody(door: Door, opened: Callable[..., RawStreams]) -> None:
    for user in ("alice", "bob"):
        door.ask(user)
    for _ in range(4):
        opened(door.port, "DoPut", 100, door.of("alice")).close()
    began = time.monotonic()
    for _ in range(10):
        assert _puts(door, "bob")
    assert time.monotonic() - began < 5
    until(lambda: not door.entrance._waiting)


def test_a_handshake_that_is_not_valid_makes_no_caller_a_stranger(
    door: Door, opened: Callable[..., RawStreams]
) -> None:
    for user in ("alice", "bob"):
        door.ask(user)
    opened(door.port, "Handshake", 3, door.of("alice")).wait_for(lambda each: len(each.ended) == 3)
    assert all(door.entrance.knows(door.of(user)["authorization"]) for user in ("alice", "bob"))


def _puts(door: Door, user: str) -> bool:
    options = fl.FlightCallOptions(headers=[(b"authorization", door.of(user)["authorization"].encode())])
    try:
        writer, _ = door.served.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA, options)
        with writer:
            writer.write_batch(door.served.rows(1))
    except fl.FlightUnavailableError:
        return False
    return True


def test_further_streams_of_a_connection_are_reset(
    serve: Callable[..., Served], opened: Callable[..., RawStreams]
) -> None:
    served = serve(FakeStore(), ServerConfig(connection_streams_max=20))
    streams = opened(served.server.port, "DoPut", 50)
    streams.wait_for(lambda each: len(each.reset) == 30)
    assert served.action("health")["status"] == "ok"


def test_a_call_without_a_thread_is_rejected_and_may_come_again(
    serve: Callable[..., Served], opened: Callable[..., RawStreams]
) -> None:
    served = serve(FakeStore(), ServerConfig(threads_max=12))
    silent = opened(served.server.port, "DoPut", 40)
    silent.wait_for(lambda each: len(each.ended) >= 40 - 12)
    with pytest.raises((pa.ArrowInvalid, fl.FlightError)) as caught:
        served.action("health")
    error = store_error(caught.value)
    assert isinstance(error, UnavailableError) and error.retry_after_seconds
    silent.close()
    until(lambda: _answers(served))


def _answers(served: Served) -> bool:
    try:
        return served.action("health")["status"] == "ok"
    except (pa.ArrowInvalid, fl.FlightError):
        return False


class FakeGate:
    """Counts as the native gate does, without gRPC."""

    def __init__(self, room: int) -> None:
        self.room = room

    def start_another(self, is_stream: bool) -> bool:
        self.room -= 1
        if self.room < 0:
            self.room = 0
            return False
        return True

    def has_started(self, is_stream: bool) -> None:
        self.room += 1

    def count_anew(self, is_stream: bool) -> None:
        """All have started."""


class FakeCall:
    is_stream = False

    def __init__(self, ended: list[str], name: str) -> None:
        self._ended, self._name = ended, name

    def let_in(self) -> None:
        self._ended.append(self._name)

    def reject(self, message: str) -> None:
        self._ended.append(f"{self._name}: {message}")


def crowded(room: int) -> tuple[Any, list[str]]:
    """Return an entrance that lets so many calls in, and the names of those that it has let in or rejected."""
    made: Any = Entrance(False, "", bool)
    made._gate = FakeGate(room)
    return made, []


def test_callers_take_turns() -> None:
    crowd, ended = crowded(room=0)
    for number in range(100):
        crowd._hold(FakeCall(ended, f"a{number}"), 1)
    for number in range(3):
        crowd._hold(FakeCall(ended, f"b{number}"), 2)
    for _ in range(6):
        crowd.has_started(True, False)
    assert ended == ["a0", "b0", "a1", "b1", "a2", "b2"]
    for _ in range(97):
        crowd.has_started(True, False)
    assert len(ended) == 103 and crowd._waiting == 0


def test_a_call_is_let_in_if_there_is_room_by_now() -> None:
    crowd, ended = crowded(room=1)
    crowd._hold(FakeCall(ended, "a"), 1)
    assert ended == ["a"]


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, ended = crowded(room=0)
    counted, start = threading.Event(), threading.Thread.start
    failures = ["once"]

    def may_fail(thread: threading.Thread) -> None:
        if failures and thread.name == "nyala-entrance":
            raise RuntimeError(failures.pop())
        start(thread)

    def count_anew(is_stream: bool) -> None:
        crowd._gate.room = 2
        counted.set()

    monkeypatch.setattr(threading.Thread, "start", may_fail)
    crowd._gate.count_anew = count_anew
    crowd._hold(FakeCall(ended, "a"), 1)
    assert not counted.wait(0.1) and not ended
    crowd._hold(FakeCall(ended, "b"), 1)
    until(lambda: ended == ["a", "b"])


def test_one_caller_has_few_calls_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(entrance._WAITING_OF_ONE_MAX, False, 2)
    crowd, ended = crowded(room=0)
    for number in range(3):
        crowd._hold(FakeCall(ended, f"a{number}"), 1)
    crowd._hold(FakeCall(ended, "b"), 2)
    assert ended == [f"a2: {entrance._CROWDED}"]


def test_calls_that_wait_are_rejected_when_the_server_stops() -> None:
    crowd, ended = crowded(room=0)
    crowd._hold(FakeCall(ended, "a"), 1)
    crowd.close()
    crowd._hold(FakeCall(ended, "b"), 1)
    assert ended == [f"a: {entrance._STOPPED}", f"b: {entrance._STOPPED}"]


def test_more_tokens_than_there_is_room_for_are_learned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "KNOWN_MAX", 10)
    known = Entrance(False, "", bool)
    for number in range(25):
        known.learn(f"Bearer {number}")
        assert known.knows(f"Bearer {number}")
    assert not known.knows("Bearer 0") and known.knows("Bearer 24")


def test_without_the_gate_all_calls_are_checked_by_their_handlers(
    tmp_path: Path, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, opened: Callable[..., RawStreams]
) -> None:
    def missing(*_: object) -> None:
        raise LookupError("there is no symbol")

    monkeypatch.setattr(entrance, "CallGate", missing)
    door = Door(tmp_path, serve)
    strangers = opened(door.port, "DoPut", 50)
    strangers.wait_for(lambda each: len(each.ended) == 50)
    door.ask()
    with pytest.raises(fl.FlightUnauthenticatedError):
        list(door.served.client.do_action(fl.Action("now", b"")))

"""When a call asks the transport whether its client is there."""

from __future__ import annotations

import pytest

from nyala.flight_server.requests import calls as module
from nyala.flight_server.requests.calls import Call, Calls
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.verb import Kind


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


class Context:
    """A transport that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_gone = False

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.is_gone


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def call_of(context: Context) -> Call:
    return Calls(ServerConfig()).begin(context, "DoGet", Kind.SCAN)  # pyright: ignore[reportArgumentType]


def test_a_long_call_asks_the_transport_every_20_ms(clock: Clock) -> None:
    context = Context()
    with call_of(context) as call:
        for _ in range(1_000):  # a second
            clock.now += 0.001
            call.step()
            call.watch()
            call.check()
    assert 45 <= context.asked <= 50, "it holds the interpreter's lock for as long as the network has work"


def test_a_call_whose_client_is_gone_ends_at_each_check_from_then_on(clock: Clock) -> None:
    context = Context()
    with call_of(context) as call:
        clock.now += 1
        call.step()
        context.is_gone = True
        clock.now += 0.021
        for check in (call.step, call.watch, call.check, call.check):
            with pytest.raises(UnavailableError, match="the client is gone"):
                check()

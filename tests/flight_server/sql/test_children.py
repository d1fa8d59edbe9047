"""The processes of statements: an answer comes whatever happens in one, and none outlives its server."""

from __future__ import annotations

import threading
from typing import Any, cast
from unittest.mock import Mock

from nyala.flight_server.sql.channel import FrameKind
from nyala.flight_server.sql.child_main import StatementChild
from nyala.flight_server.sql.places import SqlPlaces
from nyala.schemas.errors import UnavailableError
from tests.doubles.waiting import until


class Panic(BaseException):
    """As a library in Rust raises it."""


def test_a_panic_is_answered() -> None:
    channel = Mock()
    child = StatementChild(channel, "", cast(Any, None), cast(Any, None))
    child._describe = Mock(side_effect=Panic)  # pyright: ignore[reportAttributeAccessIssue]
    child._answer({"op": "describe"}, None)
    (kind,), said = channel.send_json.call_args
    assert (kind, said["code"]) == (FrameKind.FAILURE, "INTERNAL")


def test_no_process_starts_for_those_who_wait_when_the_server_ends() -> None:
    started: list[Mock] = []

    def start() -> Any:
        started.append(Mock(is_alive=True, text="", transactions=0))
        return started[-1]

    places = SqlPlaces(start, places=1, user_share=1.0, waiting_max=4, seconds_max=30)
    errors: list[UnavailableError] = []

    def ask() -> None:
        try:
            with places.taken("b", lambda: None):
                pass
        except UnavailableError as error:
            errors.append(error)

    waiting = threading.Thread(target=ask, daemon=True)
    with places.taken("a", lambda: None):
        waiting.start()
        until(lambda: len(places._waiters) == 1)
        places.close()
    waiting.join(20)
    assert [error.code for error in errors] == ["UNAVAILABLE"]
    assert len(started) == 1

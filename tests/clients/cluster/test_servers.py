"""The servers of a placement: the errors of one say which it was, and all else that they said before."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from nyala.clients.cluster.servers import Servers
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.store.placement import Placement

_PLACEMENT = Placement(servers={name: (f"grpc://127.0.0.1:{port}",) for name, port in (("a", 1), ("b", 2))})


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_error_of_a_server_says_whether_its_answer_is_lost(is_lost: bool) -> None:
    stores: dict[str, Any] = {name: object() for name in _PLACEMENT.servers}
    servers = Servers(_PLACEMENT, known=stores)

    def ask(name: str, _: object) -> str:
        if name == "b":
            error = UnavailableError("the connection broke", 0.5, ["grpc://127.0.0.1:3"])
            error.answer_is_lost = is_lost
            raise error
        return name

    try:
        with pytest.raises(UnavailableError, match="the server 'b': the connection broke") as caught:
            servers.each_named(ask)
    finally:
        servers.close()
    found = caught.value
    assert (found.answer_is_lost, found.retry_after_seconds) == (is_lost, 0.5)
    assert found.locations == ["grpc://127.0.0.1:3"]


def test_a_connection_that_comes_after_the_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    servers, store = Servers(_PLACEMENT), Mock()

    def connect(*_: object) -> Mock:
        servers.close()  # meanwhile
        return store

    monkeypatch.setattr(servers, "_connected", connect)
    with pytest.raises(InvalidArgumentError, match="the connection to the servers is closed"):
        servers.store("a")
    store.close.assert_called_once()

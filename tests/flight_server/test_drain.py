"""What a stop does with a store in a bucket, which others wait for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nyala.flight_server.serve import lifecycle
from nyala.flight_server.serve.lifecycle import drain
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.stores.absent_store import AbsentStore
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.whereabouts import Whereabouts
from tests.flight_server.fake_store import FakeStore

PROCESS = cast(Any, SimpleNamespace(stop=lambda seconds: True, has_store=True))


class BusyStore(FakeStore):
    """Its maintenance runs on, and to close it takes until that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = threading.Event()

    def maintenance(self) -> Any:
        return SimpleNamespace(is_on=False, running=[] if self.ended.is_set() else ["a compaction"])

    def pause_maintenance(self, asked: object) -> None:
        """It begins no more anyway."""

    def close(self) -> None:
        self.ended.wait(300)
        super().close()


def drained(store: StoreService, seconds: float, process: Any = PROCESS) -> bool | None:
    """Return whether a drain ended all in time; None: it waits."""
    server = FlightServer(store, "grpc://127.0.0.1:0", ServerConfig(drain_seconds=seconds))
    found: list[bool] = []
    draining = threading.Thread(target=lambda: found.append(drain(server, store, None, process)), daemon=True)
    draining.start()
    draining.join(60)
    return found[0] if found else None


@pytest.mark.parametrize("seconds", [0.2, 3600.0])
def test_a_stop_does_not_wait_for_maintenance_that_others_would_wait_for(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seconds > 60:
        monkeypatch.setattr(
            lifecycle, "rest_within", lambda *_: None
        )  # while the store is served it may take that long
    store = BusyStore()
    try:
        assert drained(store, seconds) is False
    finally:
        store.ended.set()


def test_a_store_that_rests_is_closed() -> None:
    store = BusyStore()
    store.ended.set()
    assert drained(store, 3600.0) is True and store.closed


def test_a_process_that_stands_by_has_nothing_to_close() -> None:
    absent = AbsentStore(lambda: Whereabouts(name="a", state="standby"), "1")
    assert drained(absent, 0.2, SimpleNamespace(stop=lambda seconds: True, has_store=False)) is True

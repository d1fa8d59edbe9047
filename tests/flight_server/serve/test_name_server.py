"""The life of a process that serves a store in a bucket, over a home and a store that do as the test says."""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nyala.engine.wal.slots.standby import Seen, Standby
from nyala.flight_server.serve import name_server
from nyala.flight_server.serve.name_server import NameServer
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.waiting import until


class FakeHeld:
    epoch = end = 1
    sent = lease_seconds = 1.0

    def __init__(self) -> None:
        self.lost: UnavailableError | None = None
        self.noted = 0
        self.blocks = threading.Event()
        self.blocks.set()

    def note_where(self) -> None:
        self.noted += 1
        self.blocks.wait(10)

    def whereabouts(self) -> Whereabouts:
        return Whereabouts(name="a", state="holder")


class FakeStore:
    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.running: list[str] = []
        self.is_on = False
        self.flushes = threading.Event()
        """Whether a flush goes on."""
        self.close: Callable[[], None] = lambda: events.append("close")

    def pause_maintenance(self, _: object) -> None:
        self.events.append("pause")

    def maintenance(self) -> Any:
        return SimpleNamespace(is_on=self.is_on, running=self.running)

    def tables(self) -> list[str]:
        self.events.append("flush")
        self.flushes.wait(30)
        return []


class Bench:
    """A process whose home is free whenever ``is_free``."""

    name = "a"

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_free = threading.Event()
        self.is_free.set()
        self.standbys: list[Standby] = []
        self.failures: list[Exception] = []
        self.stores: list[FakeStore] = []
        self.helds: list[FakeHeld] = []
        self.ended = threading.Event()
        self.calls = SimpleNamespace(metrics=SimpleNamespace(more=None), end_earlier=lambda seconds: None)
        self.process = NameServer(cast(Any, self), cast(Any, self._open), "1", 5.0, 1.0, self.ended.set)

    def begin(self) -> None:
        self.process.begin(cast(Any, self), ["grpc://m1"])

    def by(self, standby: Standby, _: object) -> Any:
        self.standbys.append(standby)
        return SimpleNamespace(held=None, name="a")

    def serve_store(self, store: object) -> None:
        self.events.append("serve" if isinstance(store, FakeStore) else "refuse")

    def _open(self, home: Any) -> FakeStore:
        standby = self.standbys[-1]
        while not self.is_free.wait(0.01):
            standby.check_stopped()
        if self.failures:
            raise self.failures.pop()
        self.helds.append(FakeHeld())
        home.held = self.helds[-1]
        self.stores.append(FakeStore(self.events))
        return self.stores[-1]


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    for held in one.helds:
        held.blocks.set()
    for store in one.stores:
        store.running = []
        store.flushes.set()
    assert one.process.stop(10)


def test_a_second_release_is_the_same_one(bench: Bench) -> None:
    bench.begin()
    store = bench.stores[0]
    store.running = ["a compaction"]
    bench.process.server_release()
    until(lambda: "pause" in bench.events)
    bench.process.server_release()
    store.running = []
    until(lambda: len(bench.stores) == 2 and bench.process.has_store)
    threading.Event().wait(0.3)  # the look at requests comes every 0.05 s
    assert bench.process.has_store and len(bench.stores) == 2


def test_a_process_that_lost_its_store_says_so_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client whose write it has just refused would come back, and give up."""
    bench.begin()
    bench.is_free.clear()
    monkeypatch.setattr(name_server, "_LOOK_SECONDS", 30)
    assert bench.process.whereabouts().state == "holder"
    threading.Event().wait(0.1)  # its thread waits for so long now
    bench.helds[0].lost = UnavailableError("another process has the store")
    found = bench.process.whereabouts()
    assert (found.state, found.holder) == ("standby", None)
    bench.process.server_release()


def test_maintenance_ends_while_the_store_is_served(bench: Bench) -> None:
    bench.begin()
    bench.is_free.clear()
    bench.stores[0].running = ["a compaction"]
    bench.process.server_release()
    until(lambda: "pause" in bench.events)
    threading.Event().wait(0.1)
    assert "refuse" not in bench.events
    bench.stores[0].running = []
    until(lambda: "close" in bench.events)
    assert bench.events == ["serve", "pause", "refuse", "close"]


def test_a_store_that_is_lost_before_it_is_released_is_not_waited_for(bench: Bench) -> None:
    bench.begin()
    bench.is_free.clear()
    bench.stores[0].running = ["a compaction"]
    bench.process.server_release()
    until(lambda: "pause" in bench.events)
    bench.helds[0].lost = UnavailableError("another process has the store")
    until(lambda: "close" in bench.events)
    assert not bench.process.has_store


@pytest.mark.parametrize("what", ["pause", "flush"])
def test_a_stop_does_not_wait_for_what_a_release_waits_for(bench: Bench, what: str) -> None:
    bench.begin()
    store = bench.stores[0]
    if what == "pause":
        store.running = ["a compaction"]
    else:
        store.is_on = True
    bench.process.server_release()
    until(lambda: what in bench.events)
    assert bench.process.stop(10) and bench.process.has_store, "the server releases it, in the time that a stop has"
    assert not {"refuse", "close"} & {*bench.events}


def test_a_close_that_fails_in_any_way_makes_a_standby(bench: Bench) -> None:
    def fail() -> None:
        raise OSError(5, "the disk of the cache")

    bench.begin()
    bench.stores[0].close = fail
    bench.process.server_release()
    until(lambda: len(bench.stores) == 2 and bench.process.has_store)
    assert not bench.ended.is_set()


def test_who_waits_for_a_store_says_who_has_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.is_free.clear()
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.INFO):
        begun = pool.submit(bench.begin)
        until(lambda: bool(bench.standbys))
        bench.standbys[0].seen = Seen(7, 1.0, Holder(locations=["grpc://m1:8815"]))
        bench.standbys[0].sees_life = True
        begun.result(10)
    assert "standing by for the store a, which grpc://m1:8815 has" in caplog.text


def test_a_process_that_nobody_looks_after_ends(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: float) -> None:
        raise RuntimeError("a defect")

    bench.begin()
    bench.calls.end_earlier = fail
    with caplog.at_level(logging.CRITICAL):
        bench.process.server_release()
        assert bench.ended.wait(10)


def test_the_hint_is_written_again_and_a_put_that_blocks_hides_no_fence(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_server, "_WHERE_SECONDS", 0.01)
    bench.begin()
    held = bench.helds[0]
    until(lambda: held.noted > 2)
    held.blocks.clear()
    bench.is_free.clear()
    held.lost = UnavailableError("another process has the store")
    until(lambda: not bench.process.has_store)
    noted = held.noted
    held.blocks.set()
    threading.Event().wait(0.1)
    assert held.noted <= noted + 1


def test_a_forced_take_stays_asked_for_between_two_openings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_server, "_RETRY_SECONDS", 0.01)
    bench.begin()
    bench.is_free.clear()
    bench.process.server_release()
    until(lambda: len(bench.standbys) == 2)
    assert bench.standbys[1].handicap_seconds == 5.0 and not bench.standbys[1].is_forced
    bench.process.server_take(force=True)
    bench.standbys[1]._forced_epoch, bench.standbys[1]._forced_until = 7, 100.0  # as it learns when it looks at the log
    bench.failures.append(UnavailableError("not now"))
    bench.is_free.set()
    until(lambda: len(bench.standbys) == 3)
    assert bench.standbys[2].is_forced and bench.standbys[2].handicap_seconds == 0.0
    assert (bench.standbys[2]._forced_epoch, bench.standbys[2]._forced_until) == (7, 100.0), (
        "from nobody else, no longer"
    )


def test_a_standby_that_cannot_open_its_store_says_why_until_it_could(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait of each attempt is another one: it has not looked at the log yet."""
    monkeypatch.setattr(name_server, "_RETRY_SECONDS", 0.5)
    bench.begin()
    bench.is_free.clear()
    bench.helds[0].lost = UnavailableError("the log did not answer")
    until(lambda: len(bench.standbys) == 2)
    assert bench.process.whereabouts().trouble is None
    bench.failures.append(UnavailableError("the bucket is out of reach"))
    bench.is_free.set()
    until(lambda: bench.process.whereabouts().trouble is not None)
    bench.is_free.clear()
    until(lambda: len(bench.standbys) == 3)
    assert bench.process.whereabouts().trouble == "the bucket is out of reach"
    bench.standbys[2].note(None)  # as it does when it could take the store over
    assert bench.process.whereabouts().trouble is None


def test_a_stop_while_the_store_opens_leaves_an_open_store_to_release(bench: Bench) -> None:
    opening, opened = threading.Event(), threading.Event()
    open_at = bench._open

    def slowly(home: Any) -> FakeStore:
        opening.set()
        opened.wait(10)
        return open_at(home)

    bench.process._open_store = cast(Any, slowly)
    beginning = threading.Thread(target=bench.begin)
    beginning.start()
    opening.wait(10)
    bench.process.ask_to_stop()
    beginning.join(10)
    assert not beginning.is_alive(), "nobody waits for what is to stop"
    assert not bench.process.stop(0.0)
    opened.set()
    assert bench.process.stop(10) and bench.process.has_store
    assert bench.events == ["serve"], "the server releases it when calls have ended"

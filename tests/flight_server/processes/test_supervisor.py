"""The parent of a store's processes, with fakes for these: its threads, its health, how long it waits, how it ends."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import nyala
from nyala.clients.cluster.servers import Servers
from nyala.flight_server.processes import supervisor
from nyala.flight_server.processes.front import Front
from nyala.flight_server.processes.layout import ProcessLayout
from nyala.flight_server.processes.supervisor import Supervisor
from nyala.flight_server.serve import processes as serving
from nyala.flight_server.settings.settings import Settings, read_settings
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.description import Health
from nyala.schemas.store.store_key import StoreKey
from tests.doubles.encrypted import KEY, write_key


class Child:
    """A process that is always ready."""

    def __init__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def wait_until_ready(self) -> None: ...

    def ask_to_stop(self) -> None: ...

    def wait_until_stopped(self, _: float) -> None: ...


class FakeStore:
    def __init__(self) -> None:
        self.is_down = False

    def health(self) -> Health:
        if self.is_down:
            raise UnavailableError("it is down")
        return Health(status="ok", version="9", store_uuid="u")

    def close(self) -> None: ...


def settings_of(data: Path, **flags: Any) -> Settings:
    return read_settings({"data": data, "processes": 2, **flags}, (), {}, None)


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    monkeypatch.setattr(supervisor, "ChildProcess", Child)
    layout = ProcessLayout(tmp_path)
    layout.folder.mkdir()
    return Supervisor(layout, 2, settings_of(tmp_path, drain_seconds=60.0))


@pytest.mark.parametrize(("present", "given"), [(KEY, None), (None, KEY), (KEY, StoreKey(b"another" + bytes(25)))])
@pytest.mark.parametrize("part", ["p0", "p1"])
def test_without_the_key_of_all_parts_no_process_starts(
    part: str, present: StoreKey | None, given: StoreKey | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process would make a part that no key opens together with the others."""
    started: list[object] = []
    monkeypatch.setattr(Child, "start", started.append)
    monkeypatch.setattr(supervisor, "ChildProcess", Child)
    layout = ProcessLayout(tmp_path / "data")
    layout.folder.mkdir(parents=True)
    nyala.open(tmp_path / "made", key=present, maintenance="off").close()
    shutil.copytree(tmp_path / "made", layout.directory(part), dirs_exist_ok=True)
    write_key(tmp_path / "key", given.text if given else "")
    flags = {"key_file": str(tmp_path / "key")} if given else {}
    with pytest.raises(InvalidArgumentError, match="key"):
        Supervisor(layout, 3, settings_of(layout.data, **flags)).start()
    assert not started


def test_the_data_directory_is_for_this_user_alone(tmp_path: Path) -> None:
    layout = ProcessLayout(tmp_path / "new" / "data")
    before = os.umask(0)
    try:
        with layout.locked():
            pass
    finally:
        os.umask(before)
    for folder in (layout.data, layout.folder, layout.data.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.fixture
def stores() -> list[FakeStore]:
    return [FakeStore(), FakeStore()]


@pytest.fixture
def servers(parent: Supervisor, stores: list[FakeStore]) -> Iterator[Servers]:
    started = parent.start()
    for name, store in zip(started.names, stores, strict=True):
        started.adopt(name, cast(StoreService, store))
    yield started
    started.close()


def test_requests_that_take_long_do_not_hold_others(servers: Servers) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(5) as clients:
        try:
            for _ in range(4):
                clients.submit(servers.each, lambda _: over.wait(30))
            assert clients.submit(servers.each, lambda _: 1).result(10) == {"p0": 1, "p1": 1}
        finally:
            over.set()


def test_servers_that_are_closed_say_so(servers: Servers) -> None:
    """As a connection to one server does: a flush of a parent that stops may still run."""
    servers.close()
    with pytest.raises(InvalidArgumentError, match="closed"):
        servers.each(lambda _: 1)


@pytest.mark.parametrize("down", [1, 2])
def test_health_is_degraded_while_processes_are_down(servers: Servers, stores: list[FakeStore], down: int) -> None:
    front = Front(servers, lambda: None)
    assert front.health() == Health(status="ok", version="9", processes={"p0": "u", "p1": "u"})
    for store in stores[:down]:
        store.is_down = True
    found = front.health()
    assert (found.status, found.version, list(found.processes)) == ("degraded", "9", ["p0", "p1"])
    assert "it is down" in found.reason


def test_the_processes_of_a_killed_parent_may_drain(parent: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

    def check_free(_: Path) -> None:
        if now < 40:
            raise UnavailableError("it is open")

    monkeypatch.setattr(supervisor, "time", Clock)
    monkeypatch.setattr(supervisor, "check_free", check_free)
    parent.start().close()
    assert 40 <= now < 41


@pytest.mark.parametrize(("opens", "signals"), [(Supervisor.start, 0), (lambda parent: parent.open(False), 1)])
def test_only_a_server_is_stopped_by_a_signal(
    parent: Supervisor, monkeypatch: pytest.MonkeyPatch, opens: Callable[[Supervisor], object], signals: int
) -> None:
    """Before it serves, SIGTERM would end it at once, and look like a stop that was asked for."""
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    monkeypatch.setattr(supervisor, "Front", lambda *_: None)
    opens(parent)
    parent._give_up("p1 does not start")
    assert len(sent) == signals and parent.failure == "p1 does not start"


def test_parent_and_processes_share_the_time_to_drain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    class Given(Supervisor):
        def open(self, balanced: bool) -> Front:
            seen.extend(self._options(name, tmp_path)["drain_seconds"] for name in ("p0", "p1"))
            return cast(Front, None)

    def run(settings: Settings, open_store: Callable[[], StoreService], **_: object) -> None:
        seen.append(settings.server.drain_seconds)
        open_store()

    monkeypatch.setattr(serving, "Supervisor", Given)
    assert serving.serve_processes(settings_of(tmp_path, drain_seconds=8.0), run)
    assert seen == [4, 4, 4]


def test_a_server_that_gave_up_does_not_exit_with_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if clients that stopped reading keep it from ending in order."""
    codes: list[int] = []
    made: list[Supervisor] = []

    class Known(Supervisor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    def run(_: Settings, __: object, *, exit_code: Callable[[], int]) -> None:
        codes.append(exit_code())
        made[0]._give_up("p1 does not start")
        codes.append(exit_code())

    monkeypatch.setattr(serving, "Supervisor", Known)
    with pytest.raises(UnavailableError, match="p1 does not start"):
        serving.serve_processes(settings_of(tmp_path), run)
    assert codes == [0, 9]

"""What tests of the command line share: running one in this process, over a directory and over a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.__main__ import main
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from tests.clients.cli.command import Done, Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def command(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["nyala", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(int(caught.value.code or 0), out, err)

    return command


@pytest.fixture
def url() -> Iterator[str]:
    """An empty server."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    server = FlightServer(store, "grpc://127.0.0.1:0")
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()
    store.close()


@pytest.fixture(params=["data", "url"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The options that name a database."""
    if request.param == "url":
        return ["--url", request.getfixturevalue("url")]
    (tmp_path / "store").mkdir()
    return ["--data", str(tmp_path / "store")]

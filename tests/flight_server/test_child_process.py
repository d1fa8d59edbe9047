"""A process of a store: started again when it dies, given up when that does not help."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nyala.flight_server.processes import child_process
from nyala.flight_server.processes.child_process import ChildProcess

READY_ONCE = """
import pathlib, sys
mark = pathlib.Path(sys.argv[1])
assert sys.stdin.readline() == '{"name":"p0"}\\n'
if not mark.exists():
    mark.write_text("x")
    print("ready", flush=True)
    sys.stdin.readline()
sys.exit(7)
"""


@pytest.fixture
def gave_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(child_process, "_PAUSES", (0.01, 0.02, 0.03))
    return []


def child(code: str, argument: Path, gave_up: list[str], done: threading.Event) -> ChildProcess:
    def note(why: str) -> None:
        gave_up.append(why)
        done.set()

    child_process._COMMAND = (sys.executable, "-c", code, str(argument))
    return ChildProcess("p0", {"name": "p0"}, argument.with_suffix(".sock"), note)


@pytest.fixture(autouse=True)
def command() -> Iterator[None]:
    before = child_process._COMMAND
    yield
    child_process._COMMAND = before


def test_one_that_never_starts_is_not_started_again(tmp_path: Path, gave_up: list[str]) -> None:
    made = child("import sys; sys.exit(11)", tmp_path / "x", gave_up, threading.Event())
    made.start()
    assert made.wait_until_ready() == 11
    assert made.wait_until_stopped(10) == 11
    assert gave_up == []


def test_one_that_does_not_come_back_is_given_up(tmp_path: Path, gave_up: list[str]) -> None:
    done = threading.Event()
    made = child(READY_ONCE, tmp_path / "mark", gave_up, done)
    made.start()
    assert made.wait_until_ready() is None
    assert made._process
    made._process.kill()
    assert done.wait(30)
    assert gave_up == ["the process p0 does not start again: its log has the reason"]
    assert made.wait_until_stopped(10) == 7


def test_one_that_does_not_stop_is_killed(tmp_path: Path, gave_up: list[str]) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    made = child(code, tmp_path / "x", gave_up, threading.Event())
    made.start()
    assert made.wait_until_ready() is None
    assert made.wait_until_stopped(0.2) == -9

"""A process of a store: started again when it dies, given up when that does not help."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


class Refusing:
    """``subprocess.Popen`` on a machine that is out of memory at some of its calls."""

    def __init__(self, refused: set[int]) -> None:
        self.calls = 0
        self._refused = refused

    def __call__(self, *command: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls in self._refused:
            raise OSError(12, "Cannot allocate memory")
        return subprocess.Popen(*command, **options)


def refuse(monkeypatch: pytest.MonkeyPatch, refused: set[int]) -> Refusing:
    made = Refusing(refused)

    class Module:
        Popen = made

    monkeypatch.setattr(child_process, "subprocess", Module)
    return made


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_the_machine_has_no_room_for_does_not_start(
    tmp_path: Path, gave_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, {1})
    made = child("", tmp_path / "x", gave_up, threading.Event())
    made.start()
    assert made._settled.wait(10)
    assert made.wait_until_ready() == -1
    assert made.wait_until_stopped(10) is None


def test_it_comes_back_when_the_machine_has_room_again(
    tmp_path: Path, gave_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = threading.Event()
    popen = refuse(monkeypatch, {2, 3})
    made = child("print(1, flush=True); import sys; sys.stdin.read()", tmp_path / "x", gave_up, again)
    made.start()
    assert made.wait_until_ready() is None
    first = made._process
    assert first
    first.kill()
    for _ in range(1000):
        if made._process is not first:
            break
        again.wait(0.01)
    assert made._process is not first and popen.calls == 4 and not gave_up
    made.wait_until_stopped(10)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_ends_before_it_has_its_options_is_told(
    tmp_path: Path, gave_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Module:
        @staticmethod
        def Popen(*command: Any, **options: Any) -> Any:
            process = subprocess.Popen(*command, **options)
            process.wait()
            return process

    monkeypatch.setattr(child_process, "subprocess", Module)
    made = child("import os; os._exit(5)", tmp_path / "x", gave_up, threading.Event())
    made.start()
    assert made._settled.wait(10)
    assert made.wait_until_ready() == 5
    assert made.wait_until_stopped(10) == 5


def test_one_whose_line_nobody_reads_serves_on(tmp_path: Path, gave_up: list[str]) -> None:
    def announced(_: str) -> None:
        raise BrokenPipeError(32, "nobody reads what the parent prints")

    code = "import sys; sys.stdin.readline(); print('ready', flush=True); sys.stdin.read()"
    child_process._COMMAND = (sys.executable, "-c", code)
    made = ChildProcess("p0", {"name": "p0"}, None, gave_up.append, is_apart=True, announced=announced)
    made.start()
    made.wait_until_settled(60)
    first = made._process
    assert first is not None and first.poll() is None and not made._stopping.wait(0.3)
    assert made._process is first and first.poll() is None, "it was not started again"
    made.wait_until_stopped(10)

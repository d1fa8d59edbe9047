"""Whoever waits for the first compilation is told why, and nobody else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nyala import first_compile
from nyala.first_compile import NOTE, Notice
from tests.doubles.waiting import until

COMPILES = """
import nyala.first_compile as first
import numba
notice = first.Notice
first.Notice = lambda: notice(0.0 if {is_slow} else 60.0)
first.watch()
first.watch()
numba.njit(lambda x: x + 1)(1)
"""


def stderr_of(is_slow: bool, on_terminal: bool, tmp_path: Path) -> str:
    """What a process that compiles something writes to its standard error."""
    command = [sys.executable, "-c", COMPILES.format(is_slow=is_slow)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    if not on_terminal:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stderr
    ours, theirs = pty.openpty()
    try:
        subprocess.run(command, env=environment, stderr=theirs, timeout=60, check=True)
        os.write(theirs, b"end")
        return os.read(ours, 4096).decode().replace("\r\n", "\n").removesuffix("end")
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(("is_slow", "on_terminal"), [(True, True), (False, True), (True, False)])
def test_a_long_compilation_is_told_on_a_terminal(is_slow: bool, on_terminal: bool, tmp_path: Path) -> None:
    assert stderr_of(is_slow, on_terminal, tmp_path) == (NOTE if is_slow and on_terminal else "")


def test_the_note_comes_after_a_second_in_all_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    notice, before = Notice(60.0), set(threading.enumerate())
    for _ in range(50):
        notice.begin()
        notice.end()
    assert capsys.readouterr().err == ""
    until(lambda: set(threading.enumerate()) <= before)
    notice = Notice(0.2)

    def compiled() -> bool:
        """Compile for much less than that, twice at once: one kernel calls another."""
        notice.begin()
        notice.begin()
        time.sleep(0.01)
        notice.end()
        notice.end()
        return notice._is_told

    until(compiled)
    until(lambda: set(threading.enumerate()) <= before)  # it has written
    assert compiled() and capsys.readouterr().err == NOTE


def test_a_process_that_never_compiles_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "_is_read", lambda: True)
    monkeypatch.setattr(first_compile, "_notice", None)
    monkeypatch.delitem(sys.modules, "numba.core.event", raising=False)
    first_compile.watch()
    assert first_compile._notice is None

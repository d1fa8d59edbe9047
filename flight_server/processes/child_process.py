"""ChildProcess: keeps one of a store's processes running."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

from pydantic_core import to_json

_LOG = logging.getLogger("nyala.flight_server")
_COMMAND = (sys.executable, "-m", "nyala.flight_server.processes.child")
_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Seconds before each start of a process that ended. After as many starts without being ready it is given up."""
_STEADY_SECONDS = 60.0
"""After a process was ready for this long, the pauses begin anew."""


class ChildProcess:
    """One process, started again when it ends. Thread safe."""

    def __init__(self, name: str, options: Mapping[str, Any], socket: Path, gave_up: Callable[[str], None]) -> None:
        """``options`` are those of its server. ``gave_up`` is called, with a sentence, if it cannot start again."""
        self.name = name
        self._options = to_json(options) + b"\n"
        self._socket = socket
        self._gave_up = gave_up
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._settled = threading.Event()
        """Set when it is ready for the first time, or has ended before that."""
        self._is_ready = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_running, name=f"nyala-{name}", daemon=True)

    def start(self) -> None:
        """Start it; return at once."""
        self._thread.start()

    def wait_until_ready(self) -> int | None:
        """Return None when it takes requests; its exit code if it ended before that, or -1."""
        self._settled.wait()
        if self._is_ready:
            return None
        return -1 if self._process is None else self._process.wait()

    def ask_to_stop(self) -> None:
        """Let it finish what runs, and end."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.terminate()

    def wait_until_stopped(self, seconds: float) -> int | None:
        """Return the exit code; kill the process if it has not ended after ``seconds``. None: it did not run."""
        self.ask_to_stop()
        self._thread.join(max(seconds, 0.0))
        with self._lock:
            if self._thread.is_alive() and self._process is not None:
                self._process.kill()
        self._thread.join()
        return None if self._process is None else self._process.returncode

    def _keep_running(self) -> None:
        failures = unready = 0
        while True:
            try:
                ready_seconds = self._run_once()
            except OSError as error:  # such as too little memory for another process
                _LOG.error("the process %s: %s", self.name, error)
                ready_seconds = 0.0
            if self._stopping.is_set() or not self._is_ready:
                break
            unready = 0 if ready_seconds else unready + 1
            failures = 0 if ready_seconds >= _STEADY_SECONDS else failures + 1
            if unready == len(_PAUSES):
                self._gave_up(f"the process {self.name} does not start again: its log has the reason")
                break
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1 if failures else 0]
            code = self._process.returncode if self._process else None
            _LOG.error("the process %s ended with code %s; starting it again in %g s", self.name, code, pause)
            if self._stopping.wait(pause):
                break
        self._settled.set()

    def _run_once(self) -> float:
        """Run the process until it ends; return for how many seconds it was ready."""
        with self._lock:
            if self._stopping.is_set():
                return 0.0
            self._socket.unlink(missing_ok=True)
            # A session of its own: Ctrl-C in a terminal is for the parent, which stops all of them in order.
            process = self._process = subprocess.Popen(_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True)
        with process:
            assert process.stdin and process.stdout
            with suppress(BrokenPipeError):  # it ended already; its exit code says so
                process.stdin.write(self._options)
                process.stdin.flush()
            is_ready = bool(process.stdout.readline())
            began = time.monotonic()
            if is_ready:
                self._is_ready = True
                self._settled.set()
            process.stdout.read()
            process.wait()
        return time.monotonic() - began if is_ready else 0.0

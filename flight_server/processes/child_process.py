"""ChildProcess: keeps a server process running that this one started."""

from __future__ import annotations

import logging
import signal
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

from ...clients.cli.run import EXIT_CODES
from ...schemas.errors import InvalidArgumentError, NotFoundError

_LOG = logging.getLogger("nyala.flight_server")
_COMMAND = (sys.executable, "-m", "nyala.flight_server.serve.child")
_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Seconds before each start of a process that ended. After as many starts without being ready it is given up, unless
others do not depend on it."""
_STEADY_SECONDS = 60.0
"""After a process was ready for this long, the pauses begin anew."""
_WRONG_OPTIONS = frozenset(EXIT_CODES[error.code] for error in (InvalidArgumentError, NotFoundError))


class ChildProcess:
    """One of several processes of a store, started again when it ends. Thread safe."""

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        socket: Path | None,
        gave_up: Callable[[str], None],
        is_apart: bool = False,
        announced: Callable[[str], object] = str,
    ) -> None:
        """``options`` are those of its server, which listens at ``socket`` if that is a Unix socket that nobody else
        uses. ``gave_up`` is called, with a sentence, if it cannot start again. If it ``is_apart``, others do not depend
        on it: then it is started again however often, also before it was ready, and given up only if its options are
        wrong when it is first started. ``announced`` gets the line that it prints whenever it is ready."""
        self.name = name
        self._options = to_json(options) + b"\n"
        self._socket = socket
        self._gave_up = gave_up
        self._is_apart = is_apart
        self._announced = announced
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._settled = threading.Event()
        """Set when it is ready for the first time, or has ended before that."""
        self._is_ready = False
        """Whether it has ever been ready."""
        self._is_up = False
        """Whether the process that runs is ready."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep_running, name=f"nyala-{name}", daemon=True)

    def start(self) -> None:
        """Start it; return at once."""
        self._thread.start()

    def wait_until_ready(self) -> int | None:
        """Return None when it takes requests; its exit code if it ended before that, or -1."""
        self.wait_until_settled()
        if self._is_ready:
            return None
        return -1 if self._process is None else self._process.wait()

    def wait_until_settled(self, seconds: float | None = None) -> None:
        """Return when it takes requests, or has ended before that, or after so many seconds."""
        self._settled.wait(seconds)

    def ask_to_stop(self) -> None:
        """Let it finish what runs, and end. Once only: the second signal would end what runs."""
        with self._lock:
            if not self._stopping.is_set() and self._process is not None:
                self._process.terminate()
            self._stopping.set()

    def hurry(self) -> None:
        """Let it end what runs, and end, after ``ask_to_stop``."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()

    def load_again(self) -> None:
        """Let it load its certificates and tokens again, if it is ready: before that the signal would end it."""
        with self._lock:
            if self._is_up and self._process is not None:
                self._process.send_signal(signal.SIGHUP)

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
            code = self._process.returncode if self._process else None
            if self._stopping.is_set() or not (self._is_ready or self._is_apart):
                break
            if not self._is_ready and not self._settled.is_set() and code in _WRONG_OPTIONS:
                self._gave_up(f"the process {self.name} cannot start: its log lines above show why")
                break
            self._settled.set()
            unready = 0 if ready_seconds else unready + 1
            failures = 0 if ready_seconds >= _STEADY_SECONDS else failures + 1
            if unready == len(_PAUSES) and not self._is_apart:
                self._gave_up(f"the process {self.name} does not start again: its log has the reason")
                break
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1 if failures else 0]
            _LOG.error("the process %s ended with code %s; starting it again in %g s", self.name, code, pause)
            if self._stopping.wait(pause):
                break
        self._settled.set()

    def _run_once(self) -> float:
        """Run the process until it ends; return for how many seconds it was ready."""
        with self._lock:
            if self._stopping.is_set():
                return 0.0
            if self._socket is not None:
                self._socket.unlink(missing_ok=True)
            # A session of its own: Ctrl-C in a terminal is for the parent, which stops all of them in order.
            process = self._process = subprocess.Popen(_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True)
        with process:
            assert process.stdin and process.stdout
            with suppress(BrokenPipeError):  # it ended already; its exit code says so
                process.stdin.write(self._options)
                process.stdin.flush()
            line = process.stdout.readline()
            began = time.monotonic()
            if line:
                self._is_up = self._is_ready = True
                with suppress(OSError):  # nobody reads what this process prints: that is no reason to end
                    self._announced(line.decode().rstrip("\n"))
                self._settled.set()
            process.stdout.read()
            self._is_up = False
            process.wait()
        return time.monotonic() - began if line else 0.0

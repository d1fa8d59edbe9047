"""A server process: started, killed, and restarted on the same data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from ...schemas.errors import UnavailableError

_STOP_SECONDS = 15


class ServerProcess:
    """The server of the demonstration: ``python -m nyala.flight_server`` on a data directory; ``url`` is its
    address."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start the process and return once it accepts requests.

        Raises:
            UnavailableError: it ended before it was ready; the message is its output.
        """
        command = [sys.executable, "-m", "nyala.flight_server", "--data", str(self._data)]
        command += ["--listen", "grpc://127.0.0.1:0", "--json", "--log-level", "warning"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"the server process ended with exit code {self._process.wait()}")
        self.url = json.loads(line)["location"]

    def kill(self) -> None:
        """Send SIGKILL: the process gets no chance to clean up."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask the process to end and wait until it has."""
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._process = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

"""A server process of one's own: started, killed, started again on the same data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from ...schemas.errors import UnavailableError

_STOP_SECONDS = 15


class ServerProcess:
    """``python -m nyala.flight_server`` on a data directory; ``url`` is where it listens."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start the process and return when it takes requests.

        Raises:
            UnavailableError: it ended before it was ready; the text is what it printed.
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
        """End the process as a power failure of the process would: SIGKILL, no chance to clean up."""
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

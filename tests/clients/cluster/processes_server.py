"""``nyala serve --processes`` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from nyala.clients.api.database import Database
from nyala.clients.flight.store import FlightStore


class ProcessesServer:
    """A server on a data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str) -> None:
        """Start it, and return when it is ready."""
        self.process = self.begin(*options)
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the server did not start"
        self.url = json.loads(line)["location"]

    def begin(self, *options: str) -> subprocess.Popen[str]:
        listen = self.url or "grpc://127.0.0.1:0"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(self.data), "--json", "--listen", listen]
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        assert self.process
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        code, self.process = self.process.returncode, None
        return code

    def pids(self) -> dict[str, int]:
        """Return the running processes of the store, by the sockets that they listen on."""
        assert self.process
        found = {}
        for pid in children_of(self.process.pid):
            for name in self.directories():
                if f"{self.data}/processes/{name}.sock" in listening(pid):
                    found[name] = pid
        return found

    def directories(self) -> list[str]:
        return ["p0", *sorted(path.name for path in (self.data / "processes").glob("p*[0-9]"))]

    def front(self, retries: bool = True) -> Database:
        """Return a client that knows only the public address."""
        return Database(FlightStore(self.url, retries))


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def listening(pid: int) -> set[str]:
    """Return the paths of the Unix sockets that a process has."""
    inodes = set()
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(file))
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {line[7] for line in lines if len(line) > 7 and f"socket:[{line[6]}]" in inodes}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

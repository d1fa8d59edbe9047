"""A server of a store in a process of its own, which is killed, stopped, cut off and started again."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from nyala.clients.cli.run import EXIT_CODES
from nyala.flight_server.commands.serve_command import serve
from nyala.schemas.errors import UnavailableError
from tests.campaigns.failover import points
from tests.campaigns.failover.places import ENVIRONMENT, Way
from tests.campaigns.options import flags as set_words
from tests.doubles.cut_proxy import CutProxy
from tests.doubles.ports import free_port

STANDS_BY = "standby" in inspect.signature(serve).parameters
"""Whether a server waits by itself for a store that another one has, also when it has lost that store."""
_PROGRAM = Path(__file__).with_name("process.py")
_END_SECONDS = 60.0
_CHUNKS = (0, 256)
"""The bytes of the chunks in which a process puts the payloads of its slots, however small; 0: as a server does. One of
them at each start."""
_SHIFTS = (0, 0, 3600, -3600)
"""How far the wall clock of a process is off: another one at each start."""
OPTIONS = {
    "flush_bytes": 64 << 10,
    "flush_deltas_bytes": 32 << 10,
    "scan_threads": 1,
    "load_threads": 1,
    "key_index_bytes": 16 << 20,
    "log_patience_seconds": 5,
}
_HARMLESS = (0, -signal.SIGKILL, EXIT_CODES[UnavailableError.code])


@dataclass
class Member:
    """One of the servers. ``lives`` counts its processes; clients reach all of them at ``location``."""

    number: int
    folder: Path
    way: Way
    lease_seconds: float
    random: Random
    planted: str = ""
    name: str = "a"
    """Of the store."""
    flags: Sequence[str] = ()
    """More of the command line."""
    options: Mapping[str, object] = field(default_factory=dict)
    """In place of those of all."""
    shifts: Sequence[int] = _SHIFTS
    lives: int = 0
    is_stopped: bool = False
    problem: str = ""
    shift_seconds: int = 0
    port: int = field(default_factory=free_port)
    mutex: threading.RLock = field(default_factory=threading.RLock)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.proxy = CutProxy(self.port)
        self.proxy.__enter__()
        self.location = f"grpc://127.0.0.1:{self.proxy.here}"

    @property
    def life(self) -> tuple[int, int]:
        """The identity of its process."""
        return self.number, self.lives

    @property
    def is_ready(self) -> bool:
        """Whether its process has started, and looks whether it may have the store."""
        return (self.way.control / points.READY).exists()

    def start(self) -> None:
        """Start a process; it serves the store when nobody else has it."""
        self.lives += 1
        self.is_stopped = False
        self.shift_seconds = self.random.choice(self.shifts)
        points.disarm(self.way.control)
        (self.way.control / points.READY).unlink(missing_ok=True)
        given = {
            "control": str(self.way.control),
            "shift_seconds": self.shift_seconds,
            "planted": self.planted,
            "chunk_bytes": self.random.choice(_CHUNKS),
        }
        mine = {"lease_seconds": self.lease_seconds, "bucket_cache": self.folder / "cache"}
        options = {**OPTIONS, **self.options, **mine}
        command = [sys.executable, _PROGRAM, json.dumps(given), "--data", self.way.url, "--name", self.name, "--json"]
        command += ["--listen", f"grpc://127.0.0.1:{self.port}", "--drain-seconds", "3", *self.flags]
        command += set_words(**options)
        with (self.folder / f"life-{self.lives}.log").open("wb") as log:
            environment = {**os.environ, **ENVIRONMENT}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def keep(self) -> None:
        """Start it again if it has ended; take note of an end that should not be."""
        with self.mutex:
            code = self.process.poll() if self.process else 0
            if code is None:
                return
            if code not in _HARMLESS:
                self.problem = f"server {self.name}{self.number} ended with {code}:\n{self.last_words()}"
            self.start()

    def last_words(self) -> str:
        """Return the end of what its process wrote."""
        return (self.folder / f"life-{self.lives}.log").read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill -9 its process, and wait until it is gone."""
        with self.mutex:
            self._signal(signal.SIGKILL)
            if self.process:
                self.process.wait(_END_SECONDS)

    def ask_to_end(self) -> None:
        """SIGTERM: a planned stop."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """SIGSTOP: from the outside it looks dead, and does not know it."""
        with self.mutex:
            self.is_stopped = True
            self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        with self.mutex:
            self.is_stopped = False
            self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Stop it in peace, whatever became of it, and close its proxy."""
        with self.mutex:
            self.way.mend()
            self.proxy.mend()
            points.disarm(self.way.control)
            self.go_on()
            self.ask_to_end()
            if self.process:
                try:
                    self.process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    self.kill()
        self.proxy.__exit__()

    def _signal(self, number: int) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)


def wait_for_point(member: Member, seconds: float) -> float | None:
    """Return when a member reached the point that was armed; None if it does not in time, and disarms it."""
    reached, end = member.way.control / points.REACHED, time.monotonic() + seconds
    while time.monotonic() < end:
        if reached.exists():
            return time.monotonic()
        time.sleep(0.01)
    return time.monotonic() if points.disarm(member.way.control) else None

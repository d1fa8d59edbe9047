"""Server processes that share a bucket, which is a directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from nyala.clients.flight.store import FlightStore
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.whereabouts import Whereabouts
from tests.campaigns.options import flags as set_words
from tests.doubles.waiting import until

LEASE_SECONDS = 3.0


class NameProcess:
    """A process that serves the store ``a`` of a bucket, or stands by for it."""

    def __init__(self, bucket: Path, cache: Path, *flags: str, listen: str = "grpc://127.0.0.1:0") -> None:
        command = [sys.executable, "-m", "nyala.flight_server", "--data", f"file://{bucket}", "--name", "a"]
        options = [f"--set=bucket_cache={cache}", f"--set=lease_seconds={LEASE_SECONDS}", f"--listen={listen}"]
        self.log = (cache.parent / f"{cache.name}.log").open("w")
        self.process = subprocess.Popen(
            [*command, *options, *set_words(), "--json", *flags], stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self._told: dict[str, str] | None = None

    @property
    def told(self) -> dict[str, str]:
        """What it printed when it was ready."""
        if self._told is None:
            assert self.process.stdout
            self._told = json.loads(self.process.stdout.readline())
        assert self._told
        return self._told

    @property
    def url(self) -> str:
        return self.told["location"]

    def store(self) -> FlightStore:
        return FlightStore(self.url)

    def itself(self) -> FlightStore:
        """A client of this process alone."""
        return FlightStore(self.url, retries=False)

    def where(self) -> Whereabouts:
        with closing(self.itself()) as process:
            return process.whereabouts()

    def becomes(self, state: str, seconds: float = 90) -> None:
        """Wait until it is the holder, or a standby that knows the holder."""

        def is_so() -> bool:
            try:
                found = self.where()
            except UnavailableError:
                return False
            return found.state == state and found.holder is not None

        until(is_so, seconds)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


Start = Callable[..., NameProcess]
"""Starts a process, with flags."""

"""The server of a campaign, made to be killed: a process on a directory, or two that share a store in a bucket."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from nyala.schemas.errors import UnavailableError
from tests.campaigns.crash.kill9 import Server
from tests.campaigns.failover.name_process import NameProcess
from tests.doubles.ports import free_port
from tests.doubles.waiting import until

_FAILOVER_SECONDS = 120
"""Longer than this no process takes to start, or to take a store over, however slow the machine is."""


class DirectoryServer:
    """One process. While it is killed nobody answers."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        """Start it."""
        self.store = folder / "store"
        self.directory: str | None = str(self.store)
        """What jobs are told that read and write the files of the store past it."""
        self._port = free_port()
        self.start(options)

    def start(self, options: dict[str, Any]) -> None:
        """Start it again, once it was killed."""
        self._server = Server(self.store, self._port, **options)
        self.location = self._server.location

    def kill(self) -> None:
        """Kill it."""
        self._server.kill()

    def close(self) -> None:
        """Kill it for good."""
        self._server.__exit__()


class BucketServer:
    """A holder and a standby, each with its own address. While one is killed the other takes the store over."""

    directory = None

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        """Start both."""
        self._folder = folder
        self.store = folder / "bucket" / "stores" / "a"
        self._locations = [f"grpc://127.0.0.1:{free_port()}" for _ in range(2)]
        self.location = ",".join(self._locations)
        self._running: dict[str, NameProcess] = {}
        self.start(options)

    def start(self, options: dict[str, Any]) -> None:
        """Start what was killed; return when one has the store and the other stands by."""
        settings = [f"--set={name}={value}" for name, value in options.items()]
        for number, location in enumerate(self._locations):
            if location not in self._running:
                cache = self._folder / f"cache{number}"
                self._running[location] = NameProcess(
                    self._folder / "bucket", cache, "--set=lease_seconds=2", *settings, listen=location
                )
        until(lambda: sorted(map(self._state, self._running.values())) == ["holder", "standby"], _FAILOVER_SECONDS)

    @staticmethod
    def _state(process: NameProcess) -> str:
        try:
            return process.where().state
        except UnavailableError:
            return "starting"

    def _holder(self) -> str:
        until(lambda: "holder" in map(self._state, self._running.values()), _FAILOVER_SECONDS)
        return next(at for at, process in self._running.items() if self._state(process) == "holder")

    def kill(self) -> None:
        """Kill the holder."""
        self._running.pop(self._holder()).end()

    def release(self) -> None:
        """Let the holder hand the store over."""
        with closing(self._running[self._holder()].itself()) as process:
            process.server_release("a")

    def close(self) -> None:
        """Kill both."""
        while self._running:
            self._running.popitem()[1].end()

"""Supervisor: several processes that share the tables of one store, on this machine, behind one address.

The parent has no store of its own. It starts a server for each part (`child`), starts one that dies again, and answers
at the public address for all of them (`front`). A client on this machine learns where they listen and asks them
directly, as servers of a placement.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ...clients.cluster.servers import Servers
from ...clients.flight.credentials import Credentials
from ...engine.fs.encryption.key_source import KeySource
from ...engine.fs.encryption.opening import check_key
from ...engine.fs.failures import named
from ...engine.fs.local import LocalFileSystem
from ...engine.fs.store_lock import check_free
from ...engine.options import StoreOptions
from ...schemas.errors import UnavailableError
from ..settings.settings import SECURITY_OPTIONS, Settings
from .balancing import balance
from .child_process import ChildProcess
from .front import Front
from .layout import ProcessLayout, names
from .shares import shares

_LOG = logging.getLogger("nyala.flight_server")
_FORMER_SECONDS = 15.0
"""How much longer than ``drain_seconds`` the processes of a parent that was killed may take to end."""
_THREADS = 64
"""For each process: how many requests of clients at the public address may be there at the same time."""
_KILL_SECONDS = 5.0
"""How much longer than ``drain_seconds`` a process may take to end before it is killed."""


class Supervisor:
    """Starts and stops the processes of a store, whose lock the caller holds until they have ended."""

    def __init__(self, layout: ProcessLayout, count: int, settings: Settings) -> None:
        self.layout = layout
        self.count = count
        self.failure = ""
        """Why the server stopped by itself; empty if it did not."""
        self._settings = settings
        self._drain_seconds = settings.server.drain_seconds / 2
        self._serves = False
        self._children: list[ChildProcess] = []

    def start(self) -> Servers:
        """Start all processes; return connections to them when all are ready.

        Raises:
            UnavailableError: one could not start, or its part of the store is open elsewhere.
            InvalidArgumentError: a part is encrypted with another key, or not, and the others are not started either.
        """
        try:
            directories = [self.layout.directory(name) for name in names(self.count)]
            _wait_until_free(directories, self._drain_seconds)
            self._check_key(directories)
            placement = self.layout.placement(self.count)
            path = self.layout.folder / "placement.json"
            path.write_text(placement.model_dump_json(indent=2) + "\n")
            self._children = [
                ChildProcess(name, self._options(name, path), self.layout.socket(name), self._give_up)
                for name in names(self.count)
            ]
            for child in self._children:
                child.start()
            for child in self._children:
                if (code := child.wait_until_ready()) is not None:
                    raise UnavailableError(
                        f"the process {child.name} could not start: it ended with code {code}; its log lines "
                        "above show why"
                    )
            shown = Credentials(traces=bool(self._settings.serve.traces))
            return Servers(placement, credentials=shown, threads=_THREADS * self.count)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes, each cleanly if it ends in time."""
        for child in self._children:
            child.ask_to_stop()
        until = time.monotonic() + self._drain_seconds + _KILL_SECONDS
        for child in self._children:
            code = child.wait_until_stopped(until - time.monotonic())
            if code:
                _LOG.warning("the process %s ended with code %s", child.name, code)

    def open(self, balanced: bool) -> Front:
        """Start all processes; return the store that all of them are. With ``balanced``, spread the tablets evenly
        before that. SIGTERM is for this server from now on: a process that cannot start again sends it. Raises as
        ``start`` and ``balance``."""
        self._serves = True
        servers = self.start()
        try:
            if balanced:
                balance(servers, self.count)
            return Front(servers, self.stop)
        except BaseException:
            servers.close()
            self.stop()
            raise

    def _check_key(self, directories: list[Path]) -> None:
        """Check the key with all parts there are: a new one is encrypted with it, and must be of the same store."""
        options: Any = self._settings.models[StoreOptions]
        key = KeySource(options.key_file, options.key_command).read()
        for directory in directories:
            with named(f"the store in {directory} could not be read"):
                check_key(LocalFileSystem(directory), key)

    def _options(self, name: str, placement: Path) -> dict[str, Any]:
        """Return the options of a process: those of the server, with its share of memory and threads."""
        given = {option: each.value for option, each in self._settings.given.items()}
        # Their sockets are for this user alone: the front has the TLS, and asks who calls.
        for option in ("processes", "memory_mb", "budget_bytes", "http_port", "http_host", "sql", *SECURITY_OPTIONS):
            given.pop(option, None)
        own = {
            "data": self.layout.directory(name),
            "listen": f"grpc+unix://{self.layout.socket(name)}",
            "placement": placement,
            "name": name,
            "drain_seconds": self._drain_seconds,
        }
        options = self._settings.models[StoreOptions]
        return to_jsonable_python({**given, **shares(options, self.count), **own})

    def _give_up(self, why: str) -> None:
        """Stop the server: it would be a part of a store."""
        if not self.failure:
            self.failure = why
            _LOG.error("%s; stopping", why)
            if self._serves:  # else whoever asks that process gets the error
                os.kill(os.getpid(), signal.SIGTERM)


def _wait_until_free(directories: list[Path], drain_seconds: float) -> None:
    """Wait for processes of a parent that was killed, which end by themselves.

    Raises:
        UnavailableError: a directory is still locked.
    """
    until = time.monotonic() + drain_seconds + _FORMER_SECONDS
    for directory in directories:
        while True:
            try:
                check_free(directory)
                break
            except UnavailableError:
                if time.monotonic() > until or len(directories) == 1:
                    raise
            time.sleep(0.1)

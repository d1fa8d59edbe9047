"""Serves several stores of a bucket on one machine: a process for each name, which has its store or stands by for it.

The first name is that of the store that this machine is to have. To take one of the others it lets other machines be
first: so of two machines with the same names in another order, each has its own while both live.

The parent has no store and answers no request. It starts the processes, and starts one that dies again; so they share
nothing but their memory and the files of their options. When the parent is killed they release their stores and end.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import typer
from pydantic_core import to_jsonable_python

from ...engine.options import StoreOptions
from ...schemas.errors import InvalidArgumentError
from ...schemas.store.locations import DEFAULT_LOCATION
from ..processes.child_process import ChildProcess
from ..processes.shares import memory_shares
from ..runtime.location import counted_up
from ..runtime.logs import log_to_stderr
from ..runtime.service_manager import tell_manager
from ..runtime.stop_signals import StopSignals
from ..settings.config import listed
from ..settings.settings import Settings

_LOG = logging.getLogger("nyala.flight_server")
_FIRST_SECONDS = 10.0
"""How long the first process may take to be ready before the others are started: so machines that start together take
what they are to have before they look at what is left."""
_CLOSING_SECONDS = 1.0
"""How much less than the parent the processes have of the time to stop: they are killed when it is over."""
_OF_MEMORY = ("memory_mb", "budget_bytes")
"""Given as shares instead."""


def serve_names(settings: Settings) -> None:
    """Serve several stores of a bucket, by a process for each name, until a signal.

    Raises:
        InvalidArgumentError: the options contradict each other, or a process cannot start with them.
    """
    options = options_by_name(settings)
    log_to_stderr(settings.serve.log_level, settings.serve.json_output)
    signals = StopSignals().install()
    processes = NamedProcesses(settings, options)
    signals.on_first(processes.ask_to_stop)
    signals.on_second(processes.hurry)
    if settings.serve.has_tls or settings.serve.has_authentication:
        signals.on_hangup(processes.load_again)
    processes.start()
    tell_manager("READY=1")
    signals.wait()
    tell_manager("STOPPING=1")
    processes.stop()
    signals.ignore()
    if processes.failure:
        raise InvalidArgumentError(processes.failure)


class NamedProcesses:
    """The server processes of one machine, one for each store's name, in the order of their names. Thread safe."""

    def __init__(self, settings: Settings, options: dict[str, dict[str, Any]]) -> None:
        """``options`` are those of each process, by its name."""
        self.failure = ""
        """Why the server stopped by itself; empty if it did not."""
        self._is_json = settings.serve.json_output
        self._drain_seconds = settings.server.drain_seconds
        self._children = [self._child(name, own) for name, own in options.items()]

    def start(self) -> None:
        """Start all; return when each is ready, or failed to start, which it goes on trying."""
        first, *others = self._children
        first.start()
        first.wait_until_settled(_FIRST_SECONDS)
        for child in others:
            child.start()
        for child in self._children:
            child.wait_until_settled()

    def ask_to_stop(self) -> None:
        """Let each finish what runs, release its store, and end. Those that were not started yet never will be."""
        for child in self._children:
            child.ask_to_stop()

    def hurry(self) -> None:
        """Let them end what runs."""
        for child in self._children:
            child.hurry()

    def load_again(self) -> None:
        """Let them load certificates and tokens again."""
        for child in self._children:
            child.load_again()

    def stop(self) -> None:
        """Stop all processes, each cleanly if it ends in time; ``start`` has returned."""
        self.ask_to_stop()
        until = time.monotonic() + self._drain_seconds
        for child in self._children:
            code = child.wait_until_stopped(until - time.monotonic())
            if code:
                _LOG.warning("the process %s ended with code %s", child.name, code)

    def _child(self, name: str, options: dict[str, Any]) -> ChildProcess:
        def announced(line: str) -> None:
            typer.echo(line if self._is_json else f"{name}: {line}")

        return ChildProcess(name, options, None, self._give_up, is_apart=True, announced=announced)

    def _give_up(self, why: str) -> None:
        """Stop the server: its options are wrong."""
        self.failure = why
        os.kill(os.getpid(), signal.SIGTERM)


def options_by_name(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the options of the server process of each name: those of the server, with addresses, files and a share of
    the memory of its own.

    Raises:
        InvalidArgumentError: they contradict each other.
    """
    _check(settings)
    names, drain_seconds = settings.serve.names, settings.server.drain_seconds
    store: Any = settings.models[StoreOptions]
    shared = {
        **{option: each.value for option, each in settings.given.items() if option not in _OF_MEMORY},
        **memory_shares(store, len(names)),
        "bucket_cache_bytes": store.bucket_cache_bytes // len(names),
        "drain_seconds": max(drain_seconds - _CLOSING_SECONDS, drain_seconds / 2),
    }
    found: dict[str, dict[str, Any]] = {}
    for at, name in enumerate(names):
        own = {"name": name, "prefer": settings.serve.prefer and at == 0}
        found[name] = to_jsonable_python({**shared, **own, **_addresses(settings, at), **_files(settings, name)})
    return found


def _addresses(settings: Settings, at: int) -> dict[str, Any]:
    """Return the options of where the process with the name ``at`` listens, and is reached."""
    options, count = settings.serve, len(settings.serve.names)
    found: dict[str, Any] = {}
    listen = options.listen or (None if options.placement else DEFAULT_LOCATION)
    for option, given in (("listen", listed(listen)), ("advertise", settings.server.advertise)):
        if given:
            found[option] = counted_up(given, count, f"--{option}")[at]
    if options.http_port is not None:
        found["http_port"] = options.http_port and options.http_port + at
    return found


def _files(settings: Settings, name: str) -> dict[str, Path]:
    """Return the options of files and directories that a process writes, if they were given."""
    audit_log, cache = settings.serve.audit_log, settings.store.get("bucket_cache")
    found = {"audit_log": audit_log.with_stem(f"{audit_log.stem}-{name}")} if audit_log else {}
    return found | ({"bucket_cache": Path(cache) / name} if cache else {})


def _check(settings: Settings) -> None:
    """Raise InvalidArgumentError if the options are not for several names."""
    options, names = settings.serve, settings.serve.names
    if not isinstance(options.data, str):
        raise InvalidArgumentError("several --name are for stores in a bucket: give --data s3://bucket/root")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"--name is given twice for one store: {', '.join(names)}")
    if options.processes is not None:
        raise InvalidArgumentError("--processes cannot be combined with several --name")
    if not options.standby:
        raise InvalidArgumentError(
            "--no-standby cannot be combined with several --name: the process stands by for all names except the first"
        )

"""Serves a store by several processes, after bringing their number to what is asked for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from ...clients.cli.run import EXIT_CODES
from ...engine.options import StoreOptions
from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.service import StoreService
from ..processes.balancing import balance, check_empty
from ..processes.layout import ProcessLayout, names
from ..processes.supervisor import Supervisor
from ..runtime.logs import log_to_stderr
from ..settings.config import ServerConfig
from ..settings.settings import ServeOptions, Settings

_LOG = logging.getLogger("nyala.flight_server")


class Run(Protocol):
    """Runs a server process: serves what ``open_store`` returns until a signal. ``exit_code`` is asked if the process
    has to exit at once."""

    def __call__(
        self, settings: Settings, open_store: Callable[[], StoreService], /, *, exit_code: Callable[[], int]
    ) -> None: ...


def serve_processes(settings: Settings, run: Run) -> bool:
    """Serve one store by several processes, with ``run``, until a signal; return False if the store is for one process.

    Raises:
        InvalidArgumentError: the options contradict each other.
        UnavailableError: a process could not start (again), or another server has the store.
        ConflictError: a process that is to end still has something of a table.
    """
    options = settings.serve
    if options.data is None:
        return False
    if why := _why_one(options):
        if options.processes is not None:
            raise InvalidArgumentError(why)
        return False
    layout = ProcessLayout(Path(os.path.abspath(options.data)))
    most = max(options.processes or 1, layout.count())
    if most == 1 and not layout.folder.exists():
        return False
    log_to_stderr(options.log_level, options.json_output)
    if most > 1:
        layout.check_paths(most)
    with layout.locked():
        existing = layout.count()
        wanted = options.processes or existing
        if wanted < existing:
            _shrink(layout, existing, wanted, settings)
        if wanted == 1:
            return False
        supervisor = Supervisor(layout, wanted, settings)
        run(
            replace(settings, server=_half(settings)),
            lambda: supervisor.open(balanced=options.processes is not None),
            exit_code=lambda: EXIT_CODES[UnavailableError.code] if supervisor.failure else 0,
        )
    if supervisor.failure:
        raise UnavailableError(supervisor.failure)
    return True


def _why_one(options: ServeOptions) -> str:
    """Return why the store cannot have several processes; empty if it can."""
    if isinstance(options.data, str):
        return "a store in a bucket is served by one process: leave --processes out"
    if options.placement is not None or options.name is not None:
        return "--processes makes its own placement: it cannot be combined with --placement and --name"
    return ""


def _half(settings: Settings) -> ServerConfig:
    """Return the parent's limits: when it has drained, the processes have the other half of the time."""
    return settings.server.model_copy(update={"drain_seconds": settings.server.drain_seconds / 2})


def _shrink(layout: ProcessLayout, existing: int, wanted: int, settings: Settings) -> None:
    """Move the tablets of the last processes to the others, and delete their directories."""
    _LOG.info("moving the tablets of %d processes to %d", existing, wanted)
    supervisor = Supervisor(layout, existing, settings)
    servers = supervisor.start()
    try:
        balance(servers, wanted)
    finally:
        servers.close()
        supervisor.stop()
    from ..processes.embedded import PartsStore  # the engine: no other parent needs it

    gone = names(existing)[wanted:]
    # Until they stopped, clients could still make tables and ranges there, and drop tables that can be recalled.
    with closing(PartsStore(layout, cast(StoreOptions, settings.models[StoreOptions]))) as parts:
        check_empty(parts.servers, gone)
    layout.retire(gone)

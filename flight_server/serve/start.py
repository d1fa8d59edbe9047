"""Starting a server by its settings: what it listens with, and the store that it opens.

`serve_one` serves one store in this process; `run_store` is its last step, which processes and standbys share.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.gc_pause import collector_paused
from ...schemas.store.locations import DEFAULT_LOCATION
from ...schemas.store.placement import ServerIdentity
from ..runtime.opening import open_warm

if TYPE_CHECKING:
    from ...clients.flight.credentials import Credentials
    from ...schemas.protocol.service import StoreService
    from ..requests.traces import Traces
    from ..security.security import Security
    from ..settings.settings import ServeOptions, Settings
    from .name_server import NameServer
    from .port import HttpPort


def serve_one(settings: Settings) -> None:
    """Run this process as a server by its settings: serve a store until SIGTERM or Ctrl-C."""
    options = settings.serve
    data = data_place(settings)
    name = options.name if isinstance(data, str) else None
    here = _here(options.placement, options.name) if options.placement or not name else None
    shown = _credentials(options) if here else None
    if options.replica and not (name and options.standby):
        raise InvalidArgumentError(
            "--replica needs --data with a bucket, --name, and no --no-standby: see docs/failover.md"
        )
    if name and options.standby:
        from .one_name import serve_name

        serve_name(settings, partial(run_store, settings, here=here), here, shown)
    else:
        run_store(settings, lambda: _opened_at_once(data, settings, here, shown, name), here)


def _opened_at_once(
    data: Path | str, settings: Settings, here: ServerIdentity | None, shown: Credentials | None, name: str | None
) -> StoreService:
    """Open a store for which nobody waits. Raises as ``open_warm``."""
    try:
        return open_warm(data, settings.store, here, shown, name)
    except UnavailableError as error:
        if error.locations is None:
            raise
        raise UnavailableError(f"{error.message}, or leave --no-standby out to wait for it") from None


def _credentials(options: ServeOptions) -> Credentials:
    """Return what this server shows the others of its placement; what is not given, the environment says."""
    from ...clients.flight.credentials import Credentials, TokenFile

    file = options.cluster_token_file
    return Credentials.of(TokenFile(file) if file else None, options.cluster_tls_roots, traces=bool(options.traces))


def data_place(settings: Settings) -> Path | str:
    """Return the data directory that a server process is to serve, or a URL. Raises InvalidArgumentError if it is not
    given, or a file."""
    data = settings.serve.data
    if data is None:
        raise InvalidArgumentError("no data directory: give --data DIR, data in the config file, or NYALA_DATA")
    if isinstance(data, Path) and data.exists() and not data.is_dir():
        raise InvalidArgumentError(f"{data} is a file; --data must name the directory of a store")
    return data


def run_store(
    settings: Settings,
    open_store: Callable[[], StoreService],
    here: ServerIdentity | None = None,
    exit_code: Callable[[], int] = int,
    process: NameServer | None = None,
) -> None:
    """Run this process as the server of the store that ``open_store`` returns; see ``run_server``."""
    with collector_paused():
        from ..runtime.location import advertised, check_free, check_location, check_reach, with_tls
        from ..runtime.logs import log_to_stderr
        from .lifecycle import run_server

    options, data = settings.serve, data_place(settings)
    listen = options.listen or (here.placement.servers[here.server][0] if here else DEFAULT_LOCATION)
    if options.has_tls:
        listen = with_tls(listen)
    check_location(listen, options.insecure, options.has_tls, options.has_authentication)
    if options.http_port is not None:
        check_reach(options.http_host, options.insecure, options.has_tls, options.has_authentication)
    log_to_stderr(options.log_level, options.json_output, options.name)
    private = (str(data.absolute()), os.path.realpath(data)) if isinstance(data, Path) else (data,)
    named = tuple(advertised(each, options.has_tls) for each in settings.server.advertise)
    config = settings.server.model_copy(update={"private_paths": private, "advertise": named})

    security = _security(options)
    http = _http(settings, security, config.private_paths)
    traces = _traces(options)
    check_free(listen)  # after the HTTP port listens: it may be the same one
    also = {"http": http.url} if http else {}

    def announce(location: str) -> None:
        line = {"location": location, **also, "pid": os.getpid(), **({"name": options.name} if options.name else {})}
        text = f"listening on {' and '.join((location, *also.values()))}"
        typer.echo(json.dumps(line) if options.json_output else text)

    run_server(open_store, listen, config, announce, security, exit_code, http, traces, process, options.name)


def _http(settings: Settings, security: Security | None, private_paths: tuple[str, ...]) -> HttpPort | None:
    """Return the port for HTTP, which listens; None if none is asked for, and then nothing is imported."""
    options = settings.serve
    if options.http_port is None:
        return None
    try:
        from ..http.console.visit import Surroundings
        from .port import HttpPort
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"an HTTP port needs the package {error.name}: pip install 'nyala[http]', or leave http_port out"
        ) from None
    around = Surroundings(options.name or "", settings.shown)
    logging.getLogger("nyala").addHandler(around.log)
    return HttpPort(options.http_host, options.http_port, security, private_paths, around)


def _traces(options: ServeOptions) -> Traces | None:
    """Return what sends traces; None if nobody wants them, and then nothing is imported."""
    if options.traces is None:
        return None
    try:
        from ..requests.traces import Traces
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"traces need the package {error.name}: pip install 'nyala[otel]', or leave the option traces out"
        ) from None
    return Traces(options.traces, options.name)


def _security(options: ServeOptions) -> Security | None:
    """Return what the server listens with; None if nothing of it is asked for, and then nothing is imported."""
    if not (options.has_tls or options.has_authentication or options.audit_log or options.admins):
        return None
    from ..security.security import Security

    return Security(options)


def _here(placement: Path | None, name: str | None) -> ServerIdentity | None:
    """Return the identity of the server ``name`` in a placement file; None without a file."""
    if placement is None and name is None:
        return None
    if placement is None or name is None:
        raise InvalidArgumentError(
            "--placement and --name must be given together: the placement file, and the name of this server in the "
            "file; or give a bucket: --data s3://bucket/root"
        )
    from ...clients.cluster.placement_file import read_placement

    found = read_placement(placement)
    if name not in found.servers:
        raise InvalidArgumentError(f"{placement} has no server {name!r}; known: {', '.join(found.servers)}")
    return ServerIdentity(found, name)

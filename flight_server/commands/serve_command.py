"""``nyala serve``, which imports what it uses when it runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..serve import options as serve_options
from ..serve.start import run_store, serve_one

if TYPE_CHECKING:
    from ..settings.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def serve(
    data: serve_options.Data = None,
    listen: serve_options.Listen = None,
    http_port: serve_options.HttpPort = None,
    advertise: serve_options.Advertise = None,
    insecure: serve_options.Insecure = None,
    sql: serve_options.Sql = None,
    tls_cert: serve_options.TlsCert = None,
    tls_key: serve_options.TlsKey = None,
    tls_client_ca: serve_options.TlsClientCa = None,
    tokens: serve_options.Tokens = None,
    key_file: serve_options.KeyFile = None,
    key_command: serve_options.KeyCommand = None,
    memory_mb: serve_options.MemoryMb = None,
    scans_max: serve_options.ScansMax = None,
    puts_max: serve_options.PutsMax = None,
    drain_seconds: serve_options.DrainSeconds = None,
    maintenance: serve_options.Maintenance = None,
    import_storage: serve_options.ImportStorage = None,
    placement: serve_options.PlacementFile = None,
    name: serve_options.Names = None,
    processes: serve_options.Processes = None,
    standby: serve_options.Standby = None,
    replica: serve_options.Replica = None,
    log_level: serve_options.LogLevel = None,
    json_output: serve_options.JsonLog = None,
    traces: serve_options.Traces = None,
    assignments: serve_options.Assignments = None,
    config: serve_options.Config = None,
) -> None:
    """Serve a data directory over Arrow Flight until SIGTERM or Ctrl-C.

    Options also come from environment variables NYALA_<NAME> and from a file; flags win, then the environment.
    """
    settings = settings_of(dict(locals()))
    if len(settings.serve.names) > 1:
        from ..serve.several_names import serve_names

        return serve_names(settings)
    from ..serve.processes import serve_processes

    if not serve_processes(settings, run_store):
        serve_one(settings)


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """Return the settings of a server by the options of ``serve``, the environment and a file. Raises as
    ``read_settings``."""
    from ..settings.settings import read_settings

    values = {name: value for name, value in flags.items() if name not in ("assignments", "config")}
    values = {name: ",".join(each) or None if isinstance(each, list) else each for name, each in values.items()}
    return read_settings(values, flags["assignments"] or [], os.environ, flags["config"])

"""The options of ``nyala serve``, in groups; a few are those of other commands, too.

A default that the help names is that of the option's field in ``settings``, which is not imported to print help.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ...clients.cli.complete import one_of
from ...schemas.store.locations import DEFAULT_LOCATION

_address = partial(typer.Option, rich_help_panel="Addresses")
_security = partial(typer.Option, rich_help_panel="TLS, login and encryption")
_limit = partial(typer.Option, rich_help_panel="Memory and limits")
_several = partial(typer.Option, rich_help_panel="Several servers and processes")
_watching = partial(typer.Option, rich_help_panel="Watching")

Data = Annotated[str | None, typer.Option(help="The data directory, or the URL of a bucket; created if missing.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any other option as name=value; nyala config show lists them.")
]
Config = Annotated[Path | None, typer.Option(help="A TOML file of options; also by NYALA_CONFIG.")]

Listen = Annotated[
    list[str] | None,
    _address(
        help="Where to listen; port 0 picks a free port. With several --name, once for each, or only once to count "
        "the ports up.",
        show_default=f"{DEFAULT_LOCATION}, or from the placement",
    ),
]
HttpPort = Annotated[
    int | None,
    _address(
        min=0,
        max=65535,
        help="Serve the console, health and metrics over HTTP on this port; 0 picks a free port.",
        show_default="none",
    ),
]
Advertise = Annotated[
    list[str] | None,
    _address(
        help="The location that clients are given for this server: grpc://host:port. With several --name as --listen."
    ),
]
Insecure = Annotated[
    bool | None, _address("--insecure", help="Listen on an address that other machines reach, without TLS or login.")
]

Sql = Annotated[bool | None, _address("--sql", help="Answer Flight SQL, for ADBC, JDBC and the tools that use them.")]

TlsCert = Annotated[Path | None, _security(help="The server's certificate, in PEM.")]
TlsKey = Annotated[Path | None, _security(help="The private key of --tls-cert.")]
TlsClientCa = Annotated[
    Path | None, _security(help="The root certificates that certify clients, in PEM; clients then need a certificate.")
]
Tokens = Annotated[Path | None, _security(help="The token file; clients then need a token.")]
KeyFile = Annotated[str | None, _security(help="A file with the key of an encrypted store; also by NYALA_KEY_FILE.")]
KeyCommand = Annotated[str | None, _security(help="A shell command that prints this key; also by NYALA_KEY_COMMAND.")]

MemoryMb = Annotated[
    int | None, _limit(min=16, help="Memory for the store in MiB, on top of about 300 for the process.")
]
ScansMax = Annotated[int | None, _limit(min=1, help="Maximum concurrent scans.", show_default="64")]
PutsMax = Annotated[int | None, _limit(min=1, help="Maximum concurrent write streams.", show_default="64")]
DrainSeconds = Annotated[float | None, _limit(min=0, help="Maximum seconds that a stop takes.", show_default="10")]
Maintenance = Annotated[
    str | None,
    _limit(help="on, or off to flush only on request.", show_default="on", autocompletion=one_of("on", "off")),
]
ImportStorage = Annotated[
    str | None,
    _limit(help="Where bulk imports stage files, such as s3://bucket/prefix.", show_default="the data directory"),
]

PlacementFile = Annotated[Path | None, _several(help="The placement file of the servers that share their tables.")]
Names = Annotated[
    list[str] | None,
    _several(
        help="This server's name in the placement file; or the name of the store in a bucket, to be repeated for "
        "further stores for which the process stands by."
    ),
]
Processes = Annotated[
    int | None,
    _several(
        min=1,
        max=64,
        help="Number of processes that share the store's tablets, to use as many processors.",
        show_default="as many as the store has",
    ),
]
Standby = Annotated[
    bool | None,
    _several(
        "--standby/--no-standby",
        help="With a bucket: whether to wait while another process has the store, or to fail.",
        show_default="standby",
    ),
]
Replica = Annotated[
    bool | None, _several("--replica", help="While waiting for the store, answer reads, which may be behind.")
]

LogLevel = Annotated[
    str | None,
    _watching(
        help="The lowest level that is logged: debug, info, warning or error.",
        show_default="info",
        autocompletion=one_of("debug", "info", "warning", "error"),
    ),
]
JsonLog = Annotated[bool | None, _watching("--json", help="Print and log JSON.")]
Traces = Annotated[
    str | None,
    _watching(help="The OpenTelemetry collector to send traces of requests to, such as http://127.0.0.1:4318."),
]

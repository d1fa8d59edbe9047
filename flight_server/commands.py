"""The commands that need the store itself: serve, verify, dump and warmup. Each imports what it uses when it runs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ..schemas.errors import InvalidArgumentError, NotFoundError
from ..schemas.placement import Here
from .location import DEFAULT_LOCATION

if TYPE_CHECKING:
    from ..engine.verify import VerifyReport
    from ..schemas.service import StoreService

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def serve(
    data: Annotated[Path, typer.Option(help="The data directory; made when it is missing.")],
    listen: Annotated[
        str | None,
        typer.Option(
            help=f"Where to listen; port 0 takes any free one.  [default: {DEFAULT_LOCATION}, or as the placement says]"
        ),
    ] = None,
    json_output: Json = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen where other machines reach it: there is no TLS or login yet.")
    ] = False,
    drain_seconds: Annotated[float, typer.Option(min=0, help="What running requests get after SIGTERM.")] = 10.0,
    scans_max: Annotated[int, typer.Option(min=1, help="Scans at once.")] = 64,
    puts_max: Annotated[int, typer.Option(min=1, help="Write streams at once.")] = 64,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    maintenance: Annotated[str, typer.Option(help="on, or off: flush only when asked to.")] = "on",
    memory_mb: Annotated[
        int | None, typer.Option(min=16, help="Memory for the store, beside about 300 MB for the process.")
    ] = None,
    placement: Annotated[
        Path | None, typer.Option(help="The placement file of the servers that share their tables.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What this server is called there.")] = None,
    import_storage: Annotated[
        str | None, typer.Option(help="Where files of bulk imports are put, as s3://bucket/prefix; else in the data.")
    ] = None,
) -> None:
    """Serve a data directory over Arrow Flight, until SIGTERM or Ctrl-C."""
    from .config import ServerConfig
    from .lifecycle import run_server
    from .location import check_location
    from .logs import log_to_stderr

    here = _here(placement, name)
    listen = listen or (here.placement.servers[here.server][0] if here else DEFAULT_LOCATION)
    check_location(listen, insecure)
    log_to_stderr(log_level, json_output)
    config = ServerConfig(
        scans_max=scans_max,
        puts_max=puts_max,
        drain_seconds=drain_seconds,
        private_paths=(str(data.absolute()), os.path.realpath(data)),
    )

    def announce(location: str) -> None:
        line = json.dumps({"location": location, "pid": os.getpid()}) if json_output else f"listening on {location}"
        typer.echo(line)

    run_server(lambda: open_warm(data, maintenance, memory_mb, here, import_storage), listen, config, announce)


def _here(placement: Path | None, name: str | None) -> Here | None:
    """Return what a placement file says of the server ``name``; None without one."""
    if placement is None and name is None:
        return None
    if placement is None or name is None:
        raise InvalidArgumentError("--placement and --name go together: the file, and which of its servers this is")
    from ..clients.servers.placement_file import read_placement

    found = read_placement(placement)
    if name not in found.servers:
        raise InvalidArgumentError(f"{placement} has no server {name!r}; there are {', '.join(found.servers)}")
    return Here(found, name)


def open_warm(
    data: Path,
    maintenance: str,
    memory_mb: int | None = None,
    here: Here | None = None,
    import_storage: str | None = None,
) -> StoreService:
    """Open a store whose kernels are compiled, so that no request waits for the compiler.

    Raises:
        StoreError: what opening raises.
    """
    from ..engine.kernels.warmup import warm_up
    from ..engine.options import StoreOptions
    from ..engine.store import Store

    if maintenance not in ("on", "off"):
        raise InvalidArgumentError(f"maintenance is on or off, not {maintenance!r}")
    warm_up()
    budget = memory_mb << 20 if memory_mb else None
    shared = {"placement": here.placement, "server": here.server} if here else {}
    options = StoreOptions(
        maintenance=maintenance,  # pyright: ignore[reportArgumentType]
        budget_bytes=budget,
        import_storage=import_storage,
        **shared,
    )
    store = Store.open(data, options)
    if here is None:
        return store
    from .gateway import Gateway

    return cast("StoreService", Gateway(store, here))


def warmup(json_output: Json = False) -> None:
    """Compile all kernels ahead of their first use, or find them compiled."""
    from rich.console import Console
    from rich.progress import Progress

    from ..engine.kernels.warmup import warm_up

    with Progress(console=Console(stderr=True), transient=True, disable=json_output) as progress:
        task = progress.add_task("kernels", total=None)
        count = warm_up(lambda done, total, name: progress.update(task, completed=done, total=total, description=name))
    typer.echo(json.dumps({"kernels": count}) if json_output else f"{count} kernels are ready")


def verify(
    directory: Annotated[Path, typer.Argument(help="A data directory that no server has open.")],
    json_output: Json = False,
) -> None:
    """Check every byte of a store, offline; exit with 1 if anything is wrong."""
    from ..engine.fs.local import LocalFileSystem
    from ..engine.verify import verify_store

    report = verify_store(LocalFileSystem(_existing(directory)))
    if json_output:
        typer.echo(json.dumps(asdict(report)))
    else:
        _print_report(report)
    if not report.is_sound:
        raise typer.Exit(1)


def _print_report(report: VerifyReport) -> None:
    counts = f"{report.files:,} files, {report.bytes:,} bytes, {report.rows:,} rows, {report.log_records:,} log records"
    typer.echo(f"checked {counts}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    for problem in report.problems:
        typer.secho(problem, fg=typer.colors.RED)
    typer.echo("all is well" if report.is_sound else f"{len(report.problems):,} problems")


def dump(file: Annotated[Path, typer.Argument(help="A file of a store: column file, log segment, manifest.")]) -> None:
    """Show what a file of a store holds, as JSON."""
    from ..engine.dump import dump_file

    typer.echo(json.dumps(dump_file(_existing(file)), indent=2, default=str))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise NotFoundError(f"there is no {path}")
    return path

"""The ``nyala`` command, assembled from the commands of clients and server; each is loaded only when used."""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated, Any

import typer

from nyala.clients.cli import cluster, credentials, grant, job, perf, pin, spark, table, tablet
from nyala.clients.cli.checkpoint import checkpoint
from nyala.clients.cli.health import health
from nyala.clients.cli.run import run
from nyala.clients.cli.sources.consume import consume
from nyala.clients.cli.sources.follow import follow
from nyala.clients.cli.sources.mirror import mirror
from nyala.clients.cli.sql.command import sql
from nyala.clients.cli.top import top
from nyala.flight_server.commands import (
    bucket_commands,
    config_commands,
    key_commands,
    server_commands,
    store_commands,
    token_commands,
)
from nyala.flight_server.commands import (
    serve_command as commands,
)


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # to look for some reads the names of all packages
    import nyala

    run(lambda: _command()(obj=nyala.open, prog_name="nyala"))


@cache
def _command() -> Any:
    """Return what typer makes of the whole command line: making it takes longer than most commands."""
    command = typer.main.get_command(make_app())
    credentials.give_to_verbs(command)
    return command


def make_app() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(nyala_command)
    files = store_commands.verify, store_commands.repair, store_commands.dump, store_commands.warmup
    sources = mirror, consume, follow
    for command in (commands.serve, health, top, sql, *sources, checkpoint, demo, *files, bucket_commands.sweep):
        app.command()(command)
    for name, verb in table.VERBS.items():
        app.command(name, rich_help_panel="Tables (short forms)")(verb)
    app.add_typer(table.app, name="table")
    app.add_typer(tablet.app, name="tablet")
    app.add_typer(cluster.app, name="cluster")
    app.add_typer(job.app, name="job")
    app.add_typer(perf.app, name="perf")
    app.add_typer(pin.app, name="pin")
    app.add_typer(spark.app, name="spark")
    app.add_typer(config_commands.app, name="config")
    app.add_typer(server_commands.app, name="server")
    app.add_typer(token_commands.app, name="token")
    app.add_typer(key_commands.app, name="key")
    app.add_typer(grant.app, name="grant")
    return app


def nyala_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=lambda on: _version(on))
    ] = False,
    token_file: credentials.TokenFile = None,
    tls_roots: credentials.TlsRoots = None,
    client_cert: credentials.ClientCert = None,
    client_key: credentials.ClientKey = None,
    key_file: credentials.KeyFile = None,
    key_command: credentials.KeyCommand = None,
) -> None:
    """Nyala: a mutable columnar store in the shape of Apache Kudu, served over Arrow Flight."""
    # The callbacks of the options have done their work.
    if context.invoked_subcommand != "serve":
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC adds lines of its own to an error of TLS


def _version(wanted: bool) -> None:
    if wanted:
        import nyala

        typer.echo(f"nyala {nyala.__version__}")
        raise typer.Exit


def demo() -> None:
    """Show what Nyala does: a server, a client, a year of flights, a crash. It takes a minute, the first time three."""
    from nyala.clients.demo.story import run_demo

    run_demo()


if __name__ == "__main__":
    main()

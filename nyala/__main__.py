"""The ``nyala`` command, assembled from the commands of clients and server; each is loaded only when used."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer

from nyala.clients.cli import job, spark, table, tablet
from nyala.clients.cli.health import health
from nyala.clients.cli.run import run
from nyala.flight_server import commands


def main() -> None:
    """Run the command line."""
    import nyala

    run(lambda: _command()(obj=nyala.open, prog_name="nyala"))


@cache
def _command() -> Any:
    """Return what typer makes of the whole command line: making it takes longer than most commands."""
    return typer.main.get_command(make_app())


def make_app() -> typer.Typer:
    """Return the whole command line."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(nyala_command)
    for command in (commands.serve, health, demo, commands.verify, commands.repair, commands.dump, commands.warmup):
        app.command()(command)
    for name, verb in table.VERBS.items():
        app.command(name, rich_help_panel="Tables (short forms)")(verb)
    app.add_typer(table.app, name="table")
    app.add_typer(tablet.app, name="tablet")
    app.add_typer(job.app, name="job")
    app.add_typer(spark.app, name="spark")
    return app


def nyala_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=lambda on: _version(on))
    ] = False,
) -> None:
    """Nyala: a mutable columnar store in the shape of Apache Kudu, served over Arrow Flight."""


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

"""The ``nyala`` command, put together from what clients and server contribute; each part is loaded when used."""

from __future__ import annotations

import typer

from nyala.clients.cli import job, spark, table, tablet
from nyala.clients.cli.run import run
from nyala.flight_server import commands


def main() -> None:
    """Run the command line."""
    import nyala

    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Nyala: a mutable columnar store in the shape of Apache Kudu, served over Arrow Flight.",
    )
    for command in (commands.serve, demo, commands.verify, commands.dump, commands.warmup):
        app.command()(command)
    app.add_typer(table.app, name="table")
    app.add_typer(tablet.app, name="tablet")
    app.add_typer(job.app, name="job")
    app.add_typer(spark.app, name="spark")
    run(lambda: app(obj=nyala.open, prog_name="nyala"))


def demo() -> None:
    """Show what Nyala does, in about a minute: a server, a client, a year of flights, a crash."""
    from nyala.clients.demo.story import run_demo

    run_demo()


if __name__ == "__main__":
    main()

"""``nyala mirror``: mirrors tables of a PostgreSQL database, and keeps them up to date."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import counted
from ..options import Workers
from ..target import Target, takes_target
from .progress_lines import ProgressLines
from .stopping import stopped_by_signals

_SCHEMES = ("postgresql://", "postgres://")

Address = Annotated[
    str,
    typer.Argument(
        help="The database, as postgresql://user@host:port/database. Better than in it is a password in PGPASSWORD or "
        "~/.pgpass: all users of a machine see its command lines."
    ),
]
Tables = Annotated[list[str], typer.Option("--table", help="A table, as schema.table; repeatable.")]
Targets = Annotated[
    list[str] | None,
    typer.Option("--as", help="The name of the table here; once for each --table.", show_default="as there"),
]
SourceName = Annotated[
    str, typer.Option("--source", help="The name of the mirror in nyala_sources.", show_default="the database's name")
]
Once = Annotated[bool, typer.Option("--until-caught-up", "--once", help="End when all changes so far are applied.")]
Again = Annotated[bool, typer.Option("--again", help="Copy the tables anew, whatever is here.")]


@takes_target()
def mirror(
    target: Target,
    address: Address,
    tables: Tables,
    targets: Targets = None,
    source: SourceName = "",
    until_caught_up: Once = False,
    again: Again = False,
    workers: Workers = None,
) -> None:
    """Copy tables of a PostgreSQL database, and then apply their changes, exactly once, until Ctrl-C.

    nyala mirror postgresql://reader@db.example/shop --table public.orders --table public.customers --as clients

    A later run continues where the last one ended. The table nyala_sources shows how far each mirror is.
    """
    if not address.startswith(_SCHEMES):
        raise InvalidArgumentError("give the address of a database as postgresql://user@host/database")
    if targets and len(targets) != len(tables):
        raise InvalidArgumentError(
            f"{counted(len(tables), 'table')} and {counted(len(targets), 'name')}: give --as once for each --table, or "
            "not at all"
        )
    from ...sources.postgres.postgres_source import PostgresSource, target_of
    from ...sources.runner import Runner

    chosen = dict(zip(tables, targets or map(target_of, tables), strict=True))
    threads = workers or 2
    origin = PostgresSource(address, chosen, source, threads)
    with target.database(create=True) as database:
        lines = ProgressLines(sys.stderr.isatty(), target.json_output)
        runner = Runner(database, origin, lines.report, workers=threads)
        try:
            with stopped_by_signals(runner.stop):
                position = runner.run(until_caught_up, again)
        finally:
            origin.close()
            lines.end()
    if not target.prints_json(position):
        if position.position is None:
            typer.echo("stopped during the copy: the next run begins it again")
            return
        rows, transactions = lines.counts
        applied = f"{counted(rows, 'change')} in {counted(transactions, 'transaction')}"
        typer.echo(f"{position.source} is at {position.position}; applied {applied}")

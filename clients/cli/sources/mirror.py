"""``nyala mirror``: mirrors tables of a PostgreSQL database, and keeps them up to date."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import counted
from ..options import Workers
from ..target import Target, takes_target
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from ...sources.runner import Progress

_SCHEMES = ("postgresql://", "postgres://")
_LINE_SECONDS = 5.0
_MIB = 1 << 20

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
        lines = _Lines(sys.stderr.isatty(), target.json_output)
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


class _Lines:
    """The lines about a mirror on standard error: one that changes on a terminal, one every few seconds elsewhere."""

    def __init__(self, is_terminal: bool, is_quiet: bool) -> None:
        self._is_terminal = is_terminal
        self._is_quiet = is_quiet
        self._at = 0.0
        self._rows_then = 0
        self._note = ""
        self._has_line = False
        self.counts = (0, 0)
        """Changes and transactions applied so far."""

    def report(self, progress: Progress) -> None:
        """Show how far the runner is."""
        if progress.state == "following":
            self.counts = (progress.rows, progress.transactions)
        now = time.monotonic()
        is_due = now - self._at >= (1.0 if self._is_terminal else _LINE_SECONDS)
        if self._is_quiet or not (is_due or progress.note != self._note):
            return
        text = self._text(progress, now - self._at if self._at else None)
        self._at, self._rows_then, self._note = now, progress.rows, progress.note
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._has_line = True
        else:
            typer.echo(text, err=True)

    def _text(self, progress: Progress, seconds: float | None) -> str:
        if progress.note:
            return progress.note
        if progress.state == "copying":
            return f"copying: {progress.parts} of {counted(progress.parts_in_all, 'part')}, {progress.rows:,} rows"
        rate = 0.0 if not seconds else max(progress.rows - self._rows_then, 0) / seconds
        behind = "" if progress.lag_bytes is None else f", {progress.lag_bytes / _MIB:,.1f} MiB behind"
        lag = "" if progress.lag_seconds is None else f", lag {progress.lag_seconds:.1f} s"
        return f"at {progress.position}: {progress.rows:,} changes, {rate:,.0f} a second{behind}{lag}"

    def end(self) -> None:
        """End the line on a terminal."""
        if self._has_line:
            sys.stderr.write("\n")

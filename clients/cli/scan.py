"""``nyala table scan`` and ``changes``: rows to the terminal, a pipe or a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from .options import AsOf, Columns, CsvRows, JsonRows, Limit, Output, WhereText, moment, names
from .target import Data, Name, ReadOnly, StoreName, Url, database

if TYPE_CHECKING:
    from ..api.scan import Scan

_FOLLOW_SECONDS = 1.0


def scan(
    context: typer.Context,
    name: Name,
    columns: Columns = None,
    where: WhereText = None,
    as_of: AsOf = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="Sort by the primary key.")] = False,
    order_by: Annotated[str | None, typer.Option(help='Sort by any columns: "price desc nulls first, city".')] = None,
    limit: Limit = None,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many rows first.")] = 0,
    max_staleness: Annotated[
        float | None, typer.Option(min=0, help="Allow answers of a replica that is at most this many seconds behind.")
    ] = None,
    output: Output = None,
    count: Annotated[bool, typer.Option("--count", help="Only print the number of rows.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only print how the scan would run.")] = False,
    analyze: Annotated[bool, typer.Option("--analyze", help="Run the scan and print its cost.")] = False,
    url: Url = None,
    data: Data = None,
    store: StoreName = None,
    read_only: ReadOnly = False,
    json_output: JsonRows = False,
    csv_output: CsvRows = False,
) -> None:
    """Print rows, or write them to a file. A terminal shows the first 100 rows, a pipe or file gets all."""
    from .output import print_json

    with database(context, url, data, store, read_only=read_only) as db:
        chosen = names(columns) if columns else None
        wanted = db.table(name).scan(chosen, where, moment(as_of), ordered, limit, order_by, offset, max_staleness)
        if explain or analyze:
            plan = wanted.explain(analyze)
            print_json(plan) if json_output else typer.echo(str(plan))
        elif count:
            typer.echo(wanted.count())
        else:
            _put_out(wanted, output, json_output, csv_output, limit is not None)


def changes(
    context: typer.Context,
    name: Name,
    since: Annotated[
        str, typer.Option(help="Only changes after this: a timestamp, ISO time with zone, or an age such as 2h.")
    ],
    until: AsOf = None,
    columns: Columns = None,
    where: WhereText = None,
    before: Annotated[bool, typer.Option("--before", help="Add the previous values as _before_<column>.")] = False,
    every: Annotated[bool, typer.Option("--every", help="Print every change, not the net change of each key.")] = False,
    ordered: Annotated[bool, typer.Option("--ordered", help="Sort by the primary key.")] = False,
    limit: Limit = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then print new changes as they come, each second, until Ctrl-C.")
    ] = False,
    output: Output = None,
    url: Url = None,
    data: Data = None,
    store: StoreName = None,
    read_only: ReadOnly = False,
    json_output: JsonRows = False,
    csv_output: CsvRows = False,
) -> None:
    """Print the changes between two times: _op, _timestamp and the columns of each row (docs/changes.md)."""
    from .output import print_rows, row_format

    if follow and (until or output or limit is not None):
        raise InvalidArgumentError(
            "--follow runs until Ctrl-C: it cannot be combined with --until, --limit or --output"
        )
    with database(context, url, data, store, read_only=read_only) as db:
        chosen = names(columns) if columns else None
        start, end = moment(since), moment(until)
        assert start is not None
        table = db.table(name)
        feed = table.changes(start, end, chosen, where, before, every, ordered, limit)
        _put_out(feed, output, json_output, csv_output, limit is not None or follow)
        while follow:
            time.sleep(_FOLLOW_SECONDS)
            feed = table.changes(feed.snapshot or 0, None, chosen, where, before, every, ordered)
            news = feed.to_arrow()
            if news.num_rows:
                print_rows(news, row_format(json_output, csv_output), is_limited=True, is_continued=True)


def _put_out(wanted: Scan, output: Path | None, as_json: bool, as_csv: bool, is_limited: bool = False) -> None:
    from .output import print_rows, row_format, write_scan

    if as_json + as_csv + (output is not None) > 1:
        raise InvalidArgumentError("give only one of --json, --csv and --output")
    if output is not None:
        typer.echo(f"wrote {counted(write_scan(wanted, output), 'row')} to {output}")
    else:
        print_rows(wanted, row_format(as_json, as_csv), is_limited)

"""``nyala follow``: loads files as they come to a folder or a bucket."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from ....schemas.phrases import counted
from ..load import Charset, Delimiter, Format, Header, Op, read_options
from ..options import AsJson
from ..run import FINDINGS
from ..target import Target, takes_target
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from ...jobs.files.follow_job import FollowedFile

Place = Annotated[str, typer.Argument(help="A folder, or a URI such as s3://bucket/prefix.")]
TableName = Annotated[str, typer.Option("--table", help="The table that the files are loaded into.")]
Once = Annotated[bool, typer.Option("--once", help="End when all files that are there are done.")]
Interval = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")]


@takes_target()
def follow(
    target: Target,
    place: Place,
    table: TableName,
    op: Op = "upsert",
    once: Once = False,
    interval: Interval = 5.0,
    format: Format = None,
    delimiter: Delimiter = None,
    header: Header = True,
    charset: Charset = "utf-8",
    as_json: AsJson = False,
) -> None:
    """Load each file of a folder, and each that comes, once, as one commit, until Ctrl-C.

    nyala follow s3://bucket/orders --table orders

    A file with a row that does not fit is refused as a whole; the exit code is then 1. The table nyala_files has a row
    for each file.
    """
    from ...jobs.files.follow_job import follow as follow_files

    options = read_options(format=format, delimiter=delimiter, header=header, charset=charset, as_json=as_json)
    stop = threading.Event()

    def report(file: FollowedFile) -> None:
        if not target.json_output:
            rows = f", {counted(file.rows, 'row')}" if file.state == "loaded" else f": {file.message}"
            typer.echo(f"{file.state} {file.path}{rows}", err=file.state != "loaded")

    with target.database() as db, stopped_by_signals(stop.set):
        result = follow_files(
            db, table, place, op=op, options=options, once=once, interval=interval, stop=stop, report=report
        )
    if not target.prints_json(result):
        refused = f", {result.refused:,} refused" if result.refused else ""
        left = f", {result.left:,} left because they change or cannot be read" if result.left else ""
        typer.echo(f"{counted(result.loaded, 'file')} loaded{refused}{left}, {counted(result.rows, 'row')}")
    if result.refused or (once and result.left):
        raise typer.Exit(FINDINGS)

"""``nyala pin``: snapshots that are kept until they are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...schemas.phrases import counted
from .complete import tables
from .job_options import JobOptions
from .options import AsOf, moment
from .target import Target, takes_target

app = typer.Typer(no_args_is_help=True, help="Keep snapshots of tables until they are dropped, and restore them.")

Pin = Annotated[str, typer.Argument(help="The pin's name.")]
OfTable = Annotated[
    str | None, typer.Argument(metavar="TABLE", help="The table.", show_default="all tables", autocompletion=tables)
]


@app.command("create")
@takes_target()
def create_command(target: Target, pin: Pin, table: OfTable = None, as_of: AsOf = None) -> None:
    """Keep a table, or all tables of a store in a bucket, as they are: a backup that copies nothing."""
    with target.database() as db:
        made = db.create_pin(pin, table, moment(as_of))
    if not target.prints_json(made):
        typer.echo(f"pin {made.name} keeps {made.table or 'all tables'} as of {made.snapshot}")


@app.command("list")
@takes_target()
def list_command(target: Target) -> None:
    """Print all pins."""
    from .output import print_table

    with target.database() as db:
        found = db.pins()
    if not target.prints_json([pin.model_dump(mode="json") for pin in found]):
        rows = [(pin.name, pin.table or ("" if pin.table_id else "all tables"), pin.snapshot) for pin in found]
        print_table(["pin", "table", "as of"], rows)


@app.command("drop")
@takes_target("json_output")
def drop_command(target: Target, pin: Pin) -> None:
    """Drop a pin, and delete the files that only it keeps."""
    with target.database() as db:
        db.drop_pin(pin)
    typer.echo(f"dropped pin {pin}")


@app.command("restore")
@takes_target()
def restore_command(
    job: JobOptions,
    pin: Pin,
    table: Annotated[
        str | None, typer.Argument(help="The table's name when it was pinned.", show_default="the only one")
    ] = None,
    to: Annotated[str | None, typer.Option("--as", help="The new table's name.", show_default="the same")] = None,
    directory: Annotated[
        Path | None, typer.Option(help="The server's data directory, as this machine sees it; not for a bucket.")
    ] = None,
) -> None:
    """Make a new table with the rows that a pin keeps."""
    from ..jobs.backup.restore_pin_job import restore_pin

    with job.database() as db:
        done = restore_pin(db, pin, table=table, name=to, directory=directory, **job.running)
    if not job.prints_json(done):
        typer.echo(f"table {done.table} has {counted(done.rows, 'row')} as of {done.snapshot}")

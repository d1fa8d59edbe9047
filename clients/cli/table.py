"""``nyala table``: look at tables, make, fill and drop them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError
from .target import Data, Json, Name, Url, database

if TYPE_CHECKING:
    from ...schemas.description import DroppedTable
    from ...schemas.write import WriteResult
    from ..table import Table

ERRORS_SHOWN = 10
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

app = typer.Typer(no_args_is_help=True, help="Look at tables, make, fill and drop them.")


@app.command("list")
def list_tables(
    context: typer.Context,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Those that were dropped and can be recalled, with their ids.")
    ] = False,
    url: Url = None,
    data: Data = None,
    json_output: Json = False,
) -> None:
    """Print the names of all tables."""
    from .output import print_json

    with database(context, url, data) as db:
        if dropped:
            _print_dropped(db.dropped_tables(), json_output)
            return
        names = db.tables()
    if json_output:
        print_json(names)
    else:
        for name in names:
            typer.echo(name)


def _print_dropped(tables: list[DroppedTable], json_output: bool) -> None:
    from .output import print_json, print_table

    if json_output:
        print_json([table.model_dump(mode="json") for table in tables])
    else:
        rows = [(str(table.table_id), table.name, table.until.isoformat(timespec="seconds")) for table in tables]
        print_table(["id", "table", "kept until"], rows)


@app.command()
def describe(context: typer.Context, name: Name, url: Url = None, data: Data = None, json_output: Json = False) -> None:
    """Print a table's columns, key and options."""
    from .output import print_json, print_table

    with database(context, url, data) as db:
        about = db.table(name).describe()
    if json_output:
        print_json(about)
        return
    key = about["primary_key"]
    rows = [
        (
            column["name"],
            column["type"],
            _constraints(column, key),
            column["encoding"],
            column["compression"],
            column["comment"],
        )
        for column in about["columns"]
    ]
    options = ", ".join(f"{option} = {value}" for option, value in about["options"].items())
    print_table(["column", "type", "", "encoding", "compression", "comment"], rows, options)


def _constraints(column: dict[str, Any], key: list[str]) -> str:
    if column["name"] in key:
        return "key"
    words = ["" if column["nullable"] else "not null", "immutable" if column["immutable"] else ""]
    return ", ".join(word for word in words if word)


@app.command()
def stats(context: typer.Context, name: Name, url: Url = None, data: Data = None, json_output: Json = False) -> None:
    """Print a table's live rows, and the bytes of each column."""
    from .output import print_json, print_table

    with database(context, url, data) as db:
        about = db.table(name).stats()
    if json_output:
        print_json(about)
        return
    memory = sum(tablet["memory_bytes"] for tablet in about["tablets"])
    rowsets = sum(tablet["rowsets"] for tablet in about["tablets"])
    typer.echo(
        f"{about['live_rows']:,} rows, {about['bytes_on_disk']:,} bytes on disk in {rowsets:,} rowsets,", nl=False
    )
    typer.echo(f" {memory:,} bytes in memory")
    rows = [
        (column["name"], ", ".join(column["encodings"]), f"{column['raw_bytes']:,}", f"{column['bytes_on_disk']:,}")
        for column in about["columns"]
    ]
    print_table(["column", "encodings", "raw bytes", "bytes on disk"], rows)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    key: Annotated[str, typer.Option(help="The primary key: column names, with commas.")],
    column: Annotated[list[str] | None, typer.Option(help="name:type, or name:type! for NOT NULL; repeat it.")] = None,
    like: Annotated[
        Path | None, typer.Option(help="Take the columns of this file (Parquet, Arrow, CSV, JSON).")
    ] = None,
    encoding: Annotated[list[str] | None, typer.Option(help="column=encoding; repeat it.")] = None,
    unique_key: Annotated[
        bool, typer.Option("--unique-key/--no-unique-key", help="Whether each key may be there only once.")
    ] = True,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a table that is there as it is.")
    ] = False,
    url: Url = None,
    data: Data = None,
    json_output: Json = False,
) -> None:
    """Create a table.

    nyala table create homes --key id --column id:int64 --column city:string --column "price:decimal(10,2)"
    """
    from .definition import table_definition
    from .files import read_file
    from .output import print_json

    schema = read_file(like).schema if like else None
    definition = table_definition(name, column or [], schema, _names(key), encoding or [], if_not_exists, unique_key)
    with database(context, url, data, create=True) as db:
        about = db.create_table_as(definition).describe()
    if json_output:
        print_json(about)
    else:
        typer.echo(f"created {name} with {len(about['columns'])} columns")


@app.command()
def alter(
    context: typer.Context,
    name: Name,
    drop_columns: Annotated[
        list[str] | None, typer.Option("--drop", help="A column that goes, with its values; repeat it.")
    ] = None,
    rename: Annotated[list[str] | None, typer.Option(help="old=new; repeat it.")] = None,
    add: Annotated[list[str] | None, typer.Option(help="name:type, a new column; repeat it.")] = None,
    if_version: Annotated[int | None, typer.Option(help="Only while this is the table's schema version.")] = None,
    url: Url = None,
    data: Data = None,
    json_output: Json = False,
) -> None:
    """Change a table's columns, all or none: first drop, then rename, then add.

    nyala table alter homes --drop town --rename dest=to --add "price:decimal(10,2)"
    """
    from .definition import pair
    from .output import print_json

    renamed = [pair(each, "=", "--rename old=new") for each in rename or []]
    added = [pair(each, ":", "--add name:type") for each in add or []]
    if not (drop_columns or renamed or added):
        raise InvalidArgumentError("give --drop, --rename or --add")
    with database(context, url, data) as db:
        change = db.table(name).alter()
        for column in drop_columns or []:
            change.drop_column(column)
        for old, new in renamed:
            change.rename_column(old, new)
        for column, kind in added:
            change.add_column(column, kind)
        about = change.apply(if_version)
    if json_output:
        print_json(about)
    else:
        typer.echo(f"altered {name}: schema version {about['schema_version']}, {len(about['columns'])} columns")


@app.command()
def drop(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep: Annotated[
        str, typer.Option(help="For how long it can be recalled: 45s, 30m, 12h or 7d.", show_default="not at all")
    ] = "0s",
    url: Url = None,
    data: Data = None,
) -> None:
    """Drop a table with its data; with --keep "nyala table recall" brings it back."""
    keep_seconds = _seconds(keep)
    with database(context, url, data) as db:
        table = db.table(name)
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidArgumentError("dropping a table needs --yes where nobody can be asked")
            typer.confirm(f"drop {name} with its {table.stats()['live_rows']:,} rows?", abort=True)
        db.drop_table(name, keep_seconds)
    typer.echo(f"dropped {name}")


def _seconds(text: str) -> int:
    """Return the seconds that ``text`` says."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()):
        raise InvalidArgumentError(f"--keep {text!r} is no time; 45s, 30m, 12h and 7d are")
    return int(number) * _UNITS[unit]


@app.command()
def recall(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The table, as it was called.")] = None,
    table_id: Annotated[int | None, typer.Option("--id", help="Or its id, of several with one name.")] = None,
    new_name: Annotated[str | None, typer.Option("--as", help="What it is called from now on.")] = None,
    url: Url = None,
    data: Data = None,
) -> None:
    """Bring back a table that was dropped with --keep; "nyala table list --dropped" shows which can be."""
    if name is not None and table_id is not None:
        raise InvalidArgumentError("give a name or --id, not both")
    wanted = table_id if name is None else name
    if wanted is None:
        raise InvalidArgumentError('give a name or --id; "nyala table list --dropped" shows them')
    with database(context, url, data) as db:
        about = db.recall_table(wanted, new_name).describe()
    typer.echo(f"recalled {about['name']}")


@app.command()
def scan(
    context: typer.Context,
    name: Name,
    columns: Annotated[str | None, typer.Option(help="Column names, with commas.")] = None,
    where: Annotated[str | None, typer.Option(help="A filter in SQL.")] = None,
    as_of: Annotated[str | None, typer.Option(help="A timestamp, or ISO time with zone.")] = None,
    ordered: Annotated[bool, typer.Option("--ordered", help="In the order of the primary key.")] = False,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write a file instead: .parquet .csv .arrow .jsonl")] = None,
    count: Annotated[bool, typer.Option("--count", help="Only count the rows.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only say how the scan would run.")] = False,
    url: Url = None,
    data: Data = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON lines, all rows.")] = False,
) -> None:
    """Print rows, or write them to a file."""
    from .output import print_json, print_json_lines, print_scan, write_scan

    moment = int(as_of) if as_of and as_of.isdigit() else as_of
    with database(context, url, data) as db:
        wanted = db.table(name).scan(_names(columns) if columns else None, where, moment, ordered, limit)
        if explain:
            print_json(wanted.explain())
        elif count:
            typer.echo(wanted.count())
        elif output:
            typer.echo(f"wrote {write_scan(wanted, output):,} rows to {output}")
        elif json_output:
            print_json_lines(wanted)
        else:
            print_scan(wanted)


@app.command()
def load(
    context: typer.Context,
    name: Name,
    files: Annotated[list[Path], typer.Argument(help="Parquet, CSV, Arrow or JSON lines, by their suffixes.")],
    op: Annotated[str, typer.Option(help="insert, upsert, update, delete, or one of them with _ignore.")] = "upsert",
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Each file is one commit, refused whole if a row is.")
    ] = False,
    url: Url = None,
    data: Data = None,
    json_output: Json = False,
) -> None:
    """Write the rows of files to a table; exit with 1 if rows were refused."""
    from .output import print_json

    with database(context, url, data) as db:
        table = db.table(name)
        started = time.monotonic()
        result = _load(table, files, op, atomic)
        seconds = time.monotonic() - started
    if json_output:
        print_json(result.model_dump(mode="json"))
    else:
        _print_result(result, seconds)
    if result.error_count:
        raise typer.Exit(1)


def _load(table: Table, files: list[Path], op: str, atomic: bool) -> WriteResult:
    from ...schemas.write import combine
    from .files import read_file

    results: list[WriteResult] = []
    rows = 0
    for file in files:
        reader = read_file(file, table.schema)
        result = table.write(reader, op, atomic=atomic, on_error="return")
        results.append(result.shifted(rows))
        rows += result.rows
    return combine(results)


def _print_result(result: WriteResult, seconds: float) -> None:
    for error in result.errors[:ERRORS_SHOWN]:
        typer.secho(f"row {error.row}: {error.code}: {error.message}", fg=typer.colors.RED, err=True)
    rate = result.rows / max(seconds, 1e-9)
    parts = f"{result.applied:,} applied, {result.ignored:,} ignored, {result.error_count:,} refused"
    typer.echo(f"{result.rows:,} rows in {seconds:.1f} s ({rate:,.0f} a second): {parts}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]

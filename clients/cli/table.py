"""``nyala table``: inspect, create, fill and drop tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.cells.timestamp import UNITS
from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from ...schemas.protocol.service import MaintenanceKind
from .aggregate import aggregate
from .alter import alter
from .change import commits, delete, restore, update
from .create import create
from .load import load
from .point import get
from .scan import changes, scan
from .target import Name, ReadTarget, Target, takes_target

if TYPE_CHECKING:
    from ...schemas.store.description import DroppedTable

_RANGES_SHOWN = 8


@takes_target()
def list_tables(
    target: ReadTarget,
    dropped: Annotated[
        bool, typer.Option("--dropped", help="Print dropped tables that can be recalled, with their ids.")
    ] = False,
) -> None:
    """Print the names of all tables."""
    with target.database() as db:
        if dropped:
            _print_dropped(db.dropped_tables(), target)
            return
        names = db.tables()
    if not target.prints_json(names):
        for name in names:
            typer.echo(name)


def _print_dropped(tables: list[DroppedTable], target: Target) -> None:
    from .output import print_table

    if not target.prints_json([table.model_dump(mode="json") for table in tables]):
        rows = [(str(table.table_id), table.name, table.until.isoformat(timespec="seconds")) for table in tables]
        print_table(["id", "table", "kept until"], rows)


@takes_target()
def describe(target: ReadTarget, name: Name) -> None:
    """Print a table's columns, key, partitions, options and number of rows."""
    with target.database() as db:
        table = db.table(name)
        about = table.describe()
        if target.prints_json(about):
            return
        row_count = table.count()
    print_description(about, row_count)


def print_description(about: dict[str, Any], row_count: int) -> None:
    """Print what a command tells of a table: its columns, key, partitions, options and number of rows."""
    from .output import print_table

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
    print_table(["column", "type", "constraints", "encoding", "compression", "comment"], rows)
    typer.echo(f"primary key ({', '.join(key)})")
    if about["partitions"]:
        typer.echo(f"partitioned by {', '.join(_level(level, about['name']) for level in about['partitions'])}")
    for option, value in about["options"].items():
        typer.echo(f"{option} = {value}")
    typer.echo(f"schema version {about['schema_version']}")
    typer.echo(counted(row_count, "row"))


_PARTS = (
    ("default", "write_default"),
    ("default", "default_expression"),
    ("read default", "read_default"),
    ("merge", "merge"),
)


def _constraints(column: dict[str, Any], key: list[str]) -> str:
    words = ["key" if column["name"] in key else "", "" if column["nullable"] else "not null"]
    words += ["immutable" if column["immutable"] and column["name"] not in key else ""]
    words += [f"too long: {column['too_long']}" if "too_long" in column else ""]
    words += [f"{word} {column[part]}" for word, part in _PARTS if column.get(part) is not None]
    return ", ".join(word for word in words if word)


def _level(level: dict[str, Any], table: str) -> str:
    if "hash" in level:
        return f"hash({', '.join(level['hash'])}) in {level['buckets']}"
    ranges = [f"{_end(each['lower'])}..{_end(each['upper'])}" for each in level["bounds"]]
    if len(ranges) > _RANGES_SHOWN:
        ranges = [*ranges[:_RANGES_SHOWN], f"and more (nyala tablet list {table})"]
    return f"range({', '.join(level['range'])}) in {len(level['bounds'])}: {' '.join(ranges)}"


def _end(values: list[Any] | None) -> str:
    """Return one end of a range, as the options for ranges take it."""
    return ",".join(map(str, values or []))


@takes_target()
def stats(target: ReadTarget, name: Name) -> None:
    """Print a table's number of live rows and the bytes of each column."""
    from .output import print_table

    with target.database() as db:
        about = db.table(name).stats()
    if target.prints_json(about):
        return
    memory = sum(tablet["memory_bytes"] for tablet in about["tablets"])
    rowsets = sum(tablet["rowsets"] for tablet in about["tablets"])
    typer.echo(
        f"{counted(about['live_rows'], 'row')}, {about['bytes_on_disk']:,} bytes on disk in "
        f"{counted(rowsets, 'rowset')},",
        nl=False,
    )
    typer.echo(f" {memory:,} bytes in memory")
    rows = [
        (column["name"], ", ".join(column["encodings"]), f"{column['raw_bytes']:,}", f"{column['bytes_on_disk']:,}")
        for column in about["columns"]
    ]
    print_table(["column", "encodings", "raw bytes", "bytes on disk"], rows)


@takes_target("json_output")
def drop(
    target: Target,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    keep: Annotated[
        str,
        typer.Option(help="Keep the table recallable for this long: 45s, 30m, 12h or 7d.", show_default="not at all"),
    ] = "0s",
) -> None:
    """Drop a table and its data; with --keep, "nyala table recall" can bring it back."""
    keep_seconds = _seconds(keep)
    with target.database() as db:
        table = db.table(name)
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidArgumentError("without a terminal, dropping a table needs --yes")
            typer.confirm(f"drop {name} with its {counted(table.stats()['live_rows'], 'row')}?", abort=True)
        db.drop_table(name, keep_seconds)
    typer.echo(f"dropped {name}")


def _seconds(text: str) -> int:
    """Return a duration in seconds."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not (number.isascii() and number.isdigit()):
        raise InvalidArgumentError(f"--keep {text!r} is not a duration such as 45s, 30m, 12h or 7d")
    return int(number) * UNITS[unit]


@takes_target("json_output")
def recall(
    target: Target,
    name: Annotated[str | None, typer.Argument(help="The dropped table's name.")] = None,
    table_id: Annotated[
        int | None, typer.Option("--id", help="The dropped table's id, if several have the name.")
    ] = None,
    new_name: Annotated[str | None, typer.Option("--as", help="A new name for the table.")] = None,
) -> None:
    """Recall a table that was dropped with --keep; "nyala table list --dropped" lists them."""
    if name is not None and table_id is not None:
        raise InvalidArgumentError("give a name or --id, not both")
    wanted = table_id if name is None else name
    if wanted is None:
        raise InvalidArgumentError('give a name or --id; "nyala table list --dropped" shows dropped tables')
    with target.database() as db:
        about = db.recall_table(wanted, new_name).describe()
    typer.echo(f"recalled {about['name']}")


@takes_target()
def maintain(
    target: Target,
    name: Name,
    ops: Annotated[
        list[MaintenanceKind], typer.Argument(help="Operations, in order.", metavar="OP...", show_default=False)
    ],
) -> None:
    """Run maintenance now: flush, flush_deltas, minor_compact, major_compact, compact, gc. Readers see no difference.

    nyala maintain homes flush compact
    """
    with target.database() as db:
        table = db.table(name)
        done = [{"op": op.value, **table.maintain(op.value)} for op in ops]
    if target.prints_json(done):
        return
    for each in done:
        parts = ", ".join(f"{part} = {value}" for part, value in each.items() if part != "op")
        typer.echo(f"{each['op']}: {parts or 'done'}")


VERBS: Mapping[str, Callable[..., None]] = {
    "list": list_tables,
    "describe": describe,
    "create": create,
    "alter": alter,
    "load": load,
    "scan": scan,
    "get": get,
    "aggregate": aggregate,
    "changes": changes,
    "update": update,
    "delete": delete,
    "restore": restore,
    "commits": commits,
    "stats": stats,
    "maintain": maintain,
    "drop": drop,
    "recall": recall,
}
"""The commands for tables: ``nyala table VERB``, or ``nyala VERB`` for short."""

app = typer.Typer(
    no_args_is_help=True, help='Create, inspect, load and drop tables; "nyala VERB" is short for "nyala table VERB".'
)
for _name, _verb in VERBS.items():
    app.command(_name)(_verb)

"""``nyala table update``, ``delete``, ``restore`` and ``commits``: rows changed by condition, and how to undo it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from .options import CsvRows, JsonRows, WhereText, moment, pair
from .target import Data, Name, ReadOnly, StoreName, Target, Url, database, takes_target

if TYPE_CHECKING:
    from ...schemas.rows.write import WriteResult

Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help="column=SQL expression, text in single quotes; repeatable.", show_default=False),
]


@takes_target()
def update(
    target: Target,
    name: Name,
    sets: Sets = None,
    where: WhereText = None,
) -> None:
    """Update the rows that match a condition, in one commit (docs/statements.md).

    nyala update homes --set "price=price * 1.1" --where "city = 'Oslo'"
    """
    if not sets:
        raise InvalidArgumentError(
            'give at least one column to set, as in --set "price=price * 1.1" or --set "city=\'Oslo\'"'
        )
    wanted = _named(sets)
    condition = _condition(where, "update")
    with target.database() as db:
        result = db.table(name).update_where(wanted, condition)
    _say(result, f"updated {counted(result.applied, 'row')} of {name}", name, target)


@takes_target()
def delete(
    target: Target,
    name: Name,
    where: WhereText = None,
) -> None:
    """Delete the rows that match a condition, in one commit (docs/statements.md).

    nyala delete homes --where "price > 900 or city is null"
    """
    condition = _condition(where, "delete")
    with target.database() as db:
        result = db.table(name).delete_where(condition)
    _say(result, f"deleted {counted(result.applied, 'row')} of {name}", name, target)


@takes_target()
def restore(
    target: Target,
    name: Name,
    as_of: Annotated[
        str,
        typer.Option(help="The time: a timestamp from `nyala commits`, ISO time with zone, or an age such as 2h."),
    ],
) -> None:
    """Restore a table to an earlier state, in one commit; for backups see "nyala job restore".

    nyala restore homes --as-of 2h
    """
    start = moment(as_of)
    assert start is not None
    with target.database() as db:
        result = db.table(name).restore(start)
    _say(result, f"restored {name}: {counted(result.applied, 'row')} changed", name, target)


def commits(
    context: typer.Context,
    name: Name,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only later than this: a timestamp, ISO time with zone, or an age such as 2h.", show_default="all"
        ),
    ] = None,
    url: Url = None,
    data: Data = None,
    store: StoreName = None,
    read_only: ReadOnly = False,
    json_output: JsonRows = False,
    csv_output: CsvRows = False,
) -> None:
    """Print a table's commits, oldest first: time, writer, number of changed rows, operation and user.

    nyala commits homes --since 2h
    """
    from .output import print_rows, row_format

    form = row_format(json_output, csv_output)
    with database(context, url, data, store, read_only=read_only) as db:
        found = db.commits(name, moment(since))
    print_rows(found, form, is_limited=True)


def _named(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        column, expression = pair(text, "=", '--set column=expression, as in --set "price=price * 1.1"')
        if column.strip() in found:
            raise InvalidArgumentError(f"--set names column {column.strip()!r} twice")
        found[column.strip()] = expression
    return found


def _condition(where: str | None, verb: str) -> str:
    if where is None or not where.strip():
        raise InvalidArgumentError(f"give --where to select the rows to {verb}; --where true selects all rows")
    return where


def _say(result: WriteResult, said: str, name: str, target: Target) -> None:
    if target.prints_json(result):
        return
    from ..executors.progress import cut_note

    undo = f"; to undo: nyala restore {name} --as-of {result.timestamp - 1}{target.given}" if result.applied else ""
    typer.echo(f"{said}{cut_note(result.truncated)}{undo}")

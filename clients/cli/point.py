"""``nyala get``: one row by its key."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError, NotFoundError
from .target import Name, ReadTarget, takes_target

Key = Annotated[list[str], typer.Argument(metavar="KEY...", help="The values of the primary key, in its order.")]


@takes_target()
def get(target: ReadTarget, name: Name, key: Key) -> None:
    """Print the row with a primary key.

    nyala get homes 7

    nyala get flights -- AA -12
    """
    from ...schemas.cells.literal import to_json
    from .output import print_table

    with target.database() as db:
        table = db.table(name)
        row = table.get(_cells(key, table.describe()))
    if row is None:
        raise NotFoundError(f"table {name!r} has no row with the key ({', '.join(key)})")
    if not target.prints_json({column: to_json(cell) for column, cell in row.items()}):
        print_table(["column", "value"], [(each, "NULL" if cell is None else cell) for each, cell in row.items()])


def _cells(words: list[str], about: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a key given as words. Raises InvalidArgumentError: they do not fit its columns."""
    from ...schemas.cells.literal import from_json
    from ...schemas.cells.types import LogicalType

    types = {column["name"]: LogicalType.parse(column["type"]) for column in about["columns"]}
    names = about["primary_key"]
    if len(words) != len(names):
        raise InvalidArgumentError(f"give one value for each of the key columns, in this order: {', '.join(names)}")
    return {
        name: from_json(_number(word) if types[name].is_integer else word, types[name], f"the value of {name!r},")
        for name, word in zip(names, words, strict=True)
    }


def _number(word: str) -> int | str:
    try:
        return int(word)
    except ValueError:
        return word

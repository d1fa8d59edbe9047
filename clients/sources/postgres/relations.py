"""How the tables of the stream become tables of the store, and what happens when their columns change.

The stream names columns, and the catalog numbers them: the number tells a new column from one with a new name. Numbers
grow, and none is used twice. The catalog may be ahead of the stream. If it does not have a column any more, the stream
will say so later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..source import ChangedRows, NewColumns, SourceChangedError, SourceColumn, SourceTable
from .array_text import lists_of_text
from .catalog import CatalogColumn, read_columns, read_dropped, read_key, read_type
from .messages import Relation, RelationColumn
from .tuples import read_tuples
from .types import cells_of_text, grows, refusal, word_of


@dataclass(frozen=True)
class StreamTable:
    """A table of PostgreSQL's stream: how its rows are read, as long as its columns stay."""

    table: SourceTable
    columns: list[SourceColumn]
    """In the order of the stream's rows."""
    key: list[int]
    """The places of the key's columns there."""

    def read(self, messages: list[bytes]) -> ChangedRows:
        """Return the changes of messages about its rows.

        Raises:
            SourceChangedError: a value does not fit the type of its column.
        """
        tuples = read_tuples(messages, len(self.columns), self.key)
        arrays, absent = [], {}
        for number, column in enumerate(self.columns):
            text = tuples.text(number)
            arrays.append(cells_of_text(text, column.detail["oid"], column.type, self.table.name, column.name))
            unchanged = tuples.columns[number].is_unchanged
            if unchanged.any():
                absent[column.name] = unchanged
        rows = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])
        moved = tuples.is_moved if absent and tuples.is_moved.any() else None
        return ChangedRows(self.table.name, rows, tuples.is_delete, absent, moved)


class Relations:
    """The PostgreSQL tables of a mirror, as the stream describes them."""

    def __init__(self, tables: list[SourceTable]) -> None:
        self._tables = {table.detail["oid"]: table for table in tables}

    def read(self, relation: Relation, xid: int, cursor: Any) -> tuple[StreamTable | None, NewColumns | None]:
        """Return how the rows of a table are read from the transaction ``xid`` on, None if it is not mirrored; and its
        new columns, if they changed. ``cursor`` is for the catalog.

        Raises:
            SourceChangedError: it changed in a way that cannot be mirrored.
        """
        table = self._tables.get(relation.oid)
        if table is None:
            return None, None
        _check_key(table, relation)
        if relation.identity == "f":
            _check_catalog_key(table, cursor)
        catalog = read_columns(cursor, relation.oid)
        dropped = read_dropped(cursor, relation.oid, xid)
        before = {column.name: column for column in table.columns}
        _check_gone(table, relation, catalog)
        last = max(table.detail.get("last", 0), *(column.detail["number"] for column in table.columns))
        filled: dict[str, object] = {}
        columns: dict[str, SourceColumn] = {}
        for each in relation.columns:
            now, old = catalog.get(each.name), before.get(each.name)
            if now is not None:
                number = now.number
            else:
                number = old.detail["number"] if old else _number_of_dropped(table, each.name, last, catalog, dropped)
            column = _described(table, each, number, cursor)
            if old is None:
                _check_added(table, column, now, last, dropped)
                last = max(last, number)
                missing = None if now is None else now.missing
                filled[each.name] = None if missing is None else _filled(table, column, missing)
            else:
                _check_kept(table, old, column)
            columns[each.name] = column
        order = [columns.get(name, column) for name, column in before.items()]
        order += [column for name, column in columns.items() if name not in before]
        changed = table.model_copy(update={"columns": order})
        self._tables[relation.oid] = changed
        places = [list(columns).index(name) for name in table.key]
        news = NewColumns(changed, filled) if changed != table else None
        return StreamTable(changed, list(columns.values()), places), news


def _described(table: SourceTable, each: RelationColumn, number: int, cursor: Any) -> SourceColumn:
    """Return a column of the stream as the store has it."""
    oid, modifier, name = read_type(cursor, each.oid, each.modifier) or (each.oid, each.modifier, f"number {each.oid}")
    word = word_of(oid, modifier)
    if word is None:
        raise _changed(table, refusal(table.name, each.name, name).message)
    return SourceColumn(name=each.name, type=word, detail={"number": number, "oid": oid, "modifier": modifier})


def _check_gone(table: SourceTable, relation: Relation, catalog: Mapping[str, CatalogColumn]) -> None:
    """Check that columns which the stream no longer has were dropped."""
    names = {each.name for each in relation.columns}
    now = {each.number: each.name for each in catalog.values()}
    for column in table.columns:
        name = now.get(column.detail["number"])
        if column.name not in names and name is not None:
            became = f" to {name!r}" if name != column.name else ", and has its old name again"
            raise _changed(table, f"the column {column.name!r} was renamed{became}")


def _number_of_dropped(
    table: SourceTable, name: str, last: int, catalog: Mapping[str, CatalogColumn], dropped: Collection[int]
) -> int:
    """Return the number of a new column that the catalog does not name any more, the first one behind the last column
    before; 0 if the table is gone. ``dropped`` are those that have gone since."""
    now = {each.number: each.name for each in catalog.values()}
    number = min((each for each in {*now, *dropped} if each > last), default=0)
    if number in now:
        raise _changed(table, f"the new column {name!r} was renamed to {now[number]!r}")
    return number


def _check_added(
    table: SourceTable, column: SourceColumn, now: CatalogColumn | None, last: int, dropped: Collection[int]
) -> None:
    if now is not None and now.number <= last:  # numbers grow
        raise _changed(
            table,
            f"the column {column.name!r} is not new: it had another name, was generated, or was dropped and added "
            "again",
        )
    if now is not None and any(last < each < now.number for each in dropped):  # the stream would have it before
        raise _changed(table, f"the column {column.name!r} was dropped, and another column has its name now")
    if now is not None and now.has_default and now.missing is None:
        raise _changed(
            table,
            f"the column {column.name!r} was added with a default that differs between rows, or it has got such a "
            "default since, so the values of earlier rows are unknown",
        )


def _check_kept(table: SourceTable, old: SourceColumn, column: SourceColumn) -> None:
    if old.detail["number"] != column.detail["number"]:
        raise _changed(table, f"the column {old.name!r} was dropped, and another column has its name now")
    was, now = ((each.detail["oid"], each.detail["modifier"]) for each in (old, column))
    if not grows(was, now):
        raise _changed(table, f"the column {old.name!r} got another type: {old.type} became {column.type}")
    if old.name in table.key and old.type != column.type:
        raise _changed(table, f"the column {old.name!r} of the primary key became {column.type}; it was {old.type}")


def _filled(table: SourceTable, column: SourceColumn, missing: str) -> object:
    """Return the value that rows have in a column that is younger than they are."""
    items, _, _ = lists_of_text(pa.array([missing]))
    cells = cells_of_text(items, column.detail["oid"], column.type, table.name, column.name)
    return cells[0].as_py()


def _check_key(table: SourceTable, relation: Relation) -> None:
    names = {column.name for column in relation.columns}
    key = [column.name for column in relation.columns if column.is_key]
    if relation.identity == "n":
        raise _changed(table, "it no longer reports the keys of changed rows (REPLICA IDENTITY NOTHING)")
    if not set(table.key) <= names or (relation.identity != "f" and set(key) != set(table.key)):
        raise _changed(table, f"its changes now have the key ({', '.join(key)}), not ({', '.join(table.key)})")


def _check_catalog_key(table: SourceTable, cursor: Any) -> None:
    """Check the key of a table whose changes come with whole rows: the stream does not name it."""
    key, is_deferrable = read_key(cursor, table.detail["oid"]) or (table.key, False)
    if is_deferrable or set(key) != set(table.key):
        word = "DEFERRABLE" if is_deferrable else "primary"
        raise _changed(table, f"it now has the {word} key ({', '.join(key)}), not ({', '.join(table.key)})")


def _changed(table: SourceTable, why: str) -> SourceChangedError:
    return SourceChangedError(
        f"{table.name} changed: {why}; all earlier transactions are applied, and nothing is lost: copy the tables "
        "again with --again"
    )

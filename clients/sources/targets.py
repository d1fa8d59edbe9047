"""The tables of the store that mirror those of a source: they are created, and follow its columns."""

from __future__ import annotations

from collections.abc import Mapping

from ...schemas.cells.literal import from_json, to_json
from ...schemas.cells.types import LogicalType
from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, PermissionDeniedError
from ...schemas.store.description import TableDescription
from ...schemas.table.altered import is_wider
from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableDefinition, TableOptions
from ..api.database import Database
from .source import SourceChangedError, SourceTable

AGAIN = "copy it again with --again"
_LEFT_BEHIND = ("max_rows", "max_bytes", "order_by", "ttl")
"""Options that a table created anew lacks: quotas are for an administrator to set, the others name a column."""


def check_target(database: Database, table: SourceTable, may_replace: bool) -> None:
    """Check that a table of the store can mirror a source's: it is not there, or is empty and fits, or may be replaced.

    Raises:
        AlreadyPresentError: the table has rows, or other columns.
    """
    if may_replace or table.target not in database.tables():
        return
    is_empty = database.table(table.target).count() == 0
    if is_empty and fits(database._store.describe_table(table.target), table):
        return
    raise AlreadyPresentError(
        f"the table {table.target!r} already exists and {'has other columns' if is_empty else 'has rows'}: drop the "
        f"table, or mirror {table.name} under another name with --as; if an earlier mirror made it, replace it with "
        "--again"
    )


def prepare(database: Database, table: SourceTable, may_replace: bool) -> None:
    """Create the table that will mirror a source's, or take one that is there, if it is empty and fits.

    With ``may_replace`` a table that does not is dropped, with its rows, and created anew. If its key stays, so do its
    partitions; and its options, but none of ``_LEFT_BEHIND``, and only if this user may create it with them.

    Raises:
        AlreadyPresentError: as ``check_target``.
    """
    check_target(database, table, may_replace)
    definition = TableDefinition.from_arrow(table.target, table.schema, table.key)
    if table.target in database.tables():
        about = database._store.describe_table(table.target)
        if fits(about, table) and database.table(table.target).count() == 0:
            return
        if about.primary_key == table.key:
            options = about.options.model_copy(update=dict.fromkeys(_LEFT_BEHIND))
            given = definition.model_dump() | {"partition_by": about.partitions, "options": options}
            definition = TableDefinition.model_validate(given)
        database.drop_table(table.target)
    try:
        database.create_table_as(definition)
    except PermissionDeniedError:
        if not definition.options.takes_more:
            raise
        database.create_table_as(definition.model_copy(update={"options": TableOptions()}))


def fits(about: TableDescription, table: SourceTable) -> bool:
    """Whether a table of the store can mirror a source's: it has the key and the columns of that; it may have more
    columns."""
    columns = {column.name: column for column in about.columns}
    return about.primary_key == table.key and all(
        each.name in columns
        and columns[each.name].logical.arrow == LogicalType.parse(each.type).arrow
        and (columns[each.name].nullable or each.name in table.key)
        for each in table.columns
    )


def follow_columns(database: Database, table: SourceTable, filled: Mapping[str, object]) -> TableDescription:
    """Add the columns that a table of the source got, and widen those whose types grew; return what the store has then.

    Columns that the source dropped stay: their values remain, and new rows have NULL there. ``filled`` has the values
    that earlier rows have in new columns. If the table already fits, nothing is done: it may have had the columns
    before, with these values as their defaults, and wider types if a run that died had followed later changes.

    Raises:
        SourceChangedError: the store cannot follow; nothing was changed.
    """
    service = database._store
    about = service.describe_table(table.target)
    columns = {column.name: column for column in about.columns}
    change, steps = database.table(table.target).alter(), 0
    for each in table.columns:
        there = columns.get(each.name)
        kind = LogicalType.parse(each.type)
        if there is None:
            # Rows from before the change may be in the same commit, after it: they are new, and lack the column.
            value = filled.get(each.name)
            change.add_column(each.name, each.type, read_default=value, write_default=value)
            steps += 1
        elif each.name in filled and not _shows(there, filled[each.name]):
            raise _cannot_follow(table, f"it already has a column {each.name!r}, with other values in earlier rows")
        elif there.logical.arrow != kind.arrow and not is_wider(kind, there.logical):
            change.widen_column(each.name, each.type)
            steps += 1
    if not steps:
        return about
    try:
        change.apply()
    except InvalidArgumentError as error:
        raise _cannot_follow(table, error.message) from None
    return service.describe_table(table.target)


def _shows(column: ColumnSchema, value: object) -> bool:
    """Whether the rows that the mirror wrote without a column have a value there."""
    cell = to_json(value)
    for default in (column.read_default, column.write_default):
        if to_json(from_json(default, column.logical)) != cell:
            return False
    return True


def _cannot_follow(table: SourceTable, why: str) -> SourceChangedError:
    return SourceChangedError(
        f"the columns of {table.name} changed in a way that the table {table.target!r} cannot follow ({why}); all "
        f"earlier changes are applied: {AGAIN}"
    )

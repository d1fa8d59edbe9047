"""CREATE TABLE, with columns or with the rows of a query, also in the place of another table, and DROP TABLE."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from sqlglot import exp

from ....schemas.cells.types import holder, nearest
from ....schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, StoreError
from ....schemas.protocol.command import explain
from ....schemas.protocol.service import StoreService
from ....schemas.rows.operation import Operation
from ....schemas.table.alter import Alteration, RenameTable
from ....schemas.table.column import ColumnDefinition
from ....schemas.table.partition import HashLevel, RangeLevel
from ....schemas.table.table import TableDefinition, TableOptions
from ..text.dialect import PartitionLevels
from ..text.names import name_of, refuse_others, refuse_repeated, shown, table_name
from .columns import built_column, definition_of, setting
from .partitions import levels_of
from .refusals import refuse_kind
from .target import ChangeTarget, Read
from .values import assigned
from .writing import Changed, Part, Staging

CREATE, CREATE_AS, DROP = "CREATE TABLE", "CREATE TABLE AS", "DROP TABLE"
_OWN_OPTIONS = ("primary_key", "unique_key")
_FRESH_NAME_MAX = 64
"""How much of a table's name is in that of the one that will replace it: names have a limit."""


@dataclass
class _Parts:
    """What a CREATE TABLE says of its table, but for the rows."""

    columns: list[ColumnDefinition] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Names for the columns of a query."""
    key: list[str] = field(default_factory=list)
    unique_key: bool = True
    levels: list[HashLevel | RangeLevel] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    has_rows: bool = True

    def name_key(self, names: list[str]) -> None:
        """Take a primary key. Raises InvalidArgumentError: there is one already."""
        if self.key:
            raise InvalidArgumentError("a table has one primary key: name all of its columns in PRIMARY KEY (a, b)")
        self.key = names


@dataclass(frozen=True)
class _Placement:
    """Where a new table belongs: under its name, or under it in the place of the table that has it."""

    name: str
    replaces: int | None = None
    """The id of that table."""
    fresh: str = ""
    """The name of the new table until it takes the place."""

    @classmethod
    def of(cls, name: str, store: StoreService, replaces: bool) -> _Placement:
        """Return the place for ``name``, which is taken if it ``replaces`` the table that there may be."""
        if replaces:
            with suppress(NotFoundError):
                fresh = f"{name[:_FRESH_NAME_MAX]} ({uuid.uuid4().hex[:12]})"
                return cls(name, store.describe_table(name).table_id, fresh)
        return cls(name, None, name)

    def take(self, store: StoreService) -> None:
        """Exchange the tables, in one step. Raises ConflictError: another table has the name by now."""
        if self.replaces is not None:
            step = RenameTable(to=self.name, replaces=self.replaces)
            store.alter_table(Alteration(table=self.fresh, steps=[step]))


def create(tree: exp.Create, store: StoreService, read: Read) -> Changed:
    """Run CREATE TABLE; with a query, load its rows in one commit, or create none. With OR REPLACE it takes the place
    of a table of that name in one step: readers find all of the one or all of the other.

    Raises:
        AlreadyPresentError: a table of that name exists.
        ConflictError: the table to be replaced was replaced meanwhile.
        InvalidArgumentError: a name, type, key or option is not possible, or a row is refused.
    """
    kind = str(tree.args.get("kind"))
    if kind != "TABLE":
        refuse_kind("CREATE", kind)
    refuse_others(tree, {"this", "kind", "exists", "replace", "properties", "expression"}, CREATE)
    schema = tree.this if isinstance(tree.this, exp.Schema) else None
    name = table_name(tree.this if schema is None else schema.this)
    parts = _parts(schema, tree.args.get("properties"))
    is_optional, replaces = bool(tree.args.get("exists")), bool(tree.args.get("replace"))
    if is_optional and replaces:
        raise InvalidArgumentError("CREATE TABLE takes OR REPLACE or IF NOT EXISTS, not both")
    if tree.expression is not None:
        return _create_as(tree.expression, name, parts, is_optional, replaces, store, read)
    definition = _definition(name, parts, is_optional)
    place = _Placement.of(name, store, replaces)
    target = ChangeTarget(store.create_table(definition.model_copy(update={"name": place.fresh})))
    try:
        place.take(store)
    except BaseException:
        _take_back(store, target)
        raise
    return Changed(CREATE, 0)


def drop(tree: exp.Drop, store: StoreService) -> Changed:
    """Run DROP TABLE: drop tables, one after another. Raises NotFoundError: there is none, and no IF EXISTS; nothing is
    dropped."""
    kind = str(tree.args.get("kind"))
    if kind != "TABLE":
        refuse_kind("DROP", kind)
    refuse_others(tree, {"tables", "kind", "exists", "cascade", "restrict"}, DROP)
    names = [table_name(each) for each in tree.args["tables"]]
    is_optional = bool(tree.args.get("exists"))
    for name in names if not is_optional else []:
        store.describe_table(name)
    for name in names:
        try:
            store.drop_table(name)
        except NotFoundError:
            if not is_optional:
                raise
    return Changed(DROP, 0)


def _parts(schema: exp.Schema | None, properties: exp.Properties | None) -> _Parts:
    parts = _Parts()
    for each in schema.expressions if schema is not None else []:
        _take_element(parts, each)
    for each in properties.expressions if properties is not None else []:
        _take_property(parts, each)
    return parts


def _take_element(parts: _Parts, node: exp.Expr) -> None:
    if isinstance(node, exp.Constraint) and len(node.expressions) == 1:
        node = node.expressions[0]
    if isinstance(node, exp.ColumnDef) and node.args.get("kind") is not None:
        definition, is_key = definition_of(node)
        parts.columns.append(definition)
        if is_key:
            parts.name_key([definition.name])
    elif isinstance(node, exp.PrimaryKey):
        parts.name_key([name_of(each.this if isinstance(each, exp.Ordered) else each) for each in node.expressions])
    elif isinstance(node, exp.Identifier | exp.ColumnDef | exp.Column):
        parts.names.append(name_of(node))
    else:
        raise InvalidArgumentError(
            f"CREATE TABLE does not take {shown(node)}: tables have columns and a PRIMARY KEY, and no other constraints"
        )


def _take_property(parts: _Parts, node: exp.Expr) -> None:
    if isinstance(node, PartitionLevels):
        parts.levels = levels_of(node)
        return
    if isinstance(node, exp.PrimaryKey):
        parts.name_key([name_of(each) for each in node.expressions])
        return
    if isinstance(node, exp.WithDataProperty):
        parts.has_rows = not node.args.get("no")
        return
    if isinstance(node, exp.TemporaryProperty):
        raise InvalidArgumentError("there are no temporary tables: write WITH in the query, or drop the table later")
    name, value = setting(node)
    if name == "primary_key":
        parts.name_key([each.strip() for each in str(value).split(",")])
    elif name == "unique_key":
        parts.unique_key = str(value).lower() != "false"
    elif name in TableOptions.model_fields:
        parts.options[name] = value
    else:
        options = ", ".join([*_OWN_OPTIONS, *TableOptions.model_fields])
        raise InvalidArgumentError(f"there is no table option {name!r}; known: {options}")


def _definition(name: str, parts: _Parts, is_optional: bool) -> TableDefinition:
    if not parts.key:
        raise InvalidArgumentError(
            f"table {name!r} needs a PRIMARY KEY; if several rows may share it, add WITH (unique_key = false)"
        )
    columns = [
        each.model_copy(update={"nullable": False}) if each.name in parts.key else each for each in parts.columns
    ]
    try:
        return TableDefinition(
            name=name,
            columns=columns,
            primary_key=parts.key,
            unique_key=parts.unique_key,
            partition_by=parts.levels,
            if_not_exists=is_optional,
            options=TableOptions.model_validate(parts.options),
        )
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, f"table {name!r}", TableOptions.model_fields)) from None


def _create_as(
    query: exp.Expr, name: str, parts: _Parts, is_optional: bool, replaces: bool, store: StoreService, read: Read
) -> Changed:
    if parts.columns:
        raise InvalidArgumentError(
            "CREATE TABLE AS takes its types from the query: leave out the types, or use CAST in the query"
        )
    if not replaces and name in store.tables():
        if is_optional:
            return Changed(CREATE_AS, 0)
        raise AlreadyPresentError(
            f"table {name!r} already exists: write CREATE OR REPLACE TABLE, or insert the rows of the query"
        )
    if not isinstance(query, exp.Query):
        raise InvalidArgumentError("CREATE TABLE AS needs a SELECT")
    rows = read(query.copy(), store.now(), {})
    if parts.names:
        if len(parts.names) != rows.num_columns:
            raise InvalidArgumentError(
                f"CREATE TABLE names {len(parts.names)} columns, but the query has {rows.num_columns}"
            )
        rows = rows.rename_columns(parts.names)
    refuse_repeated(rows.column_names, "the query of CREATE TABLE")
    if missing := [each for each in parts.key if each not in rows.column_names]:
        raise InvalidArgumentError(f"PRIMARY KEY names {missing[0]!r}, which is not a column of the query")
    names = parts.key + [each for each in rows.column_names if each not in parts.key]
    parts.columns = [_held(rows.schema.field(each)) for each in names]
    definition = _definition(name, parts, False)
    place = _Placement.of(name, store, replaces)
    target = ChangeTarget(store.create_table(definition.model_copy(update={"name": place.fresh})))
    rows = rows if parts.has_rows else rows.slice(0, 0)
    staging = Staging(store)
    try:
        cells = pa.table([assigned(rows.column(each), target.columns[each]) for each in names], names)
        staging.parts = staging.stage(target, [Part(Operation.INSERT, cells)])
        timestamp = staging.commit(None).timestamp if staging.parts else None
        place.take(store)
    except BaseException:
        staging.abort()
        _take_back(store, target)
        raise
    return Changed(CREATE_AS, cells.num_rows, timestamp)


def _take_back(store: StoreService, target: ChangeTarget) -> None:
    """Drop a table whose rows were refused."""
    with suppress(StoreError):
        if store.describe_table(target.name).table_id == target.about.table_id:
            store.drop_table(target.name)


def _held(column: pa.Field) -> ColumnDefinition:
    """Return the definition of a column that holds what a query returns."""
    kind = holder(column.type)
    if pa.types.is_null(column.type) or kind is None:
        advice = "a type, such as text" if pa.types.is_null(column.type) else nearest(column.type)
        raise InvalidArgumentError(f"column {column.name!r} of the query is {column.type}: cast it to {advice}")
    return built_column({"name": column.name, "type": str(kind)})

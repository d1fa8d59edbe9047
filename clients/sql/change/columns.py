"""Columns as CREATE TABLE and ALTER TABLE define them: types, defaults, constraints and options."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from sqlglot import exp

from ....schemas.cells.literal import to_json
from ....schemas.cells.nested_names import struct_text
from ....schemas.cells.types import LogicalType
from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.command import explain
from ....schemas.table.column import ColumnDefinition, ColumnOptions
from ..text.dialect import NyalaSql
from ..text.names import name_of, shown
from .literals import NO_LITERAL, constant, literal
from .values import column_of

_TYPES = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.TINYINT: "int8",
    exp.DType.SMALLINT: "int16",
    exp.DType.INT: "int32",
    exp.DType.BIGINT: "int64",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp[us]",
    exp.DType.TIMESTAMPTZ: "timestamp[us]",
    exp.DType.DATETIME: "timestamp[us]",
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.JSON: "json",
    exp.DType.JSONB: "json",
    exp.DType.BINARY: "binary",
    exp.DType.VARBINARY: "binary",
    exp.DType.UTINYINT: "uint8",
    exp.DType.USMALLINT: "uint16",
    exp.DType.UINT: "uint32",
    exp.DType.UBIGINT: "uint64",
    exp.DType.TIME: "time64[us]",
    exp.DType.INTERVAL: "month_day_nano_interval",
}
_WORKS = (
    "use boolean, tinyint, smallint, int, bigint, utinyint, usmallint, uinteger, ubigint, real, double precision, "
    "numeric(p,s), date, time, timestamp, interval, text, varchar(n), json, bytea, T[], T[n], struct<name T, ...> or "
    "map<K, V>"
)
_NESTED = (exp.DType.ARRAY, exp.DType.LIST, exp.DType.STRUCT, exp.DType.MAP)
COLUMN_OPTIONS = tuple(name for name in ColumnOptions.model_fields if name not in ("type", "comment", "write_default"))
"""What ``WITH`` of a column and ``ALTER COLUMN ... SET`` take."""


def type_word(kind: exp.Expr | None, name: str) -> str:
    """Return the word of the type that CREATE TABLE gives a column.

    Raises:
        InvalidArgumentError: no column can have it; the message lists the types that there are.
    """
    if not isinstance(kind, exp.DataType):
        raise InvalidArgumentError(f"column {name!r} needs a type: {_WORKS}")
    if kind.this in _NESTED:
        return str(LogicalType.parse(_nested_word(kind, name)))
    sizes = [each.name for each in kind.expressions]
    if kind.this == exp.DType.DECIMAL:
        return str(LogicalType.parse(f"decimal({','.join(sizes)})" if sizes else "decimal"))
    if kind.this == exp.DType.VARCHAR and sizes:
        return str(LogicalType.parse(f"varchar({sizes[0]})"))
    word = _TYPES.get(kind.this)
    if kind.this == exp.DType.USERDEFINED:  # perhaps one of the store's own words
        with suppress(InvalidArgumentError):
            word = str(LogicalType.parse(str(kind.args.get("kind") or "")))
    if word is None:
        raise InvalidArgumentError(f"column {name!r} cannot have the type {shown(kind)}: {_WORKS}")
    if kind.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ) and sizes not in ([], ["6"]):
        raise InvalidArgumentError(f"column {name!r} cannot have the type {shown(kind)}: a timestamp has microseconds")
    return word


def _nested_word(kind: exp.DataType, name: str) -> str:
    parts = kind.expressions
    if kind.this in (exp.DType.ARRAY, exp.DType.LIST):
        items = type_word(parts[0] if parts else None, name)
        sizes = kind.args.get("values") or []
        return f"fixed_size_list<{items}>[{sizes[0].name}]" if sizes else f"list<{items}>"
    if kind.this == exp.DType.MAP:
        return f"map<{', '.join(type_word(part, name) for part in parts)}>"
    fields = [(name_of(part), type_word(part.args.get("kind"), name)) for part in parts]
    return struct_text(fields)


def default_json(node: exp.Expr, column: ColumnDefinition) -> Any:
    """Return the default that a literal of CREATE TABLE means in a column, as JSON. Raises InvalidArgumentError: it
    does not fit."""
    value = constant(node, f"the default of column {column.name!r}")
    if value is None:
        return None
    return to_json(column_of([value], _as_schema(column))[0].as_py())


def expression_of(default: exp.Expr) -> str | None:
    """Return the expression that computes a column's DEFAULT, as the store has it; None: it is a literal."""
    return None if literal(default) is not NO_LITERAL else default.transform(_of_store).sql(dialect=NyalaSql)


def _of_store(node: exp.Expr) -> exp.Expr:
    now = exp.Anonymous(this="now")
    if isinstance(node, exp.CurrentTimestamp):
        return now
    return exp.cast(now, "date") if isinstance(node, exp.CurrentDate) else node


def _as_schema(column: ColumnDefinition) -> Any:
    from ....schemas.table.column import ColumnSchema

    return ColumnSchema.from_definition(1, column)


def definition_of(node: exp.ColumnDef, adds: bool = False) -> tuple[ColumnDefinition, bool]:
    """Return a column as CREATE TABLE or ALTER TABLE defines it, and whether it says that it is the primary key.
    ``adds``: to a table that has rows, which then show its default.

    Raises:
        InvalidArgumentError: a type, default, constraint or option is not possible.
    """
    name = name_of(node)
    word = type_word(node.args.get("kind"), name)
    parts: dict[str, Any] = {"name": name, "type": word}
    if word.startswith("varchar("):
        parts["too_long"] = "error"  # as SQL has it
    default: exp.Expr | None = None
    is_key = False
    for constraint in node.args.get("constraints") or []:
        kind = constraint.args["kind"]
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            is_key = True
            include = kind.args.get("include")
            parts |= settings_of((include and include.args.get("with_storage")) or [], name)
        elif isinstance(kind, exp.NotNullColumnConstraint):
            parts["nullable"] = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.DefaultColumnConstraint):
            default = kind.this
        elif isinstance(kind, exp.CommentColumnConstraint):
            parts["comment"] = kind.this.name
        elif isinstance(kind, exp.Properties):
            parts |= settings_of(kind.expressions, name)
        else:
            raise InvalidArgumentError(
                f"column {name!r} cannot have {shown(constraint)}: it can have PRIMARY KEY, NOT NULL, DEFAULT and "
                "COMMENT"
            )
    if is_key:
        parts["nullable"] = False
    definition = built_column(parts)
    if default is not None and (computed := expression_of(default)) is not None:
        definition = built_column({**parts, "default_expression": computed})
    elif default is not None:
        value = default_json(default, definition)
        more = {"write_default": value, **({"read_default": value} if adds else {})}
        definition = built_column({**parts, **more})
    return definition, is_key


def built_column(parts: dict[str, Any]) -> ColumnDefinition:
    """Return the column that CREATE TABLE or ALTER TABLE defines by these parts. Raises InvalidArgumentError: one is
    wrong."""
    try:
        return ColumnDefinition.model_validate(parts)
    except ValidationError as error:
        raise InvalidArgumentError(explain(error, f"column {parts['name']!r}", COLUMN_OPTIONS)) from None


def settings_of(nodes: Iterable[exp.Expr], name: str) -> dict[str, Any]:
    """Return the options of a column that an SQL statement lists after WITH or SET, by name.

    Raises:
        InvalidArgumentError: there is no such option, or a value is no literal.
    """
    answer: dict[str, Any] = {}
    for node in nodes:
        option, value = setting(node)
        if option not in COLUMN_OPTIONS:
            raise InvalidArgumentError(f"column {name!r} has no option {option!r}; known: {', '.join(COLUMN_OPTIONS)}")
        answer[option] = value
    return answer


def setting(node: exp.Expr) -> tuple[str, Any]:
    """Return the name and value of ``name = value`` in an SQL statement's list of options. Raises InvalidArgumentError:
    it is none."""
    if isinstance(node, exp.SchemaCommentProperty):
        return "comment", node.this.name
    if isinstance(node, exp.EQ):
        name = node.this.name.lower()
        value = node.expression
    elif isinstance(node, exp.Property) and type(node) is exp.Property:
        name = node.name.lower()
        value = node.args["value"]
    else:
        raise InvalidArgumentError(f"an option is written name = value, not {shown(node)}")
    if isinstance(value, exp.Var) or (isinstance(value, exp.Column) and not value.table):
        word = value.name.lower()
        return name, {"true": True, "false": False, "null": None}.get(word, word)
    return name, to_json(constant(value, f"the option {name!r}"))

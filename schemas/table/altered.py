"""Computes the result of an alteration's steps, and checks every rule before anything changes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from ..cells.encoding import fitting_encoding
from ..cells.literal import from_json
from ..cells.types import LogicalType
from ..errors import InvalidArgumentError
from ..limits.limits import Limits
from . import alter
from .column import TRUNCATE, ColumnDefinition, ColumnSchema
from .names import check_column_name, check_table_name
from .partition_schema import UNPARTITIONED, PartitionSchema, RangePartition, RangeSplit
from .table import TableOptions, TableSchema
from .ttl import renamed


@dataclass(frozen=True, slots=True)
class TableState:
    """The parts of a table that an alteration may change."""

    name: str
    schema: TableSchema
    options: TableOptions
    partitions: PartitionSchema = UNPARTITIONED
    dropped: tuple[RangePartition, ...] = ()
    """Ranges whose rows are dropped. A range with the same ends may have been added since, without these rows."""
    split: RangeSplit | None = None
    renamed: alter.RenameTable | None = None
    """The step that gave it its name."""


def altered(table: TableState, steps: Sequence[alter.Step], limits: Limits) -> TableState:
    """Alter a table: return it after all ``steps``, with the next schema version.

    Raises:
        InvalidArgumentError: a step breaks a rule of names, types, keys or options, or a limit, or names an unknown
            column; if there are several steps, the message says which.
    """
    if len(steps) > 1 and any(isinstance(step, alter.SplitPartition) for step in steps):
        raise InvalidArgumentError("split_partition cannot be combined with other steps: apply it alone")
    state = table
    for number, step in enumerate(steps, 1):
        try:
            state = _STEPS[type(step)](state, step, limits)
        except InvalidArgumentError as error:
            where = f"step {number} ({step.op}): " if len(steps) > 1 else ""
            raise InvalidArgumentError(f"{where}{error.message}") from None
    return replace(state, schema=_with(state.schema, version=table.schema.version + 1))


def _with(schema: TableSchema, **update: Any) -> TableSchema:
    """Return a new schema with some parts replaced: a copy would keep the old one's cached values."""
    parts = {name: getattr(schema, name) for name in TableSchema.model_fields}
    return TableSchema(**{**parts, **update})


def _with_column(state: TableState, column: ColumnSchema, **update: Any) -> TableState:
    """Return the table with parts of one column replaced."""
    changed = column.model_copy(update=update)
    columns = tuple(changed if other.id == column.id else other for other in state.schema.columns)
    return replace(state, schema=_with(state.schema, columns=columns))


def _add_column(state: TableState, step: alter.AddColumn, limits: Limits) -> TableState:
    schema = state.schema
    _check_new_name(schema, step.name, limits)
    if len(schema.columns) >= limits.columns:
        raise InvalidArgumentError(
            f"table {state.name!r} has {len(schema.columns)} columns; at most {limits.columns} are allowed"
        )
    column = ColumnSchema.from_definition(schema.next_column_id, step)
    if not step.nullable and step.read_default is None:
        raise InvalidArgumentError(
            f"column {step.name!r} is NOT NULL: give it a read_default, the value that existing rows get"
        )
    for what in ("read_default", "write_default"):
        column.check_default(what, getattr(step, what), limits)
    columns = (*schema.columns, column)
    return replace(state, schema=_with(schema, columns=columns, next_column_id=schema.next_column_id + 1))


def _drop_column(state: TableState, step: alter.DropColumn, limits: Limits) -> TableState:
    del limits
    column = _value_column(state.schema, step.name, "cannot be dropped")
    if column.id == state.schema.order_by:
        raise InvalidArgumentError(f"column {step.name!r} orders the changes of each row: set order_by to None first")
    if state.schema.ttl and column.id == state.schema.ttl.column:
        raise InvalidArgumentError(f"column {step.name!r} says when rows expire: set ttl to None first")
    columns = tuple(other for other in state.schema.columns if other.id != column.id)
    return replace(state, schema=_with(state.schema, columns=columns))


def _rename_column(state: TableState, step: alter.RenameColumn, limits: Limits) -> TableState:
    column = state.schema.column(step.name)
    if column == state.schema.auto_incrementing:
        raise InvalidArgumentError(f"column {step.name!r} is filled in by the store and cannot be renamed")
    if column == state.schema.filled:
        raise InvalidArgumentError(
            f"column {step.name!r} cannot be renamed while the option ttl counts from it: set ttl to None first"
        )
    if step.to != step.name:
        _check_new_name(state.schema, step.to, limits)
    if column.id == state.schema.order_by:
        state = replace(state, options=state.options.model_copy(update={"order_by": step.to}))
    if (ttl := state.options.ttl) and state.schema.ttl and column.id == state.schema.ttl.column:
        state = replace(state, options=state.options.model_copy(update={"ttl": renamed(ttl, step.to)}))
    return _with_column(state, column, name=step.to)


def _set_default(state: TableState, step: alter.SetDefault, limits: Limits) -> TableState:
    column = _value_column(state.schema, step.name, "cannot have a default")
    column.check_default("write_default", step.write_default, limits)
    defaults = {"write_default": step.write_default, "default_expression": step.default_expression}
    _checked(column, **defaults)
    return _with_column(state, column, **defaults)


def _set_merge(state: TableState, step: alter.SetMerge, limits: Limits) -> TableState:
    del limits
    column = _value_column(state.schema, step.name, "is the same in all rows that a merge combines")
    return _with_column(state, column, merge=_checked(column, merge=step.merge, immutable=column.immutable).merge)


def _set_encoding(state: TableState, step: alter.SetEncoding, limits: Limits) -> TableState:
    del limits
    column = state.schema.column(step.name)
    return _with_column(state, column, encoding=_checked(column, encoding=step.encoding).encoding)


def _set_compression(state: TableState, step: alter.SetCompression, limits: Limits) -> TableState:
    del limits
    column = state.schema.column(step.name)
    return _with_column(state, column, compression=_checked(column, compression=step.compression).compression)


def _set_block_rows(state: TableState, step: alter.SetBlockRows, limits: Limits) -> TableState:
    del limits
    column = state.schema.column(step.name)
    return _with_column(state, column, block_rows=_checked(column, block_rows=step.block_rows).block_rows)


def _set_too_long(state: TableState, step: alter.SetTooLong, limits: Limits) -> TableState:
    del limits
    column = state.schema.column(step.name)
    return _with_column(state, column, too_long=_checked(column, too_long=step.too_long).too_long)


def _set_comment(state: TableState, step: alter.SetComment, limits: Limits) -> TableState:
    if step.name is None:
        return _set_option(state, alter.SetOption(option="comment", value=step.comment), limits)
    column = state.schema.column(step.name)
    return _with_column(state, column, comment=_checked(column, comment=step.comment).comment)


def _widen_column(state: TableState, step: alter.WidenColumn, limits: Limits) -> TableState:
    del limits
    column = _value_column(state.schema, step.name, "cannot change its type")
    old, new = column.logical, LogicalType.parse(step.type)
    if not is_wider(old, new):
        raise InvalidArgumentError(
            f"column {step.name!r} of the type {old} cannot become {new}: a column may be widened "
            "int8 -> int16 -> int32 -> int64, float -> double, decimal(p,s) to a greater p, "
            "varchar(n) to a greater n or to string, json to string"
        )
    default = column.read_default
    if default is not None and old.name == "float":  # rows keep showing the same number
        default = _single(from_json(default, old), default)
    encoding = fitting_encoding(column.encoding, new)
    too_long = column.too_long if new.name == "varchar" else TRUNCATE
    return _with_column(state, column, type=str(new), read_default=default, encoding=encoding, too_long=too_long)


def _drop_not_null(state: TableState, step: alter.DropNotNull, limits: Limits) -> TableState:
    del limits
    column = _value_column(state.schema, step.name, "may never be NULL")
    return _with_column(state, column, nullable=True)


def _set_option(state: TableState, step: alter.SetOption, limits: Limits) -> TableState:
    if step.option not in TableOptions.model_fields:
        known = ", ".join(TableOptions.model_fields)
        raise InvalidArgumentError(f"unknown table option {step.option!r}; known: {known}")
    parts = {**state.options.model_dump(), step.option: step.value}
    if step.value is None:
        del parts[step.option]
    try:
        options = TableOptions.model_validate(parts).checked()
        if options.cell_bytes_max != state.options.cell_bytes_max:
            options.check_cells(limits)
        schema = state.schema.model_copy(update=state.schema.of_options(options))
        return replace(state, options=options, schema=schema)
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InvalidArgumentError(f"table option {step.option!r} cannot be {step.value!r}: {why}") from None


def _add_range_partition(state: TableState, step: alter.AddRangePartition, limits: Limits) -> TableState:
    return replace(state, partitions=state.partitions.with_range(step, state.schema, limits))


def _drop_range_partition(state: TableState, step: alter.DropRangePartition, limits: Limits) -> TableState:
    del limits
    partitions, dropped = state.partitions.without_range(step, state.schema)
    return replace(state, partitions=partitions, dropped=(*state.dropped, dropped))


def _split_partition(state: TableState, step: alter.SplitPartition, limits: Limits) -> TableState:
    partitions, split = state.partitions.split_at(step.at, state.schema, limits)
    return replace(state, partitions=partitions, split=split)


def _rename_table(state: TableState, step: alter.RenameTable, limits: Limits) -> TableState:
    check_table_name(step.to, limits)
    if step.replaces is None and step.keep_seconds:
        raise InvalidArgumentError("keep_seconds is only for a rename that replaces a table: give its id in replaces")
    return replace(state, name=step.to, renamed=step)


_WIDER = {("float", "double"), ("float16", "float"), ("float16", "double"), ("json", "string")}


def is_wider(old: LogicalType, new: LogicalType) -> bool:
    """Return whether an alteration widens a column: ``new`` is another type that holds every value of ``old``
    unchanged.

    >>> is_wider(LogicalType.parse("int8"), LogicalType.parse("int32"))
    True
    """
    if old.is_integer and new.is_integer:
        (least, end), (new_least, new_end) = old.bounds, new.bounds
        return new != old and new_least <= least and end <= new_end
    if old.name == "varchar":
        return new.name == "string" or (new.name == "varchar" and new.length > old.length)
    if old.name == "decimal":
        return new.name == "decimal" and new.scale == old.scale and new.precision > old.precision
    return (old.name, new.name) in _WIDER


def _value_column(schema: TableSchema, name: str, rule: str) -> ColumnSchema:
    """Return a column outside the key; ``rule`` says in the error why a key column is rejected."""
    column = schema.column(name)
    if column in schema.key:
        raise InvalidArgumentError(f"column {name!r} is part of the primary key: it {rule}")
    return column


def _check_new_name(schema: TableSchema, name: str, limits: Limits) -> None:
    check_column_name(name, limits)
    if name in schema.by_name:
        raise InvalidArgumentError(f"column {name!r} already exists")


def _checked(column: ColumnSchema, **update: Any) -> ColumnSchema:
    """Return a column of the same type, checked by the rules for new columns."""
    definition = ColumnDefinition(name=column.name, type=column.type, **update)
    return ColumnSchema.from_definition(column.id, definition)


def _single(cell: float, literal: Any) -> Any:
    """Return a number rounded to single precision; a literal that is not finite stays unchanged."""
    return literal if isinstance(literal, dict) else struct.unpack("<f", struct.pack("<f", cell))[0]


_STEPS: dict[type, Callable[[TableState, Any, Limits], TableState]] = {
    alter.AddColumn: _add_column,
    alter.DropColumn: _drop_column,
    alter.RenameColumn: _rename_column,
    alter.SetDefault: _set_default,
    alter.SetMerge: _set_merge,
    alter.SetEncoding: _set_encoding,
    alter.SetCompression: _set_compression,
    alter.SetBlockRows: _set_block_rows,
    alter.SetTooLong: _set_too_long,
    alter.SetComment: _set_comment,
    alter.WidenColumn: _widen_column,
    alter.DropNotNull: _drop_not_null,
    alter.SetOption: _set_option,
    alter.AddRangePartition: _add_range_partition,
    alter.DropRangePartition: _drop_range_partition,
    alter.SplitPartition: _split_partition,
    alter.RenameTable: _rename_table,
}

"""Adds columns to a table that a stream writes to: those that the rows have and it lacks; and widens narrower ones."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from ...schemas.cells.types import LogicalType
from ...schemas.errors import ConflictError
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from ...schemas.table.alter import AddColumn, Alteration, Step, WidenColumn
from ...schemas.table.altered import is_wider
from ...schemas.table.column import ColumnSchema
from .types import arrow_type

_TRIES = 5


def merge_columns(store: StoreService, table: str, schema: StructType, apart: str | None) -> TableDescription:
    """Add the columns that a Spark stream writes to a table: return the table once it has all columns of ``schema`` but
    ``apart``. New ones may be NULL.

    Raises:
        StoreError: the table cannot be altered so, or not by this user.
    """
    rows = [field for field in schema if apart is None or field.name.lower() != apart.lower()]
    for tries_left in reversed(range(_TRIES)):
        there = store.describe_table(table)
        steps = list(_steps(rows, there.columns))
        if not steps:
            return there
        try:
            return store.alter_table(Alteration(table=table, steps=steps, if_version=there.schema_version))
        except ConflictError:  # another query did the same
            if not tries_left:
                raise
    raise AssertionError("unreachable")


def _steps(rows: Iterable[StructField], there: Iterable[ColumnSchema]) -> Iterable[Step]:
    known = {column.name.lower(): column for column in there}
    for field in rows:
        kind, column = _logical(field), known.get(field.name.lower())
        if column is None:
            comment = str((field.metadata or {}).get("comment", ""))
            yield AddColumn(name=field.name, type=str(kind), comment=comment)
        elif column.logical.name != "varchar" and is_wider(column.logical, kind):  # Spark knows no varchar
            yield WidenColumn(name=column.name, type=str(kind))


def _logical(field: StructField) -> LogicalType:
    return LogicalType.from_arrow(pa.field(field.name, _in_table(arrow_type(field.dataType, field.name))))


def _in_table(kind: pa.DataType) -> pa.DataType:
    """Return the type of a new column for cells of one in which Spark exchanges them: as ``CREATE TABLE`` makes it."""
    is_ = pa.types
    if is_.is_timestamp(kind):
        return pa.timestamp("us")
    if is_.is_time(kind):
        return pa.time64("us")
    if is_.is_struct(kind):
        return pa.struct([field.with_type(_in_table(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(_in_table(kind.key_type), _in_table(kind.item_type))
    return pa.list_(_in_table(kind.value_type)) if is_.is_list(kind) else kind

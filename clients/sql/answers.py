"""The columns of a query's answer: their names and types, and the cells that DataFusion makes, as these types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from ...schemas.errors import InvalidArgumentError


def answer_schema(
    session: SessionContext, named: DataFrame, typed: DataFrame, frame: DataFrame, plan: Any
) -> pa.Schema:
    """Return the names and types of a query's answer. ``named`` is the query as it was written, ``typed`` the one with
    its numbers made exact, and ``frame`` that one with its computations checked; ``plan`` is the optimized plan of
    ``frame``.

    A frame has the type of the first branch for CASE, and of the first part for UNION. Its optimized plan has the type
    that all of them have in common. The checks compute with other types than the answer has. Only where DataFusion has
    a decimal and a check an integer, as for counts without a sign, the answer has the integer.
    """
    kinds = _schema_of(session, plan).types
    if typed is not frame and kinds != typed.schema().types:
        own = _schema_of(session, typed.optimized_logical_plan()).types
        kinds = [
            checked if pa.types.is_decimal(kind) and pa.types.is_integer(checked) else kind
            for kind, checked in zip(own, kinds, strict=True)
        ]
    return pa.schema([field.with_type(kind) for field, kind in zip(named.schema(), kinds, strict=True)])


def _schema_of(session: SessionContext, plan: Any) -> pa.Schema:
    return session.create_dataframe_from_logical_plan(plan).schema()


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a query's answer without views, which older readers of Arrow do not know. All columns may be
    NULL: a query that is only described has no better answer, and drivers compare."""
    return pa.schema([field.with_type(_plain_type(field.type)).with_nullable(True) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return kind


def plain(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of DataFusion with the columns of ``schema``. Raises InvalidArgumentError: a value is beyond
    the type of its column."""
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [_cast(column, field) for column, field in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowInvalid:
        hint = ": cast an operand to bigint" if pa.types.is_integer(field.type) else ""
        raise InvalidArgumentError(f"a computed value is out of the range of {field.type}{hint}") from None

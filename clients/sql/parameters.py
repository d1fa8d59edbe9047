"""The types of a statement's parameters, as far as the columns beside them tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from .text.dialect import NyalaSql

_TEXT = pa.string()
_BESIDE = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Add, exp.Sub, exp.Mul, exp.Div)
_CASTS = {
    "bigint": pa.int64(),
    "int": pa.int64(),
    "smallint": pa.int64(),
    "double": pa.float64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("ms"),
    "timestamptz": pa.timestamp("ms", "UTC"),
}


def parameter_types(text: str, names: Sequence[str], tables: Iterable[pa.Schema]) -> pa.Schema:
    """Return a field for each parameter of a statement, whose text has them as ``$name``: of the type of the column
    that it is compared with or written to, else text. Drivers write moments in milliseconds, whatever they are told."""
    if not names:
        return pa.schema([])
    columns = _columns(tables)
    types: dict[str, pa.DataType] = {}
    tree = sqlglot.parse_one(text, dialect=NyalaSql)
    for node in tree.find_all(exp.Parameter, exp.Placeholder):
        kind = _type(node, columns)
        if kind is not None:
            types.setdefault(_name(node), kind)
    return pa.schema([pa.field(name, types.get(name, _TEXT)) for name in names])


def _columns(tables: Iterable[pa.Schema]) -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    unclear: set[str] = set()
    for field in (field for table in tables for field in table):
        kind = _sent(field.type)
        if columns.setdefault(field.name.lower(), kind) != kind:
            unclear.add(field.name.lower())
    return {name: kind for name, kind in columns.items() if name not in unclear}


def _sent(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("ms", kind.tz) if isinstance(kind, pa.TimestampType) else kind


def _type(node: exp.Expr, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    parent: Any = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return _CASTS.get(parent.to.this.value.lower())
    if isinstance(parent, exp.Limit | exp.Offset):
        return pa.int64()
    if isinstance(parent, _BESIDE):
        beside = [columns.get(each.name.lower()) for each in parent.find_all(exp.Column)]
        return next((kind for kind in beside if kind is not None), None)
    if isinstance(parent, exp.Tuple) and isinstance(parent.parent, exp.Values):
        insert = parent.parent.parent
        target = insert.this if isinstance(insert, exp.Insert) else None
        place = next(
            number for number, each in enumerate(parent.expressions) if node in (each, *each.find_all(type(node)))
        )
        named = [each.name.lower() for each in target.expressions] if isinstance(target, exp.Schema) else list(columns)
        return columns.get(named[place]) if place < len(named) else None
    return None


def _name(node: exp.Expr) -> str:
    return node.name or node.this.name

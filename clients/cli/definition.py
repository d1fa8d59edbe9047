"""Reads a table's columns from the command line: ``name:type``, or a file whose columns it shall have."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...schemas.column import ColumnDefinition
from ...schemas.errors import InvalidArgumentError
from ...schemas.table import TableDefinition
from ...schemas.types import LogicalType, nearest


def table_definition(
    name: str,
    columns: Sequence[str],
    like: pa.Schema | None,
    key: Sequence[str],
    encodings: Sequence[str],
    if_not_exists: bool,
    unique_key: bool = True,
) -> TableDefinition:
    """Return the definition that the options of ``table create`` make; the key's columns are put first.

    Raises:
        InvalidArgumentError: an option is of the wrong form, or names no column.
    """
    types = dict(pair(column, ":", "--column name:type") for column in columns)
    if like is not None:
        types = {field.name: _word(field) for field in like} | types
    chosen = dict(pair(encoding, "=", "--encoding column=encoding") for encoding in encodings)
    if unknown := [column for column in (*key, *chosen) if column not in types]:
        raise InvalidArgumentError(f"there is no column {unknown[0]!r} among {', '.join(types) or 'none'}")
    ordered = [*key, *(column for column in types if column not in key)]
    return TableDefinition(
        name=name,
        columns=[_definition(column, types[column], column in key, chosen.get(column)) for column in ordered],
        primary_key=list(key),
        unique_key=unique_key,
        if_not_exists=if_not_exists,
    )


def pair(text: str, mark: str, form: str) -> tuple[str, str]:
    """Return what stands before and after ``mark``. Raises InvalidArgumentError naming the ``form`` otherwise."""
    left, found, right = text.partition(mark)
    if not (left and found and right):
        raise InvalidArgumentError(f"{text!r} is not of the form {form}")
    return left, right


def _definition(name: str, kind: str, is_key: bool, encoding: str | None) -> ColumnDefinition:
    required = kind.endswith("!")
    return ColumnDefinition(
        name=name, type=kind.removesuffix("!"), nullable=not (is_key or required), encoding=encoding
    )


def _word(field: pa.Field) -> str:
    """Return the type that a file's column gets: its own, or the nearest that a table can hold."""
    try:
        return str(LogicalType.from_arrow(field))
    except InvalidArgumentError:
        return nearest(field.type).partition(" (")[0]

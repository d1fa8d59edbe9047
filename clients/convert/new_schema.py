"""Columns for a new table from any Arrow types: each gets the column type that holds its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...schemas import compute as pc
from ...schemas.cells.casts import ROUND_IT
from ...schemas.cells.types import LogicalType, holder, key_type, nearest, nearest_word
from ...schemas.cells.wrapped import bare_type, unwrapped
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnOptions
from .casting import misfit_of
from .data import DIGITS_MAX, GivenData, check_names, read_data
from .stored import is_stored

Options = Mapping[str, ColumnOptions | Mapping[str, Any]]

_INT64_MAX = (1 << 63) - 1


class NewSchema(NamedTuple):
    """The columns of a new table that fit the types of a user's data, and a note for each whose type differs from the
    given one."""

    schema: pa.Schema
    notes: list[str]


class NewTableData(NamedTuple):
    """The rows that a user gives for a table that does not exist yet."""

    columns: NewSchema
    rows: pa.Table | pa.RecordBatchReader


def schema_for(schema: pa.Schema, primary_key: Sequence[str], options: Options) -> NewSchema:
    """Convert the Arrow schema of a user's data to one with types that a table can have.

    Raises:
        InvalidArgumentError: no table holds some columns; the message names all of them, and what would work.
    """
    return _new_schema(schema, primary_key, options, {}, ())


def read_new(data: Any, primary_key: Sequence[str], options: Options) -> NewTableData:
    """Convert a user's ``data`` for a new table: return the table's columns, those of the key first, and its rows.

    Cells in memory are examined if their type alone does not decide: unsigned 64-bit integers of a key that all fit
    become int64, and nanoseconds must be whole microseconds. Python's decimals get all digits that a column can have,
    since larger ones may come. A ``type`` in ``options`` is used if the cells can be cast to it.

    Raises:
        InvalidArgumentError: it is not data, lacks a key column, or has columns that no table holds, all of them named.
    """
    given = read_data(data, {})
    rows = _rows(given, hasattr(data, "__len__") and not is_stored(data))
    known = given.schema.names
    check_names(known)
    if not given.misfits and (missing := [name for name in primary_key if name not in known]):
        raise InvalidArgumentError(
            f"primary_key names {missing[0]!r}, which is not a column of the data; it has "
            f"{', '.join(known[:20]) or 'none'}"
        )
    names = [name for name in primary_key if name in known] + [name for name in known if name not in primary_key]
    held, lossy = _looked_at(rows, primary_key) if isinstance(rows, pa.Table) else ({}, [])
    held |= {name: wide for name in given.guessed if (wide := _widest(given.schema.field(name).type))}
    fields = [given.schema.field(name) for name in names]
    return NewTableData(_new_schema(fields, primary_key, options, held, [*given.misfits, *lossy]), rows)


def _rows(given: GivenData, is_in_memory: bool) -> pa.Table | pa.RecordBatchReader:
    if isinstance(given.batches, list):
        return pa.Table.from_batches(given.batches, given.schema)
    return given.batches.read_all() if is_in_memory else given.batches


def _new_schema(
    fields: Iterable[pa.Field],
    primary_key: Sequence[str],
    options: Options,
    held: Mapping[str, LogicalType],
    misfits: Sequence[str],
) -> NewSchema:
    """Return the columns, with the types in ``held`` if any; ``misfits`` are problems found before."""
    made: list[pa.Field] = []
    notes: list[str] = []
    wrong = list(misfits)
    for field in fields:
        chosen = _chosen(options.get(field.name))
        kind = chosen or held.get(field.name) or holder(field.type)
        if kind and not chosen and field.name in primary_key:
            kind = key_type(kind)
        if pa.types.is_string(field.type) and chosen is None:
            made.append(field)  # keeps its metadata, which may say varchar
        elif why := misfit_of(field, chosen) if chosen else None if kind else _no_type(field):
            wrong.append(why)
        elif kind:
            made.append(kind.field(field.name, field.nullable))
            notes.extend(_note(field, kind))
    if wrong:
        count = "one of the columns" if len(wrong) == 1 else f"{len(wrong)} of the columns"
        raise InvalidArgumentError(f"a table cannot hold {count} as given: {'; '.join(wrong)}")
    return NewSchema(pa.schema(made), notes)


def _chosen(options: ColumnOptions | Mapping[str, Any] | None) -> LogicalType | None:
    if not isinstance(options, ColumnOptions | Mapping | None):
        raise InvalidArgumentError(f"the options of a column must be a ColumnOptions or a dict, not {options!r}")
    word = options.type if isinstance(options, ColumnOptions) else (options or {}).get("type")
    return LogicalType.parse(word) if isinstance(word, str) else None


def _no_type(field: pa.Field) -> str:
    if pa.types.is_null(field.type):
        return (
            f"column {field.name!r} has no value to infer its type from: give a type, as in "
            f"column_options={{{field.name!r}: {{'type': 'string'}}}}, or leave it out"
        )
    if pa.types.is_decimal(bare := bare_type(field.type)):
        return (
            f"column {field.name!r} is {field.type}, and a table holds at most 38 digits: cast it to "
            f"{nearest_word(bare)} if its values fit, otherwise to string, or leave it out"
        )
    return f"column {field.name!r} is {field.type}: convert it, {nearest(field.type)} would work, or leave it out"


def _note(field: pa.Field, kind: LogicalType) -> Iterator[str]:
    if kind.arrow == field.type:
        return
    bare = bare_type(field.type)
    why = ""
    if pa.types.is_timestamp(bare):
        why = ", the same moments in UTC" if bare.tz is not None else ""
        why += ", for whole microseconds only" if bare.unit == "ns" else ""
    elif pa.types.is_uint64(bare):
        why = ", which holds all of its values"
    elif pa.types.is_decimal(bare) and kind.precision == DIGITS_MAX:
        narrow = f"{{{field.name!r}: {{'type': 'decimal({bare.precision},{kind.scale})'}}}}"
        why = f", so that larger values fit later; column_options={narrow} makes it narrower"
    yield f"column {field.name!r} is {field.type} and is stored as {kind}{why}"


def _looked_at(rows: pa.Table, primary_key: Sequence[str]) -> tuple[dict[str, LogicalType], list[str]]:
    """Return which unsigned columns of the key fit in int64, and problems of timestamps too fine for a table."""

    held: dict[str, LogicalType] = {}
    lossy: list[str] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        bare = bare_type(field.type)
        if pa.types.is_uint64(bare) and field.name in primary_key:
            largest = max((pc.max(cells).as_py() or 0 for cells in _cells(column)), default=0)
            if largest <= _INT64_MAX:
                held[field.name] = LogicalType("int64")
        elif bare == pa.timestamp("ns", getattr(bare, "tz", None)) and any(map(_is_finer, _cells(column))):
            lossy.append(f"column {field.name!r} is {field.type} and has fractions of a microsecond: {ROUND_IT}")
    return held, lossy


def _widest(kind: pa.DataType) -> LogicalType | None:
    """Return the widest decimal with the digits after the point of this one; None if it is none, or too wide."""
    bare = bare_type(kind)
    return LogicalType.decimal(DIGITS_MAX, max(bare.scale, 0)) if pa.types.is_decimal(bare) and holder(bare) else None


def _cells(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in column.chunks:
        cells = unwrapped(chunk)
        yield unwrapped(cells.dictionary) if isinstance(cells, pa.DictionaryArray) else cells


def _is_finer(cells: pa.Array) -> bool:
    """Return whether nanoseconds are not whole microseconds."""
    numbers = cells.view(pa.int64()).drop_null().to_numpy(zero_copy_only=False)
    return bool((numbers % 1_000).any())

"""What SQL tells of tables: ``information_schema``, SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ...schemas.cells.nested_names import struct_text
from ...schemas.cells.types import TYPE_METADATA
from ...schemas.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from ...schemas.phrases import perhaps
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from .statement import CATALOG, INFORMATION, SCHEMA

_TEXT, _NUMBER = pa.string(), pa.int32()
_TABLES = ["table_catalog", "table_schema", "table_name", "table_type", "is_insertable_into"]
_SCHEMATA = ["catalog_name", "schema_name", "schema_owner"]
_KEYS = ["constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema", "table_name"]


def information(store: StoreService, names: Iterable[str]) -> dict[str, pa.RecordBatch]:
    """Return tables of ``information_schema``, as they are now.

    Raises:
        NotFoundError: it has no table of such a name.
    """
    batches = {}
    for name in names:
        make = _MADE.get(name)
        if make is None:
            raise NotFoundError(
                f"there is no table {INFORMATION}.{name}{perhaps(name, _MADE)}; there are: {', '.join(_MADE)}"
            )
        batches[name] = make(store)
    return batches


def shown(store: StoreService, tree: exp.Expr) -> pa.Table:
    """Answer the SQL statement SHOW TABLES. Raises InvalidArgumentError for all else."""
    words = tree.expression.name.lower().split() if tree.args.get("expression") else []
    if words != ["tables"]:
        raise InvalidArgumentError("only SHOW TABLES is possible: query information_schema for the rest")
    return pa.table({"table_name": pa.array(store.tables(), _TEXT)})


def described(table: TableDescription) -> pa.Table:
    """Answer the SQL statement DESCRIBE."""
    rows = [
        {
            "column_name": column.name,
            "data_type": column_type(column.field),
            "is_nullable": "YES" if column.field.nullable else "NO",
            "key": table.primary_key.index(column.name) + 1 if column.name in table.primary_key else None,
            "comment": column.comment or None,
        }
        for column in table.columns
    ]
    fields = {"column_name": _TEXT, "data_type": _TEXT, "is_nullable": _TEXT, "key": _NUMBER, "comment": _TEXT}
    return pa.Table.from_pylist(rows, pa.schema(list(fields.items())))


def column_type(field: pa.Field) -> str:
    """Return PostgreSQL's name of a column's type, as SQL's ``information_schema`` shows it."""
    own = (field.metadata or {}).get(TYPE_METADATA)
    return own.decode() if own else sql_type(field.type)


def sql_type(kind: pa.DataType) -> str:
    """Return PostgreSQL's name of the type of cells, as SQL's ``information_schema`` shows it."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if pa.types.is_struct(kind):
        return struct_text((field.name, sql_type(field.type)) for field in kind)
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_nested(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else ""
        return f"{sql_type(kind.value_type)}[{size}]"
    return _TYPES.get(str(kind), str(kind))


_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date32[day]": "date",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "time64[us]": "time",
    "month_day_nano_interval": "interval",
}


def _schemata(_: StoreService) -> pa.RecordBatch:
    return _batch(_SCHEMATA, [(CATALOG, SCHEMA, None), (CATALOG, INFORMATION, None)])


def _tables(store: StoreService) -> pa.RecordBatch:
    rows = [(CATALOG, SCHEMA, name, "BASE TABLE", "YES") for name in store.tables()]
    return _batch(_TABLES, [*rows, *((CATALOG, INFORMATION, name, "VIEW", "NO") for name in _MADE)])


def _columns(store: StoreService) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = []
    for table in _all(store):
        for place, column in enumerate(table.columns):
            kind = column.field.type
            rows.append(
                {
                    "table_catalog": CATALOG,
                    "table_schema": SCHEMA,
                    "table_name": table.name,
                    "column_name": column.name,
                    "ordinal_position": place + 1,
                    "column_default": None,
                    "is_nullable": "YES" if column.field.nullable else "NO",
                    "data_type": column_type(column.field).partition("(")[0],
                    "numeric_precision": kind.precision if pa.types.is_decimal(kind) else None,
                    "numeric_scale": kind.scale if pa.types.is_decimal(kind) else None,
                }
            )
    numbers = ("ordinal_position", "numeric_precision", "numeric_scale")
    names = [
        "table_catalog",
        "table_schema",
        "table_name",
        "column_name",
        "ordinal_position",
        "column_default",
        "is_nullable",
        "data_type",
        "numeric_precision",
        "numeric_scale",
    ]
    schema = pa.schema([(name, _NUMBER if name in numbers else _TEXT) for name in names])
    return pa.RecordBatch.from_pylist(rows, schema)


def _constraints(store: StoreService) -> pa.RecordBatch:
    rows = [(CATALOG, SCHEMA, f"{each.name}_pkey", CATALOG, SCHEMA, each.name, "PRIMARY KEY") for each in _all(store)]
    return _batch([*_KEYS, "constraint_type"], rows)


def _key_columns(store: StoreService) -> pa.RecordBatch:
    rows = [
        (CATALOG, SCHEMA, f"{table.name}_pkey", CATALOG, SCHEMA, table.name, name, place + 1)
        for table in _all(store)
        for place, name in enumerate(table.primary_key)
    ]
    return _batch([*_KEYS, "column_name", "ordinal_position"], rows)


def _all(store: StoreService) -> Iterable[TableDescription]:
    for name in store.tables():
        try:
            yield store.describe_table(name)
        except (NotFoundError, PermissionDeniedError):  # dropped meanwhile, or not for the caller
            continue


def _batch(names: list[str], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    kinds = [_NUMBER if name == "ordinal_position" else _TEXT for name in names]
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


_MADE: dict[str, Callable[[StoreService], pa.RecordBatch]] = {
    "schemata": _schemata,
    "tables": _tables,
    "columns": _columns,
    "table_constraints": _constraints,
    "key_column_usage": _key_columns,
}

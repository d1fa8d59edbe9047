"""Metadata of Flight SQL: catalogs, schemas, tables, keys, types, and what the server can do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ...clients.sql.information import column_type
from ...clients.sql.statement import CATALOG, SCHEMA
from ...schemas.errors import NotFoundError, PermissionDeniedError
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from .sql_info import schema as sql_info_schema
from .sql_info import sql_info
from .type_info import SCHEMA as TYPE_INFO
from .type_info import type_info

_TEXT = pa.string()
_KEY_COLUMNS = ("catalog_name", "db_schema_name", "table_name", "column_name", "key_sequence", "key_name")
_FOREIGN_COLUMNS = (
    *("pk_catalog_name", "pk_db_schema_name", "pk_table_name", "pk_column_name"),
    *("fk_catalog_name", "fk_db_schema_name", "fk_table_name", "fk_column_name"),
    *("key_sequence", "fk_key_name", "pk_key_name", "update_rule", "delete_rule"),
)
_MAY_BE_NULL = re.compile(r"(?:.*_)?(?:catalog_name|db_schema_name|key_name)")
_TYPE = "TABLE"
_METADATA = "ARROW:FLIGHT:SQL:"


def _field(name: str) -> pa.Field:
    kind = pa.int32() if name == "key_sequence" else pa.uint8() if name.endswith("_rule") else _TEXT
    return pa.field(name, kind, _MAY_BE_NULL.fullmatch(name) is not None)


_CATALOGS = pa.schema([pa.field("catalog_name", _TEXT, False)])
_SCHEMAS = pa.schema([pa.field("catalog_name", _TEXT), pa.field("db_schema_name", _TEXT, False)])
_TABLE_TYPES = pa.schema([pa.field("table_type", _TEXT, False)])
_TABLES = pa.schema(
    [
        pa.field("catalog_name", _TEXT),
        pa.field("db_schema_name", _TEXT),
        pa.field("table_name", _TEXT, False),
        pa.field("table_type", _TEXT, False),
    ]
)
_TABLES_WITH_SCHEMAS = _TABLES.append(pa.field("table_schema", pa.binary(), False))
_KEYS = pa.schema([_field(name) for name in _KEY_COLUMNS])
_FOREIGN = pa.schema([_field(name) for name in _FOREIGN_COLUMNS])


def schema_of(name: str, message: Any) -> pa.Schema | None:
    """Return the columns of the answer to a command of Flight SQL; None: it is not one of metadata."""
    if name == "CommandGetSqlInfo":
        return sql_info_schema()
    if name == "CommandGetTables":
        return _TABLES_WITH_SCHEMAS if message.include_schema else _TABLES
    return _SCHEMA_OF.get(name)


def answer(store: StoreService, name: str, message: Any) -> pa.Table | None:
    """Answer a command of Flight SQL about what the caller of a store may see; None: it is not one of metadata.

    Raises:
        NotFoundError: there is no table whose key is asked for.
    """
    make = _ANSWERS.get(name)
    return None if make is None else make(store, message)


def _catalogs(_: StoreService, __: Any) -> pa.Table:
    return pa.Table.from_pylist([{"catalog_name": CATALOG}], _CATALOGS)


def _schemas(_: StoreService, message: Any) -> pa.Table:
    row = {"catalog_name": CATALOG, "db_schema_name": SCHEMA}
    return pa.Table.from_pylist([row] if _is_here(message) else [], _SCHEMAS)


def _table_types(_: StoreService, __: Any) -> pa.Table:
    return pa.Table.from_pylist([{"table_type": _TYPE}], _TABLE_TYPES)


def _tables(store: StoreService, message: Any) -> pa.Table:
    kinds = list(message.table_types)
    rows: list[dict[str, Any]] = []
    if _is_here(message) and (not kinds or _TYPE in kinds):
        pattern = _pattern(message, "table_name_filter_pattern")
        names = [each for each in sorted(store.tables()) if pattern is None or pattern.selects(each)]
        if message.include_schema:
            for table in _described(store, names):
                rows.append(_row(table.name) | {"table_schema": _schema(table).serialize().to_pybytes()})
        else:
            rows = [_row(each) for each in names]
    return pa.Table.from_pylist(rows, _TABLES_WITH_SCHEMAS if message.include_schema else _TABLES)


def _row(table: str) -> dict[str, Any]:
    return {"catalog_name": CATALOG, "db_schema_name": SCHEMA, "table_name": table, "table_type": _TYPE}


def _primary_keys(store: StoreService, message: Any) -> pa.Table:
    rows: list[dict[str, Any]] = []
    if _is_in(message, "catalog", CATALOG) and _is_in(message, "db_schema", SCHEMA):
        for place, column in enumerate(store.describe_table(message.table).primary_key):
            named = {key: value for key, value in _row(message.table).items() if key != "table_type"}
            rows.append(named | {"column_name": column, "key_sequence": place + 1, "key_name": f"{message.table}_pkey"})
    return pa.Table.from_pylist(rows, _KEYS)


def _no_foreign_keys(_: StoreService, __: Any) -> pa.Table:
    return _FOREIGN.empty_table()


def _described(store: StoreService, names: list[str]) -> Iterator[TableDescription]:
    for name in names:
        try:
            yield store.describe_table(name)
        except (NotFoundError, PermissionDeniedError):  # dropped meanwhile, or not for the caller
            continue


def _schema(table: TableDescription) -> pa.Schema:
    """Return the columns of a table, with what drivers show of them."""
    fields: list[pa.Field] = []
    for column in table.columns:
        kind = column.field.type
        about = {
            "CATALOG_NAME": CATALOG,
            "SCHEMA_NAME": SCHEMA,
            "TABLE_NAME": table.name,
            "TYPE_NAME": column_type(column.field),
            "IS_AUTO_INCREMENT": str(int(column.name == "auto_incrementing_id")),
            "IS_CASE_SENSITIVE": "1",
            "IS_READ_ONLY": "0",
            "IS_SEARCHABLE": "1",
        }
        if pa.types.is_decimal(kind):
            about |= {"PRECISION": str(kind.precision), "SCALE": str(kind.scale)}
        if column.comment:
            about["REMARKS"] = column.comment
        metadata = {f"{_METADATA}{name}": value for name, value in about.items()}
        fields.append(pa.field(column.name, kind, column.field.nullable, metadata))
    return pa.schema(fields)


def _is_here(message: Any) -> bool:
    """Whether filters of catalog and schema select those that there are."""
    pattern = _pattern(message, "db_schema_filter_pattern")
    return _is_in(message, "catalog", CATALOG) and (pattern is None or pattern.selects(SCHEMA))


def _is_in(message: Any, field: str, name: str) -> bool:
    """Whether a filter selects a name. An absent one selects all; an empty one what has no such name."""
    return not message.HasField(field) or getattr(message, field) == name


class _Pattern:
    """A pattern of LIKE, matched in time that grows with the product of both lengths at most."""

    def __init__(self, text: str) -> None:
        self._parts: list[str | None] = []
        """Characters; "" is any one, None any number."""
        for escaped, plain in re.findall(r"\\(.)|(.)", text, re.DOTALL):
            self._parts.append(escaped or {"%": None, "_": ""}.get(plain, plain))

    def selects(self, name: str) -> bool:
        """Whether a name is like the pattern."""
        places = {0}
        for part in self._parts:
            if part is None:
                places = set(range(min(places), len(name) + 1)) if places else places
            else:
                places = {place + 1 for place in places if place < len(name) and part in ("", name[place])}
        return len(name) in places


def _pattern(message: Any, field: str) -> _Pattern | None:
    """Return a pattern of LIKE; None if it is absent. One that is empty selects nothing."""
    return _Pattern(getattr(message, field)) if message.HasField(field) else None


def _info(_: StoreService, message: Any) -> pa.Table:
    return sql_info(list(message.info))


def _types(_: StoreService, message: Any) -> pa.Table:
    return type_info(message.data_type if message.HasField("data_type") else None)


_ANSWERS: dict[str, Callable[[StoreService, Any], pa.Table]] = {
    "CommandGetCatalogs": _catalogs,
    "CommandGetDbSchemas": _schemas,
    "CommandGetTables": _tables,
    "CommandGetTableTypes": _table_types,
    "CommandGetPrimaryKeys": _primary_keys,
    "CommandGetExportedKeys": _no_foreign_keys,
    "CommandGetImportedKeys": _no_foreign_keys,
    "CommandGetCrossReference": _no_foreign_keys,
    "CommandGetSqlInfo": _info,
    "CommandGetXdbcTypeInfo": _types,
}
_SCHEMA_OF = {
    "CommandGetCatalogs": _CATALOGS,
    "CommandGetDbSchemas": _SCHEMAS,
    "CommandGetTableTypes": _TABLE_TYPES,
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _FOREIGN,
    "CommandGetImportedKeys": _FOREIGN,
    "CommandGetCrossReference": _FOREIGN,
    "CommandGetXdbcTypeInfo": TYPE_INFO,
}

"""Ingest: a stream of rows for a table, which a driver sends at once. It becomes one commit, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ...clients.api.database import Database
from ...clients.api.loading import dropped_unless_loaded
from ...clients.sql.statement import CATALOG, SCHEMA
from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.operation import Operation

KEY_HEADER = "x-nyala-primary-key"
OPERATION_HEADER = "x-nyala-op"
_CREATE, _FAIL_IF_MISSING = 1, 2
_FAIL_IF_THERE, _APPEND, _REPLACE = 1, 2, 3


def ingest(
    store: StoreService,
    message: Any,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    headers: Mapping[str, str],
    is_cancelled: Callable[[], bool],
) -> int:
    """Answer Flight SQL's ingest: write rows to a table, and return how many there were. The header
    ``x-nyala-primary-key`` has the columns of the key of a new table, separated by commas; without it rows are
    numbered. ``x-nyala-op: upsert`` replaces rows.

    Raises:
        AlreadyPresentError: the table is there, or a row with the key of another.
        NotFoundError: it is not there.
        InvalidArgumentError: the rows do not fit the table.
        UnavailableError: the client is gone: nothing was written.
    """
    name = _table_name(message)
    options = message.table_definition_options
    database = Database(store)
    rows = pa.RecordBatchReader.from_batches(schema, batches)
    is_there = name in store.tables()
    if is_there and options.if_exists in (0, _FAIL_IF_THERE):
        raise AlreadyPresentError(f"table {name!r} already exists: append to it, replace it, or choose another name")
    if not is_there and options.if_not_exist != _CREATE:
        raise NotFoundError(f"there is no table {name!r}: create it")
    op = _operation(headers)
    if is_there and options.if_exists == _APPEND:
        return _written(database, name, rows, op, is_cancelled)
    key = [each.strip() for each in headers.get(KEY_HEADER, "").split(",") if each.strip()]
    fresh = f"{name} (ingest)" if is_there else name
    table = database.create_table(fresh, schema, key or schema.names[:1], unique_key=bool(key))
    about = store.describe_table(fresh)
    with dropped_unless_loaded(store, about):
        count = _written(database, fresh, rows, op, is_cancelled)
        if is_there:
            table.alter().rename(name, replaces=store.describe_table(name).table_id).apply()
    return count


def _written(
    database: Database, name: str, rows: pa.RecordBatchReader, op: Operation, is_cancelled: Callable[[], bool]
) -> int:
    with database.transaction() as transaction:
        count = transaction.write(name, rows, op).rows
        if is_cancelled():  # the end of the stream may be that of a client that is gone
            raise UnavailableError("the client is gone: nothing was written")
    return count


def _operation(headers: Mapping[str, str]) -> Operation:
    word = headers.get(OPERATION_HEADER, Operation.INSERT)
    if word not in (Operation.INSERT, Operation.UPSERT, Operation.INSERT_IGNORE):
        raise InvalidArgumentError(f"{OPERATION_HEADER} is insert, upsert or insert_ignore, not {word!r}")
    return Operation(word)


def _table_name(message: Any) -> str:
    if message.temporary:
        raise InvalidArgumentError("temporary tables are not supported: leave out the option temporary")
    if message.transaction_id:
        raise InvalidArgumentError(
            "an ingest is a separate commit, and cannot be part of a transaction: commit or roll back first"
        )
    if message.catalog not in ("", CATALOG) or message.schema not in ("", SCHEMA):
        raise NotFoundError(f"the only schema is {CATALOG}.{SCHEMA}")
    if not message.table:
        raise InvalidArgumentError("the rows name no table")
    return message.table

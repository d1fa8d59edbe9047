"""Numbered writes that are sent again after the table was altered: their data may no longer fit it.

The store checks the number first, and repeats its answer to a known one whatever the columns are now. So data that the
client rejects is sent in a form that only identifies its rows: their keys, by which servers that share a table find
their rows, and a column that no table has, so that the store rejects an unknown number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.write import WriteCommand, WriteResult
from ...schemas.store.description import TableDescription
from ...schemas.table.column import ColumnSchema
from ..convert.data import WriteData, read_data

_NO_COLUMN = "_sent_again"
"""No table has it: column names cannot start with ``_``."""


def kept(data: Any) -> Any:
    """Return the data of a write in a form that a client can send twice: reads a stream into memory."""
    is_stream = isinstance(data, pa.RecordBatchReader) or (
        hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__len__")
    )
    return pa.RecordBatchReader.from_stream(data).read_all() if is_stream else data


def numbered(
    store: StoreService,
    command: WriteCommand,
    data: Any,
    seq: int,
    write: Callable[[WriteCommand, Any, int], WriteResult],
    known: TableDescription,
) -> WriteResult:
    """Return what ``write`` makes of data as one commit under a number, or the first answer if the data was sent before
    and no longer fits the table."""
    try:
        return write(command, data, seq)
    except InvalidArgumentError:
        if answer := first_answer(store, command, data, seq, known):
            return answer
        raise


def first_answer(
    store: StoreService, command: WriteCommand, data: Any, seq: int, known: TableDescription
) -> WriteResult | None:
    """Return the server's first answer to the number of a write that the client may have sent before, given for as many
    rows as ``data`` has; None if there is none."""
    with suppress(InvalidArgumentError):
        return store.write(command, _question(data, known, store.describe_table(command.table)), seq)
    return None


def _question(data: Any, known: TableDescription, now: TableDescription) -> pa.RecordBatch:
    """Return rows that no table takes, as many as ``data`` has, with their keys as far as the table still has these
    columns.

    ``known`` is the table for which the data was made, as far as this client knows; ``now`` is the current table.

    Raises:
        InvalidArgumentError: it is not data.
    """
    given = read_data(data, {column.name: column for column in now.columns})
    rows = pa.Table.from_batches(given.batches, given.schema)
    columns = [column for column in now.columns if column.name in now.primary_key]
    found = _found_as(rows.schema.names, columns, known, now)
    columns = [column for column in columns if column.name in found]
    keys = _cast(rows.select(list(found.values())).rename_columns(list(found)), columns)
    arrays = [*(keys.columns if keys else ()), pa.nulls(rows.num_rows)]
    return pa.record_batch(arrays, names=[*(keys.schema.names if keys else ()), _NO_COLUMN])


def _found_as(
    names: Sequence[str], columns: Sequence[ColumnSchema], known: TableDescription, now: TableDescription
) -> dict[str, str]:
    """Map the current names of the key columns to their names in the data.

    A renamed column is found by its known name, else by a name that no column has now. A wrong guess is harmless: rows
    sent to another server have no answer there.
    """
    before = {column.id: column.name for column in known.columns}
    taken = {column.name for column in now.columns}
    strange = [name for name in names if name not in taken]
    lacking = [column for column in columns if column.name not in names]
    guessed = {column.name: name for column, name in zip(lacking, strange, strict=False)}
    found: dict[str, str] = {}
    for column in columns:
        ways = (column.name, before.get(column.id), guessed.get(column.name))
        if name := next((name for name in ways if name in names), None):
            found[column.name] = name
    return found


def _cast(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.RecordBatch | None:
    try:
        return next(iter(WriteData(rows, columns, whole=True)), None) if columns else None
    except InvalidArgumentError:
        return None

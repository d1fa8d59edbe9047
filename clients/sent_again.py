"""Numbered writes that are sent again to a table that was altered since: their data may not fit it any more.

The store looks at the number first, and answers one that it knows whatever the columns are by now. So data that the
client refuses goes out in a form that says nothing but which rows it had: their keys, by which servers that share a
table tell whose they are, and a column that no table has, so that the store refuses a number that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ..schemas.column import ColumnSchema
from ..schemas.description import TableDescription
from ..schemas.errors import InvalidArgumentError
from ..schemas.service import StoreService
from ..schemas.write import WriteCommand, WriteResult
from .data import WriteData, read_data

_NO_COLUMN = "_sent_again"
"""No column of a table starts with ``_``."""


def kept(data: Any) -> Any:
    """Return data that can be read twice: what comes as a stream as a whole."""
    is_stream = isinstance(data, pa.RecordBatchReader) or (
        hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__len__")
    )
    return pa.RecordBatchReader.from_stream(data).read_all() if is_stream else data


def numbered(
    store: StoreService,
    command: WriteCommand,
    data: Any,
    seq: int,
    prepared: Callable[[Any, WriteCommand, bool], WriteData],
    known: TableDescription,
) -> WriteResult | None:
    """Write data as one commit under a number, and return its answer, or the first one; None if there are no rows."""
    try:
        batch = next(iter(prepared(data, command, True)), None)
    except InvalidArgumentError:
        if answer := first_answer(store, command, data, seq, known):
            return answer
        raise
    return None if batch is None else store.write(command, batch, seq)


def first_answer(
    store: StoreService, command: WriteCommand, data: Any, seq: int, known: TableDescription
) -> WriteResult | None:
    """Return the first answer to a number, which was for so many rows as ``data`` has; None if it has none."""
    with suppress(InvalidArgumentError):
        return store.write(command, _question(data, known.columns, known.primary_key), seq)
    return None


def _question(data: Any, columns: Sequence[ColumnSchema], key: Sequence[str]) -> pa.RecordBatch:
    """Return rows that no table takes, as many as ``data`` has, with the same keys as far as they are still that.

    Raises:
        InvalidArgumentError: it is no data.
    """
    given = read_data(data, {column.name: column for column in columns})
    rows = pa.Table.from_batches(given.batches, given.schema)
    known = [column for column in columns if column.name in key and column.name in rows.schema.names]
    keys = _cast(rows.select([column.name for column in known]), known)
    arrays = [*(keys.columns if keys else ()), pa.nulls(rows.num_rows)]
    return pa.record_batch(arrays, names=[*(keys.schema.names if keys else ()), _NO_COLUMN])


def _cast(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.RecordBatch | None:
    try:
        return next(iter(WriteData(rows, columns, whole=True)), None) if columns else None
    except InvalidArgumentError:
        return None

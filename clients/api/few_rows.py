"""Writes of a few rows given as dicts or as Arrow, by the shortest way that the store has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...schemas.protocol.service import StoreService
from ...schemas.rows.write import WriteCommand, WriteResult
from ...schemas.table.column import ColumnSchema
from ..convert.few_rows import few_as_they_are, few_rows

_LISTS = frozenset({list, tuple})
_DICTS = {dict}


def write_few(
    store: StoreService, command: WriteCommand, data: Any, columns: Sequence[ColumnSchema], seq: int | None = None
) -> WriteResult | None:
    """Write the ``data`` of a user's ``Table.write``, if it is a list of few dicts with simple values of a table's
    ``columns``, or few rows of Arrow with exactly their types; else return None. ``seq`` is the number of the write."""
    if type(data) not in _LISTS or set(map(type, data)) != _DICTS:
        batch = few_as_they_are(data, columns) if isinstance(data, pa.Table | pa.RecordBatch) else None
    else:
        result: WriteResult | None = None
        if len(data) == 1 and data[0]:
            result = store.write_row(command, data[0], seq)
        elif seq is None:
            result = store.write_rows(command, data)
        if result is not None:
            return result
        batch = few_rows(data, columns)
    return None if batch is None else store.write(command, batch, seq)

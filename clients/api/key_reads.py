"""Rows by their keys, as users give these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from ..convert.keys import keys_of


def rows_of(store: StoreService, table: TableDescription, keys: Any) -> pa.Table:
    """Return the rows whose keys a user gives, in memory: the body of ``Table.get_many``."""
    found = [store.get(table.name, batch) for batch in keys_of(keys, table)]
    return pa.concat_tables(found) if found else pa.schema([column.field for column in table.columns]).empty_table()


def batches_of(store: StoreService, table: TableDescription, keys: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose keys a user gives, as they are read: the body of ``Table.get_batches``."""
    for batch in keys_of(keys, table):
        yield from store.look_up(table.name, batch).batches

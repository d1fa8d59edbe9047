"""Rows by their keys, as users give these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...schemas.protocol.service import UNDECIDED, RowReader, StoreService
from ...schemas.store.description import TableDescription
from ..convert.cells import python_cell
from ..convert.keys import key_of, key_values, keys_of


def row_of(store: StoreService, rows: RowReader | None, table: TableDescription, key: Any) -> dict[str, Any] | None:
    """Return the row with a key, as Python values by column; see ``Table.get``. ``rows`` is the same store if it reads
    single rows."""
    if rows is not None:
        row = rows.get_row(table, key_values(key, table))
        if row is not UNDECIDED:
            return row
    found = store.get(table.name, key_of(key, table))
    return {name: python_cell(found[name][0]) for name in found.schema.names} if found.num_rows else None


def rows_of(store: StoreService, table: TableDescription, keys: Any) -> pa.Table:
    """Return the rows with some keys, in memory; see ``Table.get_many``."""
    found = [store.get(table.name, batch) for batch in keys_of(keys, table)]
    return pa.concat_tables(found) if found else pa.schema([column.field for column in table.columns]).empty_table()


def batches_of(store: StoreService, table: TableDescription, keys: Any) -> Iterator[pa.RecordBatch]:
    """Yield the same rows as they are read; see ``Table.get_batches``."""
    for batch in keys_of(keys, table):
        yield from store.look_up(table.name, batch).batches

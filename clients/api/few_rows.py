"""Writes of a few rows given as dicts, by the shortest way that the store has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schemas.column import ColumnSchema
from ...schemas.service import UNDECIDED, RowWriter, StoreService
from ...schemas.write import WriteCommand, WriteResult
from ..convert.few_rows import few_rows


def write_few(
    store: StoreService, rows: RowWriter | None, command: WriteCommand, data: Any, columns: Sequence[ColumnSchema]
) -> WriteResult | None:
    """Write ``data``, if it is a list of few dicts with simple values of a table's ``columns``; else return None.

    ``rows`` is the store, if it takes single rows.
    """
    if rows is not None and type(data) is list and len(data) == 1 and type(data[0]) is dict:
        result = rows.write_row(command, data[0])
        if result is not UNDECIDED:
            return result
    few = few_rows(data, columns)
    return None if few is None else store.write(command, few)

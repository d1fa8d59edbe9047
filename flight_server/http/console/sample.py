"""The page of some rows of a table, as a scan by the visitor returns them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa

from ....clients.convert.cells import python_rows
from ....schemas import compute as pc
from ....schemas.errors import UnavailableError
from ....schemas.protocol.request import Request, serving
from ....schemas.protocol.verb import Kind
from ....schemas.rows.scan import ScanSpec
from ...admission.peers import Peer
from ...errors.request_log import new_request_id
from .frame import Page, page
from .html import Cell, Title, table, tag
from .tables import table_link
from .visit import Visit

_ROWS, _COLUMNS = 20, 50
_SECONDS = 3.0
_TEXT_LENGTH, _BINARY_LENGTH = 200, 50


def sample_page(visit: Visit) -> Page:
    """Return the console's page of some rows of a table, of the columns that the caller may read.

    Raises:
        NotFoundError: the caller sees no such table.
        PermissionDeniedError: it may read no column.
        UnavailableError: the rows cannot be read now, or not in time.
    """
    name = visit.asked.get("name", "")
    about, readable = visit.store.describe_table(name), visit.readable(name)
    mine = [column.name for column in about.columns if readable is None or column.name in readable]
    # Of no column: the store refuses all of them, and notes the denial.
    rows = _read(visit, ScanSpec(table=name, columns=mine[:_COLUMNS] or None, limit=_ROWS))
    hidden = len(about.columns) - len(mine)
    notes = [
        f"At most {_ROWS} rows: the first that a scan finds.",
        *([f"You have no grant to read {hidden} of its {len(about.columns)} columns."] if hidden else []),
        *([f"The first {_COLUMNS} of {len(mine)} columns."] if len(mine) > _COLUMNS else []),
    ]
    titles = [Title(column.name, note=str(column.type)) for column in about.columns if column.name in mine[:_COLUMNS]]
    return page(
        f"Rows of {name}",
        tag("p", " ".join(notes), " ", tag("a", "About the table", href=table_link(name))),
        table(titles, rows, len(titles), empty="The table has no rows."),
        at="/console",
    )


def _read(visit: Visit, spec: ScanSpec) -> list[list[Cell]]:
    """Return the cells of a scan that has a limit, and whose text is short however long its cells are."""
    user = "" if visit.caller is None else visit.caller.user
    with (
        visit.server.admission.admit(Kind.SCAN, Peer("console", "", user)),
        serving(Request("console", _ending(time.monotonic() + _SECONDS), new_request_id)),
        closing(visit.store.scan(spec)) as stream,
    ):
        rows = [row for batch in stream.batches for row in python_rows(_cut(batch))]
    return [[_cell(value) for value in row.values()] for row in rows[: spec.limit]]


def _ending(end: float) -> Callable[[], None]:
    """Return what ends a scan that finds no rows for long: many may be deleted."""

    def check() -> None:
        if time.monotonic() > end:
            raise UnavailableError(
                f"the scan did not find {_ROWS} rows within {_SECONDS:g} seconds: read the table with a client"
            )

    return check


def _cut(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the beginnings of long cells, one letter or byte longer than what is shown of them."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_slice_codeunits(column, 0, _TEXT_LENGTH + 1)
        elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            column = pc.binary_slice(column, 0, _BINARY_LENGTH + 1)
        columns.append(column)
    return pa.record_batch(columns, names=batch.schema.names)


def _cell(value: Any) -> Cell:
    if value is None:
        return tag("span", "NULL", class_="null")
    if isinstance(value, bytes):
        shown = value[:_BINARY_LENGTH].hex(" ")
        return f"{shown} ..." if len(value) > _BINARY_LENGTH else shown
    text = str(value)
    return f"{text[:_TEXT_LENGTH]}..." if len(text) > _TEXT_LENGTH else text

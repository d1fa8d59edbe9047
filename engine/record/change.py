"""A change: rows of one tablet that a commit stores, updates or deletes, as logged and applied.

If a commit brings rows in a file of their own (`attach`), its record names the file: an attachment.

The log holds changes, not requests: by column id, with defaults filled in, without refused rows. So a replay applies
them unchanged, whatever the schema is now. A record may also hold notes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import pyarrow as pa
from pydantic import Field, PositiveInt

from ...schemas.message import Message
from ..vectors.arrow import from_arrow
from ..vectors.arrow_stream import stream_of
from ..vectors.physical import physical_of
from ..vectors.vector import Vector
from .change_rows import pack_rows
from .log_note import Note


class ChangeKind(IntEnum):
    """The kind of a change in a log record: never reuse or renumber."""

    STORE = 1
    """Whole rows, under a new key or over a dead row."""
    UPDATE = 2
    """Key columns and new cells of live rows."""
    DELETE = 3
    """Key columns of live rows to delete."""
    ATTACH = 6
    """New rows in a rowset whose files were written before; 4, 5 and 7 are kinds of notes."""


@dataclass(frozen=True)
class Change:
    """Rows of one tablet that a commit changes. ``rows`` has one column for each column id, named by the id in decimal;
    each key occurs once.

    Types are those of the table at the time of the change, or others with the same physical types.
    """

    tablet_id: int
    kind: ChangeKind
    rows: pa.RecordBatch

    @property
    def column_ids(self) -> list[int]:
        """The ids of the columns in ``rows``."""
        return [int(name) for name in self.rows.schema.names]

    @cached_property
    def cells(self) -> dict[int, Vector]:
        """The columns by id."""
        columns = zip(self.column_ids, self.rows.columns, strict=True)
        return {column_id: from_arrow(column, physical_of(column.type)) for column_id, column in columns}


class Attachment(Message, frozen=True, extra="forbid"):
    """A rowset that a commit adds to a tablet, in a log record; its base file is durable."""

    tablet_id: int = Field(exclude=True)
    rowset: PositiveInt
    """The id of the rowset."""
    rows: PositiveInt
    last_auto_id: PositiveInt | None = None
    """The largest id that the store assigned to one of the rows, if it numbers them."""


_HEADER = struct.Struct("<IBBxxQ")
"""tablet id (of a note: table id), kind, form of a change, number of bytes that follow"""
ARROW_FORM, ROWS_FORM = 0, 1
"""Forms in the log: never reuse or renumber."""
ROW_FORM_MAX = 64
"""Changes of more rows are logged as Arrow streams, which then take about the same space and less work."""


def pack_record(
    changes: Sequence[Change], notes: Sequence[Note] = (), attachments: Sequence[Attachment] = ()
) -> list[pa.Buffer | bytes]:
    """Return the payload of a log record: each part as a header and its content.

    A change of few rows is in row encoding, of more rows an Arrow IPC stream of one batch. Notes and attachments are
    JSON, padded with spaces to a multiple of 8 bytes.
    """
    pieces: list[pa.Buffer | bytes] = []
    for note in notes:
        pieces += _json_part(note.table_id, note.kind, note.body)
    for attachment in attachments:
        pieces += _json_part(
            attachment.tablet_id, ChangeKind.ATTACH, attachment.model_dump_json(exclude_none=True).encode()
        )
    for change in changes:
        form = ROWS_FORM if change.rows.num_rows <= ROW_FORM_MAX else ARROW_FORM
        body = [pack_rows(change.cells, change.rows.num_rows)] if form == ROWS_FORM else stream_of(change.rows)
        size = sum(len(part) for part in body)
        pieces += [_HEADER.pack(change.tablet_id, change.kind, form, size), *body]
    return pieces


def pack_change(tablet_id: int, kind: ChangeKind, cells: Mapping[int, Vector], row_count: int) -> bytes:
    """Return a change of few rows as it is in a log record, from its cells by column id."""
    body = pack_rows(cells, row_count)
    return part_header(tablet_id, kind, len(body)) + body


def part_header(tablet_id: int, kind: ChangeKind, size: int) -> bytes:
    """Return the header of a change of few rows in a log record, which takes ``size`` bytes."""
    return _HEADER.pack(tablet_id, kind, ROWS_FORM, size)


def _json_part(owner: int, kind: int, body: bytes) -> list[pa.Buffer | bytes]:
    padded = body + b" " * (-len(body) % 8)
    return [_HEADER.pack(owner, kind, 0, len(padded)), padded]

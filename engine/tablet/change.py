"""A change: rows of one tablet that a commit stores, updates or deletes, as it is logged and applied.

The log holds changes, not requests: by column id, with defaults filled in, without the rows that were refused. So a
replay applies them as they are, whatever the schema has become.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from ...schemas.errors import CorruptionError


class ChangeKind(IntEnum):
    """In the log: never reuse or renumber."""

    STORE = 1
    """Whole rows, under a new key or over a dead row."""
    UPDATE = 2
    """Key columns and new cells of live rows."""
    DELETE = 3
    """Key columns of live rows that die."""


@dataclass(frozen=True, slots=True)
class Change:
    """``rows`` has one column for each column id, named by the id in decimal; each key occurs once."""

    tablet_id: int
    kind: ChangeKind
    rows: pa.RecordBatch

    @property
    def column_ids(self) -> list[int]:
        """The ids of the columns in ``rows``."""
        return [int(name) for name in self.rows.schema.names]


_HEADER = struct.Struct("<IBxxxQ")
"""tablet id, kind, bytes of the Arrow IPC stream that follows"""


def pack_changes(changes: Sequence[Change]) -> list[pa.Buffer | bytes]:
    """Return the payload of a log record: each change as a header and an Arrow IPC stream of one batch."""
    pieces: list[pa.Buffer | bytes] = []
    for change in changes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, change.rows.schema) as writer:
            writer.write_batch(change.rows)
        stream = sink.getvalue()
        pieces += [_HEADER.pack(change.tablet_id, change.kind, stream.size), stream]
    return pieces


def unpack_changes(payload: memoryview, lsn: int) -> Iterator[Change]:
    """Yield the changes of a log record. Raises CorruptionError when the payload is not what was logged."""
    position = 0
    while position < len(payload):
        try:
            tablet_id, kind, length = _HEADER.unpack_from(payload, position)
            position += _HEADER.size
            if position + length > len(payload):
                raise ValueError(f"a change of {length} bytes passes the end of its record")
            stream = pa.py_buffer(payload[position : position + length])
            rows = pa.ipc.open_stream(stream).read_next_batch()
            yield Change(tablet_id, ChangeKind(kind), rows)
        except (struct.error, ValueError, pa.ArrowException, StopIteration) as error:
            raise CorruptionError("wal", 0, f"log record {lsn}: {error}") from error
        position += length

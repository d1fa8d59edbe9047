"""DoExchange: a session, or batched point reads: a batch of keys comes in, its rows go out, repeatedly.

A stream may stay open and idle, so resources are taken for each batch: an idle stream does not count as a scan, and a
stopping server does not wait for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

import pyarrow as pa
import pyarrow.flight as fl
from pydantic_core import from_json

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.command import RowCount, TableName, read_json
from ...schemas.protocol.service import StoreService
from ...schemas.protocol.session import SessionCommand
from ...schemas.protocol.verb import Kind
from ...schemas.rows.batches import no_rows
from ..admission.admission import sized
from ..errors.errors import Translator
from ..requests.calls import Call, Calls
from ..requests.received_batch import received
from ..settings.config import ServerConfig
from .combining import Combining
from .message_split import cut
from .session import run_session


def exchange(
    store: StoreService,
    descriptor: fl.FlightDescriptor,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    calls: Calls,
    call: Call,
    translator: Translator,
    combining: Combining,
) -> None:
    """Answer a DoExchange: run the session or the point reads that the descriptor asks for.

    Raises:
        StoreError: the command is neither; or as ``run_session`` or ``_point_reads``.
    """
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise InvalidArgumentError('DoExchange takes a command: {"table": ...} or {"session": 1}')
    body = sized(descriptor.command or b"", "the command", calls.config.request_bytes_max)
    if _is_session(body):
        read_json(SessionCommand, body, "the command")
        run_session(store, reader, writer, calls, call, translator, combining)
    else:
        _point_reads(store, read_json(TableName, body, "the command").table, reader, writer, calls, call)


def _is_session(body: bytes) -> bool:
    try:
        return "session" in from_json(body)
    except (ValueError, TypeError):
        return False


def _point_reads(
    store: StoreService,
    table: str,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    calls: Calls,
    call: Call,
) -> None:
    """Answer each batch of keys with the existing rows, in the order of the keys, split like a scan's.

    Raises:
        StoreError: the table is unknown, the keys do not fit it, or its columns have changed.
    """
    config = calls.config
    schema = pa.schema([column.field for column in store.describe_table(table).columns])
    writer.begin(schema)
    for item in received(reader, config, call):
        with closing(_rows(store, table, item.batch, schema, calls, call)) as rows:
            _answer(rows, schema, writer, config, call)


def _rows(
    store: StoreService, table: str, keys: pa.RecordBatch, schema: pa.Schema, calls: Calls, call: Call
) -> Generator[pa.RecordBatch]:
    """Yield the rows of keys. Each piece is read in a slot of its own: none is held while the client takes another."""
    found = None
    try:
        while True:
            with call.working(), calls.admission.admit(Kind.READ, call.peer, call.check):
                found = found or store.look_up(table, keys)
                piece = next(found.batches, None)
            if piece is None:
                return
            if piece.schema != schema:
                raise UnavailableError(f"table {table!r} was altered after this stream began; open a new stream")
            yield piece
    finally:
        if found is not None:
            found.close()


def _answer(
    rows: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    writer: fl.MetadataRecordBatchWriter,
    config: ServerConfig,
    call: Call,
) -> None:
    """Write the rows, in one message if they are few; an answer without rows is one message too."""
    pieces = cut(rows, config)
    piece = next(pieces, None)
    if piece is None:
        piece = no_rows(schema)
    while piece is not None:
        following = next(pieces, None)
        count = RowCount(rows=piece.num_rows, more=following is not None)
        call.sent(piece.nbytes, piece.num_rows)
        with call.with_client():
            writer.write_with_metadata(piece, count.model_dump_json(exclude_defaults=True).encode())
        piece = following

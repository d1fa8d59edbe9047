"""DoExchange: a session, or batched point reads: a batch of keys comes in, its rows go out, repeatedly.

A stream may stay open and idle, so resources are taken for each batch: an idle stream does not count as a scan, and a
stopping server does not wait for it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as fl
from pydantic_core import from_json

from ..schemas.command import RowCount, TableName, read_json
from ..schemas.errors import InvalidArgumentError, UnavailableError
from ..schemas.service import StoreService
from ..schemas.session import SessionCommand
from ..schemas.verb import Kind
from .calls import Call, Calls
from .config import ServerConfig
from .cutter import cut
from .errors import Translator
from .get import sized
from .received_batch import received
from .session import run_session


def exchange(
    store: StoreService,
    descriptor: fl.FlightDescriptor,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.MetadataRecordBatchWriter,
    calls: Calls,
    call: Call,
    translator: Translator,
) -> None:
    """Run the session or the point reads that the descriptor asks for.

    Raises:
        StoreError: the command is neither; or as ``run_session`` or ``_point_reads``.
    """
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise InvalidArgumentError('DoExchange takes a command: {"table": ...} or {"session": 1}')
    body = sized(descriptor.command or b"", "the command", calls.config.request_bytes_max)
    if _is_session(body):
        read_json(SessionCommand, body, "the command")
        run_session(store, reader, writer, calls, call, translator)
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
        with call.working(), calls.admission.admit(Kind.READ, call.peer, call.check):
            found = store.get(table, item.batch)
        if found.schema != schema:
            raise UnavailableError(f"table {table!r} was altered after this stream began; open a new stream")
        call.sent(found.nbytes, found.num_rows)
        with call.with_client():
            _answer(found, writer, config)


def _answer(found: pa.Table, writer: fl.MetadataRecordBatchWriter, config: ServerConfig) -> None:
    """Write the rows, in one message if they are few; an answer without rows is one message too."""
    pieces = cut(found.combine_chunks().to_batches(), config)
    piece = next(pieces, None)
    if piece is None:
        piece = pa.RecordBatch.from_pylist([], schema=found.schema)
    while piece is not None:
        following = next(pieces, None)
        said = RowCount(rows=piece.num_rows, more=following is not None)
        writer.write_with_metadata(piece, said.model_dump_json(exclude_defaults=True).encode())
        piece = following

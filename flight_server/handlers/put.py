"""DoPut: every batch is its own commit, acknowledged when it is durable; or the whole stream is one commit.

A batch with ``{"seq": n}`` gets its own PutResult; batches without it get one together, at the end of the stream.
Batches are applied in order of arrival, on the stream's thread, and the next ones are received and checked while the
log of an earlier one is synced.

A stream that is one commit is buffered in memory until its last message says that it is complete. Without that message
nothing is applied: the end of a stream may also be the end of a client. The same holds for a stream that is a part of a
transaction, which the store keeps on disk.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.budget import BudgetShare
from ...schemas.protocol.command import BatchMetadata, CommitMessage, PutResult, read_json, write_command
from ...schemas.protocol.service import StoreService
from ...schemas.rows.transaction import StagedBatch
from ...schemas.rows.write import CommitMode, Durability, WriteCommand, WriteResult
from ..admission.admission import sized
from ..errors.client_gone import send_answer
from ..requests.calls import Call, Calls
from ..requests.received_batch import ReceivedBatch, Remark, messages, received
from ..settings.config import ServerConfig
from .buffered_stream import BufferedStream
from .put_answers import Answers, Begun


def write_stream(
    store: StoreService,
    context: fl.ServerCallContext,
    descriptor: fl.FlightDescriptor,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.FlightMetadataWriter,
    calls: Calls,
    call: Call,
) -> None:
    """Answer a DoPut: apply the batches of its stream one by one and answer each.

    Raises:
        StoreError: the command is invalid, or a batch failed as a whole; those before it are applied and answered,
            those after it are ignored.
    """
    config = calls.config
    command = _command(descriptor, config)
    call.table = command.table
    if command.stage is not None:
        _write_part(store, command, reader, writer, config, call)
        return
    if command.commit is CommitMode.STREAM:
        store.describe_table(command.table)  # an unknown table is an error before its rows fill memory
        _write_staged(store, command, reader, writer, calls, call)
        return
    answers = Answers(writer, config.writes_ahead, call.wrote)
    try:
        rows = 0
        for item in received(reader, config, call):
            answers.check()
            said = _said(item)
            pending = store.begin_write(command, item.batch, said.seq)
            answers.add(Begun(pending, item.batch.num_rows, rows, said.seq, said.last))
            rows += item.batch.num_rows
    finally:
        # Before an error goes out, too: batches in flight are commits, and their answers are due.
        answers.settle()
    if not context.is_cancelled():
        answers.send_last(lambda: _nothing(store, command))


def _command(descriptor: fl.FlightDescriptor, config: ServerConfig) -> WriteCommand:
    is_path = descriptor.descriptor_type == fl.DescriptorType.PATH
    body = b"" if is_path else sized(descriptor.command or b"", "the command", config.request_bytes_max)
    return write_command(descriptor.path if is_path else [], body)


def _said(item: ReceivedBatch) -> BatchMetadata:
    return read_json(BatchMetadata, item.metadata, "the metadata of a batch") if item.metadata else BatchMetadata()


def _write_staged(
    store: StoreService,
    command: WriteCommand,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.FlightMetadataWriter,
    calls: Calls,
    call: Call,
) -> None:
    config = calls.config
    with BudgetShare(calls.admission.staged, user=call.peer.user) as staging:
        staged = BufferedStream(reader.schema, staging, config)
        for message in messages(reader, config, call):
            if isinstance(message, ReceivedBatch):
                staged.add(message.batch)
            else:
                asked = read_json(CommitMessage, message.metadata, "the message that commits the stream")
                result = store.begin_write(command, staged.whole(asked.rows), asked.seq).result()
                break
        else:
            raise InvalidArgumentError('the stream ended without {"commit":true,"rows":N}: nothing was applied')
    call.wrote(result.applied)
    send_answer(writer, PutResult(seq=asked.seq, **dict(result)))
    for _ in messages(reader, config, call):
        raise InvalidArgumentError("the stream is already committed: no further message is allowed")


def _write_part(
    store: StoreService,
    command: WriteCommand,
    reader: fl.MetadataRecordBatchReader,
    writer: fl.FlightMetadataWriter,
    config: ServerConfig,
    call: Call,
) -> None:
    """Stage the stream as a part of a transaction, batch by batch to disk: so it may be of any length."""
    coming = messages(reader, config, call)
    result = store.stage(command, _until_committed(coming))
    send_answer(writer, result)
    for _ in coming:
        raise InvalidArgumentError("the part is already staged: no further message is allowed")


def _until_committed(coming: Iterator[ReceivedBatch | Remark]) -> Iterator[StagedBatch]:
    """Yield the batches up to the message that marks the end."""
    rows = 0
    for message in coming:
        if isinstance(message, Remark):
            asked = read_json(CommitMessage, message.metadata, "the message that ends the part")
            if asked.rows != rows:
                raise InvalidArgumentError(f"the stream had {rows:,} rows, not {asked.rows:,}: nothing was staged")
            return
        yield StagedBatch(message.batch, _said(message).op)
        rows += message.batch.num_rows
    raise InvalidArgumentError('the stream ended without {"commit":true,"rows":N}: nothing was staged')


def _nothing(store: StoreService, command: WriteCommand) -> WriteResult:
    """Return the answer to a stream without batches. Raises NotFoundError if the table is unknown: no write said it."""
    store.describe_table(command.table)
    return WriteResult(timestamp=store.now(), rows=0, applied=0, durability=command.durability or Durability.FSYNC)

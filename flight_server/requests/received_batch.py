"""Record batches from a client: nothing in them is trusted before it is checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ...schemas.limits.budget import BudgetShare
from ..admission.admission import sized
from ..native.message_hook import inspecting
from ..settings.config import ServerConfig
from .calls import Call
from .message_size import BrokenMessageError, decoded_bytes

_HEADS_MAX = 64
"""Heads of messages that a session remembers. Rows of the same lengths have the same."""


@dataclass(frozen=True, slots=True)
class ReceivedBatch:
    """One batch received from a client, checked, and its metadata."""

    batch: pa.RecordBatch
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """A message received from a client without a batch."""

    metadata: bytes


def received(reader: fl.MetadataRecordBatchReader, config: ServerConfig, call: Call) -> Iterator[ReceivedBatch]:
    """Yield the batches received from a client in a stream; skip messages without a batch. Raises as ``messages``."""
    for message in messages(reader, config, call):
        if isinstance(message, ReceivedBatch):
            yield message


def messages(
    reader: fl.MetadataRecordBatchReader, config: ServerConfig, call: Call
) -> Iterator[ReceivedBatch | Remark]:
    """Yield the messages received from a client in a stream, each batch fully validated: offsets, lengths, UTF-8,
    dictionary indices.

    The end of the stream says nothing about the client's intention: a killed client looks like one that is done.

    Raises:
        InvalidArgumentError: a batch is malformed or too large; the message numbers it from 0.
        UnavailableError: the server stops, or has no memory left for decompression.
    """
    number = 0
    with call.decompressed() as decompressed:
        while True:
            decompressed.give_back()
            call.check_time()
            size = _Size(number, config, decompressed)
            try:
                with call.with_client(), inspecting(size.add):
                    chunk = reader.read_chunk()
            except StopIteration:
                return
            except (StoreError, fl.FlightError):
                raise
            except MemoryError:
                raise UnavailableError(
                    "the server does not have enough memory for this batch; try again later", 1.0
                ) from None
            except (pa.ArrowException, OSError) as error:
                raise InvalidArgumentError(f"batch {number} is not valid Arrow: {_first_line(error)}") from None
            metadata = chunk.app_metadata.to_pybytes() if chunk.app_metadata else b""
            if chunk.data is None:
                yield Remark(sized(metadata, "a message", config.request_bytes_max))
                continue
            if not number:
                _check_names(chunk.data.schema)
            batch = _checked(chunk.data, number, config)
            call.received(batch.nbytes)
            yield ReceivedBatch(
                batch,
                sized(metadata, "the metadata of a batch", config.request_bytes_max),
            )
            number += 1


class _Size:
    """The decoded size of a batch and of the dictionaries before it. For one thread."""

    def __init__(self, number: int, config: ServerConfig, decompressed: BudgetShare) -> None:
        self._number = number
        self._config = config
        self._decompressed = decompressed
        self._bytes = 0

    def add(self, head: memoryview, body: memoryview) -> None:
        """Add a message that is not decoded yet.

        Raises:
            InvalidArgumentError: the batch would become too large, or the message is malformed.
            UnavailableError: too many bytes are decompressed already.
        """
        try:
            size, is_compressed = decoded_bytes(head[: self._config.request_bytes_max], body)
        except BrokenMessageError as error:
            raise InvalidArgumentError(f"batch {self._number} is not valid Arrow: {error}") from None
        self._bytes += size
        _check_size(self._bytes, self._number, self._config)
        if is_compressed:
            self._decompressed.take(size)


class BodyReader:
    """Reads batches received from a client as Arrow messages of their own, as sessions have them. For one thread."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._checked: set[tuple[bytes, int]] = set()
        """Heads of messages that are known to be good, with the length of the body."""

    def batch(self, message: bytes, schema: pa.Schema) -> pa.RecordBatch:
        """Return the batch in a message, fully validated.

        Raises:
            InvalidArgumentError: it is malformed or compressed.
        """
        try:
            opened = pa.ipc.read_message(message)
            self._check(opened)
            batch = pa.ipc.read_record_batch(opened, schema)
        except BrokenMessageError as error:
            raise InvalidArgumentError(f"the Arrow message is malformed: {error}") from None
        except (pa.ArrowException, OSError, EOFError) as error:
            raise InvalidArgumentError(f"the Arrow message is not valid: {_first_line(error)}") from None
        return _checked(batch, 0, self._config)

    def _check(self, message: pa.ipc.Message) -> None:
        if message.type != "record batch":
            raise BrokenMessageError(f"it is a {message.type}, not a record batch")
        head, body = message.metadata, message.body
        known = (head.to_pybytes(), body.size if body else 0)
        if known in self._checked:
            return
        size, is_compressed = decoded_bytes(memoryview(head), memoryview(body) if body else memoryview(b""))
        if is_compressed:
            raise BrokenMessageError("it is compressed; send it uncompressed, or by DoPut")
        _check_size(size, 0, self._config)
        if len(self._checked) >= _HEADS_MAX:
            self._checked.clear()
        self._checked.add(known)


def _check_names(schema: pa.Schema) -> None:
    try:
        _ = schema.names
    except UnicodeDecodeError:
        raise InvalidArgumentError("the schema is not valid Arrow: the name of a column is not UTF-8") from None


def _check_size(size: int, number: int, config: ServerConfig) -> None:
    if size > config.batch_bytes_max:
        raise InvalidArgumentError(
            f"batch {number} has {size:,} bytes; at most {config.batch_bytes_max:,} are allowed: send smaller batches"
        )


def _checked(batch: pa.RecordBatch, number: int, config: ServerConfig) -> pa.RecordBatch:
    # Use the size of the buffers, not `nbytes`, which trusts the offsets.
    _check_size(batch.get_total_buffer_size(), number, config)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"batch {number} is malformed: {_first_line(error)}") from None
    return batch


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

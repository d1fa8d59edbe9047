"""Record batches from a client: nothing of them is believed before it was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from ..schemas.errors import InvalidArgumentError
from .config import ServerConfig
from .get import sized
from .limits import Admission


@dataclass(frozen=True, slots=True)
class Incoming:
    """One checked batch and the metadata that it came with."""

    batch: pa.RecordBatch
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """A message without a batch."""

    metadata: bytes


def incoming(reader: fl.MetadataRecordBatchReader, config: ServerConfig, admission: Admission) -> Iterator[Incoming]:
    """Yield the batches of a stream; messages without a batch are left out. Raises as ``messages``."""
    for message in messages(reader, config, admission):
        if isinstance(message, Incoming):
            yield message


def messages(
    reader: fl.MetadataRecordBatchReader, config: ServerConfig, admission: Admission
) -> Iterator[Incoming | Remark]:
    """Yield what a stream brings, each batch validated in full: offsets, lengths, UTF-8, dictionary indices.

    The end of the stream says nothing about the client's intentions: one that
    was killed looks like one that is done.

    Raises:
        InvalidArgumentError: for a batch that is malformed or too large; its number counts from 0.
        UnavailableError: when the server stops.
    """
    number = 0
    while True:
        admission.check_time()
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            return
        except pa.ArrowInvalid as error:
            raise InvalidArgumentError(f"batch {number} is not valid Arrow: {_first_line(error)}") from None
        metadata = chunk.app_metadata.to_pybytes() if chunk.app_metadata else b""
        if chunk.data is None:
            yield Remark(sized(metadata, "a message", config.request_bytes_max))
            continue
        yield Incoming(
            _checked(chunk.data, number, config), sized(metadata, "the metadata of a batch", config.request_bytes_max)
        )
        number += 1


def _checked(batch: pa.RecordBatch, number: int, config: ServerConfig) -> pa.RecordBatch:
    # The size of the buffers, not `nbytes`: that one already trusts the offsets.
    size = batch.get_total_buffer_size()
    if size > config.batch_bytes_max:
        raise InvalidArgumentError(
            f"batch {number} has {size:,} bytes; at most {config.batch_bytes_max:,} are allowed: send smaller batches"
        )
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"batch {number} is malformed: {_first_line(error)}") from None
    return batch


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

"""One open DoPut stream: batches go out, answers come back, a window of them under way."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as fl

from ..schemas.command import BatchMetadata
from ..schemas.errors import UnavailableError
from ..schemas.write import WriteCommand, WriteResult
from .flight_errors import as_store_errors

WINDOW = 16
"""Batches sent and not yet answered: enough to hide the way there and back and the server's fsync."""


class PutStream:
    """Writes batches of one schema with one command; every batch is answered, in order. For one thread."""

    def __init__(self, client: fl.FlightClient, command: WriteCommand, schema: pa.Schema) -> None:
        descriptor = fl.FlightDescriptor.for_command(command.model_dump_json(exclude_none=True))
        with as_store_errors():
            self._writer, self._reader = client.do_put(descriptor, schema)
        self._sent = self._answered = 0
        self._closed = False

    def send_only(self, batch: pa.RecordBatch, sequence: int | None = None) -> WriteResult:
        """Send the stream's one batch and return its answer: one without a number is cheaper for the server.

        Raises:
            StoreError: the server refused it.
        """
        with as_store_errors():
            if sequence is None:
                self._writer.write_batch(batch)
            else:
                self._writer.write_with_metadata(batch, _numbered(sequence))
            self._writer.done_writing()
        answer = self._answer()
        self.close()
        return answer

    def send(self, batch: pa.RecordBatch) -> Iterator[WriteResult]:
        """Send a batch; yield the answers that must have come before the next one may go.

        Raises:
            StoreError: the server refused a batch; those answered before it are applied.
        """
        with as_store_errors():
            self._writer.write_with_metadata(batch, _numbered(self._sent))
        self._sent += 1
        while self._sent - self._answered >= WINDOW:
            yield self._answer()

    def finish(self) -> Iterator[WriteResult]:
        """Yield the answers that are still to come, and end the stream.

        Raises:
            StoreError: the server refused a batch.
        """
        with as_store_errors():
            self._writer.done_writing()
        while self._answered < self._sent:
            yield self._answer()
        self.close()

    def close(self) -> None:
        """End the stream; the batches sent are applied, unless one of them is refused.

        Raises:
            StoreError: the server refused a batch.
        """
        if not self._closed:
            self._closed = True
            with as_store_errors():
                self._writer.close()

    def _answer(self) -> WriteResult:
        with as_store_errors():
            answer = self._reader.read()
        if answer is None:
            self.close()  # raises what the server said
            raise UnavailableError("the server ended the stream without an answer")
        self._answered += 1
        return WriteResult.model_validate_json(answer.to_pybytes())


def _numbered(sequence: int) -> bytes:
    return BatchMetadata(seq=sequence).model_dump_json().encode()

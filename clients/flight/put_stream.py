"""One open DoPut stream: sends batches and receives answers, with a window of batches in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.flight as fl
from pydantic import BaseModel

from ...schemas.errors import UnavailableError, error_of
from ...schemas.protocol.command import BatchMetadata, CommitMessage
from ...schemas.rows.transaction import StagedBatch, StageResult
from ...schemas.rows.write import WriteCommand, WriteResult
from .errors import as_store_errors

WINDOW = 16
"""Batches sent and not yet answered: enough to hide the round trip and the server's fsync."""
WINDOW_BYTES = 64 * 1024 * 1024
"""Bytes in flight above which the next batch waits: both sides hold them."""


class PutStream:
    """A client's open DoPut stream: writes batches of one schema with one command; the server answers each, in order.
    For one thread."""

    def __init__(self, client: fl.FlightClient, command: WriteCommand, schema: pa.Schema) -> None:
        descriptor = fl.FlightDescriptor.for_command(command.model_dump_json(exclude_defaults=True))
        with as_store_errors():
            self._writer, self._reader = client.do_put(descriptor, schema)
        self._unanswered: deque[int] = deque()
        self._closed = False

    def send_only(self, batch: pa.RecordBatch, number: int) -> WriteResult:
        """Send the stream's only batch and return its answer.

        Raises:
            StoreError: the server rejected it.
        """
        with as_store_errors():
            self._writer.write_with_metadata(batch, _json(BatchMetadata(seq=number, last=True)))
        return self._last_answer()

    def send_staged(self, batches: list[pa.RecordBatch], number: int) -> WriteResult:
        """Send all batches of a stream as one commit and return its answer.

        Raises:
            StoreError: the server rejected it.
        """
        rows = sum(batch.num_rows for batch in batches)
        with as_store_errors():
            for batch in batches:
                self._writer.write_batch(batch)
            self._writer.write_metadata(_json(CommitMessage(commit=True, rows=rows, seq=number)))
        return self._last_answer()

    def send_part(self, batches: Iterable[StagedBatch]) -> StageResult:
        """Send the batches of a part of a transaction and return its answer.

        Raises:
            StoreError: the server rejected it.
        """
        rows = 0
        for batch, op in batches:
            with as_store_errors():
                if op is None:
                    self._writer.write_batch(batch)
                else:
                    self._writer.write_with_metadata(batch, _json(BatchMetadata(op=op)))
            rows += batch.num_rows
        with as_store_errors():
            self._writer.write_metadata(_json(CommitMessage(commit=True, rows=rows)))
            self._writer.done_writing()
        answer = self._read()
        self.close()
        return StageResult.model_validate_json(answer.to_pybytes())

    def send(self, batch: pa.RecordBatch, number: int) -> Iterator[WriteResult]:
        """Send a batch; then, while the window is full, wait for answers and yield them.

        Raises:
            StoreError: the server rejected a batch; those answered before it are applied.
        """
        with as_store_errors():
            self._writer.write_with_metadata(batch, _json(BatchMetadata(seq=number)))
        self._unanswered.append(batch.nbytes)
        while len(self._unanswered) >= WINDOW or sum(self._unanswered) > WINDOW_BYTES:
            yield self._answer()

    def finish(self) -> Iterator[WriteResult]:
        """Yield the remaining answers and end the stream.

        Raises:
            StoreError: the server rejected a batch.
        """
        with as_store_errors():
            self._writer.done_writing()
        while self._unanswered:
            yield self._answer()
        self.close()

    def close(self) -> None:
        """End the stream; the batches sent are applied unless one is rejected.

        Raises:
            StoreError: the server rejected a batch.
        """
        if not self._closed:
            self._closed = True
            with as_store_errors():
                self._writer.close()

    def _last_answer(self) -> WriteResult:
        with as_store_errors():
            self._writer.done_writing()
        answer = self._answer()
        self.close()
        return answer

    def _read(self) -> pa.Buffer:
        with as_store_errors():
            answer = self._reader.read()
        if answer is None:
            self.close()  # raises the server's error
            raise UnavailableError("the server ended the stream without an answer")
        return answer

    def _answer(self) -> WriteResult:
        answer = self._read()
        if self._unanswered:
            self._unanswered.popleft()
        result = WriteResult.model_validate_json(answer.to_pybytes())
        if result.error_count and not result.timestamp:  # the batch's fate is unknown
            raise error_of(result.errors[0].code, result.errors[0].message)
        return result


def _json(message: BaseModel) -> bytes:
    return message.model_dump_json(exclude_defaults=True).encode()

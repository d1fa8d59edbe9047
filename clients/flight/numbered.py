"""Numbered writes: each batch has a number, so that it can be sent again if its fate is unknown.

A restarted server repeats its first answer to a known number and applies nothing. So a load continues across a restart
without losing or duplicating rows.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TypeVar

import pyarrow as pa

from ...schemas.errors import StoreError, UnavailableError
from ...schemas.rows.write import WriteCommand, WriteResult
from .put_stream import PutStream
from .server_wait import ServerWait

Answer = TypeVar("Answer")
SmallWrite = Callable[[WriteCommand, str, pa.RecordBatch, int], WriteResult | None]


class Writer:
    """The writer under whose name a client's connection numbers its batches: a name and a counter. Used by one stream
    at a time, so that its numbers arrive in order.

    Without a name, the server answers each number but remembers none.
    """

    def __init__(self, name: str | None, numbers: Iterable[int]) -> None:
        self.name = name
        self._numbers = iter(numbers)

    def next_number(self) -> int:
        """Return the next unused number."""
        return next(self._numbers)


class Writers:
    """The writers of one connection of a client: as many as streams were open at once. Thread safe."""

    def __init__(self) -> None:
        self._free: deque[Writer] = deque()

    def borrow(self) -> Writer:
        """Return a writer that no other stream uses."""
        try:
            return self._free.pop()
        except IndexError:
            return Writer(uuid.uuid4().hex, count())

    def give_back(self, writer: Writer) -> None:
        """Release a writer all of whose numbers are answered."""
        self._free.append(writer)


class NumberedPut:
    """Sends the batches of a write over DoPut by number, resends them if the connection breaks, and yields their
    answers in order. For one write."""

    def __init__(
        self,
        open_stream: Callable[[WriteCommand, pa.Schema], PutStream],
        writer: Writer,
        wait: ServerWait,
        small: SmallWrite,
    ) -> None:
        """``wait`` decides how long to wait for a server that is down; ``small`` sends a batch by a session; None
        if the batch cannot go by one."""
        self._open_stream = open_stream
        self._writer = writer
        self._wait = wait
        self._small = small
        self._unanswered: deque[tuple[int, pa.RecordBatch]] = deque()
        self._is_source_broken = False
        """Whether the source of the batches raised an error: then they are incomplete."""

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """Write batches one by one.

        Raises:
            StoreError: a batch was rejected, or the server stays down; answered batches are applied.
            Exception: what the source of the batches raised.
        """
        coming = iter(batches)
        while self._unanswered or self._take(coming):
            try:
                yield from self._write_on(command, coming)
            except UnavailableError as error:
                if self._is_source_broken:
                    raise
                self._wait.wait(error)

    def write_only(self, command: WriteCommand, batch: pa.RecordBatch) -> WriteResult:
        """Write one batch. Raises as ``write_all``."""
        number = self._writer.next_number()
        writer = self._writer.name
        if writer is not None:  # else it cannot be sent again when a session breaks
            result = self._repeated(lambda: self._small(command, writer, batch, number))
            if result is not None:
                return result
        return self._resending(command, batch.schema, lambda stream: stream.send_only(batch, number))

    def write_staged(self, command: WriteCommand, batches: list[pa.RecordBatch]) -> WriteResult:
        """Write one or more batches as one commit. Raises as ``write_all``."""
        number = self._writer.next_number()
        return self._resending(command, batches[0].schema, lambda stream: stream.send_staged(batches, number))

    def _resending(
        self, command: WriteCommand, schema: pa.Schema, send: Callable[[PutStream], WriteResult]
    ) -> WriteResult:
        def attempt() -> WriteResult:
            with self._stream(command, schema) as stream:
                return send(stream)

        return self._repeated(attempt)

    def _repeated(self, attempt: Callable[[], Answer]) -> Answer:
        while True:
            try:
                return attempt()
            except UnavailableError as error:
                self._wait.wait(error)

    def _named(self, command: WriteCommand) -> WriteCommand:
        return command.model_copy(update={"writer": self._writer.name})

    def _write_on(self, command: WriteCommand, coming: Iterator[pa.RecordBatch]) -> Iterator[WriteResult]:
        with self._stream(command, self._unanswered[0][1].schema) as stream:
            for number, batch in tuple(self._unanswered):
                yield from self._settled(stream.send(batch, number))
            while self._take(coming):
                number, batch = self._unanswered[-1]
                yield from self._settled(stream.send(batch, number))
            yield from self._settled(stream.finish())

    def _take(self, coming: Iterator[pa.RecordBatch]) -> bool:
        try:
            batch = next(coming, None)
        except BaseException:
            self._is_source_broken = True
            raise
        if batch is not None:
            self._unanswered.append((self._writer.next_number(), batch))
        return batch is not None

    def _settled(self, answers: Iterator[WriteResult]) -> Iterator[WriteResult]:
        for result in answers:
            self._unanswered.popleft()
            self._wait.reset()
            yield result

    @contextmanager
    def _stream(self, command: WriteCommand, schema: pa.Schema) -> Iterator[PutStream]:
        stream = self._open_stream(self._named(command), schema)
        try:
            yield stream
        finally:
            with suppress(StoreError):  # there is no error, or it is being raised already
                stream.close()

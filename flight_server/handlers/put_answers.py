"""The answers to a write stream: each waits until its batch is durable, while the next batches are received.

A batch with a number is answered as soon as it is durable. A thread waits for that, since the stream's thread waits for
the client. Batches without a number are answered together at the end, and need no thread.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.flight as fl

from ...schemas.errors import StoreError
from ...schemas.protocol.command import PutResult
from ...schemas.protocol.service import PendingResult
from ...schemas.rows.write import RowError, WriteResult, combine
from ..errors.client_gone import ClientGoneError, send_answer


@dataclass(frozen=True, slots=True)
class Begun:
    """A write of a DoPut stream in flight: begun, and not yet answered."""

    pending: PendingResult
    rows: int
    first_row: int
    """Position of its first row in the stream."""
    sequence: int | None
    is_last: bool = False
    """No other batch follows."""


class Answers:
    """The answers to a DoPut stream: settles its writes in order, at most ``ahead`` of them in flight. For one
    thread."""

    def __init__(self, writer: fl.FlightMetadataWriter, ahead: int, wrote: Callable[[int], None]) -> None:
        """``wrote`` is told how many rows each batch changed."""
        self._writer = writer
        self._wrote = wrote
        self._ahead = ahead
        self._waiting: deque[Begun] = deque()
        self._queue: queue.Queue[Begun | None] = queue.Queue(ahead)
        self._thread: threading.Thread | None = None
        self._unnumbered: list[WriteResult] = []
        self._is_answered = False
        self._error: BaseException | None = None

    def check(self) -> None:
        """Raise the error of an earlier batch, if any."""
        if self._error:
            raise self._error

    def add(self, begun: Begun) -> None:
        """Add a write to answer; blocks while too many are in flight."""
        if begun.is_last and self._thread is None:
            self._settle_waiting(0)
            self._settle_one(begun)
            self._is_answered = begun.sequence is not None
            return
        if begun.sequence is not None and self._thread is None:
            self._settle_waiting(0)
            self._thread = self._answering()
        if self._thread:
            self._queue.put(begun)
        elif begun.sequence is not None:
            self._settle_one(begun)
            self._is_answered = True
        else:
            self._waiting.append(begun)
            self._settle_waiting(self._ahead)

    def _answering(self) -> threading.Thread | None:
        """Return the thread that answers from now on; None: as many run as the system allows."""
        thread = threading.Thread(target=self._settle_queue, name="nyala-answers", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    def settle(self) -> None:
        """Return once every write is durable, and answered if it has a number.

        Raises:
            StoreError: a write failed.
        """
        self._settle_waiting(0)
        if self._thread:
            self._queue.put(None)
            self._thread.join()
        self.check()

    def send_last(self, nothing: Callable[[], WriteResult]) -> None:
        """Answer all batches without a number; ``nothing`` returns the answer for a stream without batches."""
        if self._unnumbered or not (self._thread or self._is_answered):
            self._send(combine(self._unnumbered) if self._unnumbered else nothing(), None)

    def _settle_waiting(self, left: int) -> None:
        while len(self._waiting) > left:
            self._settle_one(self._waiting.popleft())

    def _settle_queue(self) -> None:
        while begun := self._queue.get():
            self._settle_one(begun)

    def _settle_one(self, begun: Begun) -> None:
        try:
            result = begun.pending.result()
            self._wrote(result.applied)
            if begun.sequence is None:
                self._unnumbered.append(result.shifted(begun.first_row))
            elif not self._error:
                self._send(result, begun.sequence)
        except BaseException as error:
            self._refuse(begun, error)

    def _refuse(self, begun: Begun, error: BaseException) -> None:
        """Keep the error: the stream ends with it at the client's next message. Also answer this batch as failed, since
        a client that waits for the answer before it sends another batch would wait for ever."""
        if self._error:
            return
        self._error = error
        if isinstance(error, StoreError) and begun.sequence is not None:
            refusal = RowError(row=0, code=error.code, message=error.message)
            nothing = WriteResult(timestamp=0, rows=begun.rows, applied=0, error_count=begun.rows, errors=[refusal])
            with suppress(ClientGoneError):
                self._send(nothing, begun.sequence)

    def _send(self, result: WriteResult, sequence: int | None) -> None:
        send_answer(self._writer, PutResult(seq=sequence, **dict(result)))

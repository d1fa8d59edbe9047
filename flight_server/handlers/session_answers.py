"""The answers of a session, in the order of its requests."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.protocol.service import OneBatch
from ...schemas.protocol.session import SessionDetails
from ..admission.due_answers import AnswerCount
from ..errors.client_gone import ClientGoneError
from ..requests.calls import Call

_LOG = logging.getLogger("nyala.flight_server")
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

Ask = Callable[[SessionDetails, bytes], None]
"""Carries out a request, from its second line and its Arrow message, and answers it."""
Pending = Callable[[], bytes]
"""Waits until a write is durable, and returns its answer."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an answer, without dictionaries. A table of them would give up the interpreter's lock several
    times."""

    schema: pa.Schema
    count: int
    messages: Sequence[memoryview | pa.Buffer]
    """Those of an Arrow stream, a batch each."""

    @classmethod
    def of(cls, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> Rows:
        """Return the rows of some batches."""
        return cls(schema, sum(batch.num_rows for batch in batches), [batch.serialize() for batch in batches])

    @classmethod
    def of_message(cls, schema: pa.Schema, rows: OneBatch) -> Rows:
        """Return the rows of a batch that nobody has decoded."""
        return cls(schema, rows.num_rows, [rows.message])


class SessionAnswers:
    """Sends the server's answers of one session to its client. For its thread.

    Answers that are waited for are sent by a second thread, at most ``ahead`` of them. The thread begins with the first
    of them: a client that waits for each answer needs none.
    """

    def __init__(
        self,
        writer: fl.MetadataRecordBatchWriter,
        call: Call,
        ahead: int,
        failed: Callable[[BaseException], bytes],
    ) -> None:
        """``failed`` makes an answer of an error."""
        self.count = AnswerCount()
        self._writer = writer
        self._call = call
        self._failed = failed
        self._queue: queue.Queue[Pending | None] = queue.Queue(ahead)
        self._thread: threading.Thread | None = None
        self._is_gone = False
        self._schema: tuple[pa.Schema, bytes] | None = None
        """The schema of the last rows, and its Arrow message."""

    def send(self, answer: bytes, rows: Rows | None = None) -> None:
        """Send an answer, after ``wait``; ``rows`` follow it as an Arrow stream.

        Raises:
            ClientGoneError: the client is gone.
        """
        if rows is not None:
            answer = b"".join((answer, b"\n", *self._stream(rows)))
        self._call.sent(len(answer), 0 if rows is None else rows.count)
        self._call.waiting_since = time.monotonic()
        try:
            self._writer.write_metadata(answer)
        except (fl.FlightError, pa.ArrowException, OSError):
            raise ClientGoneError("the client disconnected before its answer") from None
        finally:
            self._call.waiting_since = None
            self.count.answered += 1

    def _stream(self, rows: Rows) -> Sequence[bytes | memoryview | pa.Buffer]:
        """Return the parts of an Arrow stream of rows."""
        if self._schema is None or not rows.schema.equals(self._schema[0], check_metadata=True):
            self._schema = rows.schema, rows.schema.serialize().to_pybytes()
        return self._schema[1], *rows.messages, _END_OF_STREAM

    def add(self, pending: Pending) -> None:
        """Let the second thread answer; waits while too many answers are due. Without that thread, answer now."""
        if self._thread is None:
            thread = threading.Thread(target=self._send_all, name="nyala-session", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # as many run as the system allows
                _LOG.warning("a session answers with one thread, as no second thread can start: %s", error)
                self._send(self._settled(pending))
                return
            self._thread = thread
        self._queue.put(pending)

    @property
    def are_sent(self) -> bool:
        """Whether all answers before are sent."""
        return self._thread is None or not self._queue.unfinished_tasks

    def wait(self) -> None:
        """Return when all answers before are sent."""
        if self._thread is not None:
            self._queue.join()

    def close(self) -> None:
        """Return when all answers are sent, and the second thread has ended."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    def _send_all(self) -> None:
        while (pending := self._queue.get()) is not None:
            try:
                self._send(self._settled(pending))
            finally:
                self._queue.task_done()

    def _settled(self, pending: Pending) -> bytes:
        try:
            return pending()
        except BaseException as error:
            return self._failed(error)

    def _send(self, answer: bytes) -> None:
        try:
            if self._is_gone:
                return
            self._call.sent(len(answer))
            with self._call.sending():
                self._writer.write_metadata(answer)
        except (fl.FlightError, pa.ArrowException, OSError):
            self._is_gone = True  # the thread of the session sees it by itself
        finally:
            self.count.answered += 1

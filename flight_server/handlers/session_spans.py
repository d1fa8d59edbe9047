"""The spans of a session's requests: see ``traces``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...schemas.protocol.session import SessionDetails, SessionRequest
from ..errors.request_log import code_of

if TYPE_CHECKING:
    from ..requests.calls import Call
    from ..requests.traces import Span, Traces
    from .session_answers import Ask, SessionAnswers


class RequestSpan:
    """The span of one request in a session. For one thread at a time."""

    def __init__(self, span: Span, verb: str, table: str, call: Call, size: int | None) -> None:
        """``size`` is that of the rows to write, in bytes; None: the request is a read."""
        self.request_id = call.id()
        self._span = span
        self._verb, self._table, self._size = verb, table, size
        self._call = call
        self._before = call.written_rows, call.sent_rows, call.sent_bytes

    def enter(self) -> Callable[[], None]:
        """See Span."""
        return self._span.enter()

    def answered(self) -> None:
        """End it: its answer is the only one that its call has sent since."""
        written, sent, size = self._before
        call = self._call
        rows = (call.written_rows - written) or (call.sent_rows - sent)
        self._end(rows, call.sent_bytes - size if self._size is None else self._size)

    def wrote(self, rows: int) -> None:
        """End it, by any thread."""
        self._end(rows, self._size or 0)

    def failed(self, error: BaseException) -> None:
        """End it with an error, by any thread."""
        self._end(0, self._size or 0, code_of(error))

    def _end(self, rows: int, size: int, code: str = "") -> None:
        self._span.end(self._verb, self._table, rows, size, self.request_id, code)


class Spans:
    """Makes the spans of the requests in one session. For its thread."""

    def __init__(self, traces: Traces, call: Call, answers: SessionAnswers) -> None:
        self._traces = traces
        self._call = call
        self._answers = answers
        self._current: RequestSpan | None = None

    def around(self, ask: Ask, verb: str, asked: SessionRequest) -> Ask:
        """Return what carries out requests as ``ask`` does, each with a span."""
        table = _table(asked)

        def traced(details: SessionDetails, body: bytes) -> None:
            if not details.more:
                self._answers.wait()  # what is sent from now on belongs to this request
            span = self._traces.of_request(verb, details.traceparent)
            size = None if asked.write is None else len(body)
            self._carry_out(RequestSpan(span, verb, table, self._call, size), lambda: ask(details, body))

        return traced

    def taken(self) -> RequestSpan | None:
        """Return the span of the request that is being carried out, for another thread to end."""
        taken, self._current = self._current, None
        return taken

    def _carry_out(self, span: RequestSpan, act: Callable[[], None]) -> None:
        self._current = span
        leave = span.enter()
        try:
            act()
        except BaseException as error:
            span.failed(error)
            raise
        else:
            if self._current is not None:
                span.answered()
        finally:
            self._current = None
            leave()


def _table(asked: SessionRequest) -> str:
    about = asked.scan or asked.write
    return about.table if about is not None else asked.get or asked.get_many or ""

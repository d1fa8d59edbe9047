"""Traces: a span of OpenTelemetry for each call and for each request of a session, sent to a collector.

A span has names, counts and times, and the code of an error; never a value, a filter or an error's text. It continues
the trace in the W3C header ``traceparent`` of its call. Imported only by a server with the option ``traces``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow.flight as fl
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...schemas.errors import UnauthenticatedError
from ..errors.request_log import code_of, request_id_of

if TYPE_CHECKING:
    from .recent_requests import RecentRequest

HEADER = "traceparent"
_PATH = "/v1/traces"
"""Where collectors take traces, unless the endpoint has a path of its own."""
_UNNAMED = "unknown_service"
"""The service's name as the SDK has it if the environment gives none."""
_CLOSE_SECONDS = 1.0
_LOG = logging.getLogger("nyala.flight_server")
_W3C = TraceContextTextMapPropagator()


class Traces:
    """The traces of one server: the spans of its calls, sent to a collector. Thread safe.

    Ended spans wait in a queue of 2,048 (``OTEL_BSP_MAX_QUEUE_SIZE``), which a thread sends from; what finds no room is
    dropped. The SDK follows its other variables, too, such as ``OTEL_TRACES_SAMPLER``.
    """

    def __init__(self, endpoint: str, server: str | None = None) -> None:
        """Begin to send to the collector at ``endpoint``, a URL. ``server`` is this server's name, if it has one."""
        url = urlsplit(endpoint)
        whole = url.geturl() if url.path.strip("/") else url._replace(path=_PATH).geturl()
        _hush()
        self._provider = TracerProvider(resource=_resource(server), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_Exporter(OTLPSpanExporter(whole), url.hostname or "")))
        self._tracer = self._provider.get_tracer("nyala", version("nyala"))
        self.headers = _TraceHeaders()

    def of_call(self, verb: str) -> Span:
        """Begin the span of the call whose handler has just been called on this thread."""
        return self.of_request(verb, self.headers.of_threads.pop(threading.get_ident(), None))

    def refused(self, verb: str, error: BaseException) -> None:
        """Give the call whose handler ran on this thread a span, if it failed before it had one. One without a valid
        token gets none: strangers could fill the queue, and others' traces."""
        if threading.get_ident() not in self.headers.of_threads:
            return
        if isinstance(error, UnauthenticatedError):
            del self.headers.of_threads[threading.get_ident()]
        else:
            self.of_call(verb).fail(verb, error)

    def of_request(self, verb: str, traceparent: str | None) -> Span:
        """Begin a span in the trace of a header; in one of its own if that is None or invalid."""
        parent = _W3C.extract({HEADER: traceparent} if traceparent else {}, Context())
        return Span(self._tracer.start_span(verb, parent, trace.SpanKind.SERVER))

    def close(self) -> None:
        """Send what waits, for at most a second."""
        closing = threading.Thread(target=self._provider.shutdown, name="nyala-traces", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)


class Span:
    """The span of one call or request in a trace. For the thread that works, and to be ended by any."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def enter(self) -> Callable[[], None]:
        """Make it the current span of this thread: calls to other servers continue it. Return what ends that."""
        return partial(detach, attach(trace.set_span_in_context(self._span)))

    def end_call(self, call: RecentRequest) -> None:
        """End the span of a call, with where its time went."""
        self._span.set_attributes(
            {
                "nyala.admission_seconds": call.admission_seconds,
                "nyala.client_seconds": call.client_seconds,
                "nyala.processor_seconds": call.processor_seconds,
            }
        )
        self.end(call.verb, call.table, call.rows, call.bytes, call.id, call.code)

    def end(self, verb: str, table: str, rows: int, size: int, request_id: str, code: str = "") -> None:
        """End the span; ``code`` is that of an error, if there was one."""
        found: dict[str, Any] = {"db.system.name": "nyala", "db.operation.name": verb, "nyala.request_id": request_id}
        found |= {"nyala.rows": rows, "nyala.bytes": size}
        if table:
            found["db.collection.name"] = table
        if code:
            found |= {"db.response.status_code": code, "error.type": code}
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.set_attributes(found)
        self._span.end()

    def fail(self, verb: str, error: BaseException) -> None:
        """End the span of what could not begin."""
        self.end(verb, "", 0, 0, request_id_of(error), code_of(error))


class _TraceHeaders(fl.ServerMiddlewareFactory):
    """Keeps the header of the call whose handler is called next on this thread, until that call has a span: see
    ``authentication._Headers``."""

    def __init__(self) -> None:
        super().__init__()
        self.of_threads: dict[int, str | None] = {}

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        """Called by pyarrow for each call, before anything else."""
        given = headers.get(HEADER, ())
        is_one = len(given) == 1 and isinstance(given[0], str)
        self.of_threads[threading.get_ident()] = str(given[0]) if is_one else None


class _Exporter(SpanExporter):
    """Says once that the collector does not take spans, and again only after it did."""

    def __init__(self, inner: OTLPSpanExporter, host: str) -> None:
        self._inner = inner
        self._host = host
        self._is_reached = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        result = self._inner.export(spans)
        is_reached = result is SpanExportResult.SUCCESS
        if self._is_reached and not is_reached:
            _LOG.warning("the collector on %s does not take traces; spans are lost until it does", self._host)
        self._is_reached = is_reached
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._inner.shutdown()


def _resource(server: str | None) -> Resource:
    """Return what all spans are of: the environment's names for it, else ours."""
    found = Resource.create()
    named = str(found.attributes.get("service.name", _UNNAMED))
    own = {} if not named.startswith(_UNNAMED) else {"service.name": "nyala", "service.version": version("nyala")}
    return found.merge(Resource({**own, **({"nyala.server": server} if server else {})}))


def _hush() -> None:
    """Keep the SDK's log from standard error: it has a line, or a traceback, for each batch that is not taken."""
    theirs = logging.getLogger("opentelemetry")
    theirs.addHandler(logging.NullHandler())
    theirs.propagate = False

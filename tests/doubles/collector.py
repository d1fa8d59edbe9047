"""A collector of OpenTelemetry in this process: it takes spans over HTTP and keeps them."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span that has arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    is_error: bool
    resource: dict[str, Any]


class Collector:
    """Listens at ``url``."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                collector.paths.add(self.path)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = _values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_seen(span, about) for span in scope.spans]

    def named(self, name: str) -> list[Seen]:
        """The spans of a verb so far."""
        return [span for span in self.spans if span.name == name]

    def wait(self, is_there: Callable[[], object], seconds: float = 20) -> None:
        """Wait until spans are there."""
        until = time.monotonic() + seconds
        while not is_there():
            assert time.monotonic() < until, [(span.name, span.attributes) for span in self.spans]
            time.sleep(0.01)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _seen(span: Any, resource: dict[str, Any]) -> Seen:
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Seen(span.name, *ids, _values(span.attributes), span.status.code == 2, resource)


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for the body."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()

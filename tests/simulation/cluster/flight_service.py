"""FlightService: the end of a server's lines: the handlers of the real Flight server, without gRPC around them.

They get what they ask of a call from `Given`, since admission, turns and the end of stuck calls are the transport's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.flight as fl

from nyala.flight_server.admission.peers import Peer
from nyala.flight_server.errors.errors import Translator
from nyala.flight_server.handlers import actions, get, info, put, session
from nyala.flight_server.handlers.message_split import cut
from nyala.flight_server.handlers.resume_marks import cut_marked
from nyala.flight_server.handlers.session_answers import SessionAnswers
from nyala.flight_server.requests.calls import Call, Calls
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.errors import StoreError

from .member import Front

CONFIG = ServerConfig(sent_bytes_min=50, sent_bytes_target=100, sent_bytes_max=100)
"""Few rows fill a message, so that scans have many, and marks between them."""
TRANSLATOR = Translator()
Message = tuple[pa.RecordBatch | None, bytes]
"""A batch and what goes with it; None: it goes alone."""


class Given:
    """What handlers ask of a call: nothing that ends it, and nothing that is counted."""

    table = ""
    user = waiting_since = scanned = None
    sent_rows = 0
    peer = Peer("", "")
    log = SimpleNamespace(slow_seconds=math.inf)
    metrics = SimpleNamespace(of=lambda verb: SimpleNamespace(add=lambda seconds: None))

    def check(self) -> None:
        """Let it go on."""

    check_time = step = look = watch = close = has_read = waits_for_client = check

    def id(self) -> str:
        return "simulated"

    def sent(self, size: int, rows: int = 0) -> None:
        """Count nothing."""

    def received(self, size: int) -> None:
        """Count nothing."""

    wrote = received

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    with_client = sending = working

    def decompressed(self) -> AbstractContextManager[Any]:
        return nullcontext(SimpleNamespace(give_back=lambda: None, take=lambda size: None))


_CALL = cast(Call, Given())
_CALLS = cast(
    Calls,
    SimpleNamespace(
        config=CONFIG,
        traces=None,
        metrics=Given.metrics,
        begin=lambda *how: _CALL,
        admission=SimpleNamespace(enter=lambda *how: None, leave=lambda *how: None),
    ),
)
_CONTEXT = cast(fl.ServerCallContext, SimpleNamespace(is_cancelled=lambda: False))


def act(front: Front, action: fl.Action) -> list[fl.Result]:
    """Answer DoAction."""
    return list(actions.run(front.served, front.process, _CONTEXT, action, _CALLS, TRANSLATOR))


def inform(front: Front, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
    """Answer GetFlightInfo."""
    return info.flight_info(front.served, descriptor, CONFIG)


def stream(front: Front, ticket: bytes) -> Generator[pa.Schema | tuple[pa.RecordBatch, bytes | None]]:
    """Answer DoGet: yield the schema, then the messages."""
    scan = front.served.scan(get.scan_spec(ticket, "the ticket", CONFIG))
    try:
        yield scan.schema
        messages: Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]] = cut(scan.batches, CONFIG)
        if scan.marked is not None and scan.snapshot is not None:
            messages = cut_marked(scan.marked, scan.snapshot, CONFIG)
        for each in messages:
            yield each if isinstance(each, tuple) else (each, None)
    finally:
        get._end(scan, _CALL)


class Received(NamedTuple):
    """A message as a reader of Flight shows it."""

    data: pa.RecordBatch | None
    app_metadata: pa.Buffer | None


def write(front: Front, descriptor: fl.FlightDescriptor, schema: pa.Schema, messages: Sequence[Message]) -> list[bytes]:
    """Answer DoPut, of which all messages have come."""
    waiting, answers = deque(messages), list[bytes]()

    def read_chunk() -> Received:
        if not waiting:
            raise StopIteration
        batch, metadata = waiting.popleft()
        return Received(batch, pa.py_buffer(metadata) if metadata else None)

    reader, writer = SimpleNamespace(schema=schema, read_chunk=read_chunk), SimpleNamespace(write=answers.append)
    put.write_stream(front.served, _CONTEXT, descriptor, cast(Any, reader), cast(Any, writer), _CALLS, _CALL)
    return answers


class OpenSession:
    """The server's end of a session."""

    def __init__(self, front: Front) -> None:
        self.front, self._ends = front, front.ends
        self._sent: list[bytes] = []
        writer, failed = SimpleNamespace(write_metadata=self._sent.append), _failed
        self._answers = SessionAnswers(cast(Any, writer), _CALL, CONFIG.writes_ahead, failed)
        self._session = session._Session(front.served, _CALLS, _CALL, self._answers, kept=None, combined=None)

    @property
    def is_over(self) -> bool:
        """Whether its process has lost the store since."""
        return self.front.ends != self._ends

    def take(self, request: bytes) -> bytes:
        """Answer a request."""
        try:
            self._session.take(request)
        except StoreError as error:
            self._answers.send(_failed(error))
        return self._sent.pop()


def _failed(error: BaseException) -> bytes:
    return session._failed(error, TRANSLATOR)


def guarded(work: Callable[[Front], Any], name: str) -> Callable[[Front], Any]:
    """Return work that comes to the error that a client sees."""

    def run(front: Front) -> Any:
        try:
            return work(front)
        except StoreError as error:
            return TRANSLATOR.flight(error, name)

    return run

"""FlightLine: pyarrow's Flight client, whose connections lead over the simulated network to members of a cluster.

A process that is not there refuses a connection. One that dies breaks the calls to it, as does, after a while, one that
loses the store. A line that is cut is found dead after some seconds, as the client's heartbeats see to. A process that
is frozen answers when it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.flight as fl

from nyala.engine import threads
from nyala.schemas.errors import UnavailableError

from . import flight_service as service
from .flight_service import OpenSession, Received
from .flight_world import CallOptions
from .member import Answer, Front, Member, NoAnswerError
from .network import Network

_LOST_SECONDS = 6.0
"""After so long a connection breaks whose messages nobody acknowledges."""
_LOOK_SECONDS = 1.0
_REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.{}:8815: Connection refused"
_ELSEWHERE = "UNAVAILABLE: this process no longer has the store; the action `where` names the process that has it"


def _broken(why: str = "Socket closed") -> fl.FlightUnavailableError:
    return fl.FlightUnavailableError(why)


class FlightLine:
    """In place of ``FlightClient``: the connection to one member. It has those methods that clients here use."""

    def __init__(self, member: Member | None, network: Network) -> None:
        """``member``: None if nobody is at the location."""
        self.member, self.network = member, network

    def begin(self, work: Callable[[Front], Any], answer: Answer[Any], seconds: float | None) -> Front:
        """Send a call. Raises FlightError."""
        if self.member is None:
            raise _broken(_REFUSED.format("unknown"))
        try:
            return self.member.begin(work, answer, _LOST_SECONDS if seconds is None else min(seconds, _LOST_SECONDS))
        except UnavailableError:
            raise _broken(_REFUSED.format(self.member.number)) from None
        except NoAnswerError:
            self.lose(seconds)

    def lose(self, seconds: float | None) -> NoReturn:
        """Raise what a call that has so many seconds meets on a line that is cut."""
        if seconds is not None and seconds < _LOST_SECONDS:
            raise fl.FlightTimedOutError("Deadline Exceeded")
        raise _broken("recvmsg: Connection timed out")

    def check(self, answer: Answer[Any], front: Front) -> None:
        """Raise FlightError if an answer cannot come any more."""
        assert self.member is not None, "it was reached"
        if self.member.clients_way.loses_answers:
            threads.sleep(_LOST_SECONDS)
            self.lose(None)
        if answer.is_broken:
            raise _broken(_ELSEWHERE if self.member.front is front else "Socket closed")

    def call(
        self,
        work: Callable[[Front], Any],
        name: str,
        options: CallOptions | None = None,
        is_of_session: bool = False,
    ) -> Any:
        """Return the answer of the member to a call. Raises FlightError."""
        seconds = options.timeout if options else None
        answer = Answer[Any](threads.Event(), is_of_session=is_of_session)
        front = self.begin(service.guarded(work, name), answer, seconds)
        answer.came.wait(seconds)
        self.network.pass_by()
        self.check(answer, front)
        if not answer.came.is_set():
            raise fl.FlightTimedOutError("Deadline Exceeded")
        value: Any = answer.value
        if isinstance(value, fl.FlightError):
            raise value
        return value

    # The methods of FlightClient

    def do_action(self, action: fl.Action, options: CallOptions | None = None) -> list[fl.Result]:
        return self.call(lambda front: service.act(front, action), action.type, options)

    def get_flight_info(self, descriptor: fl.FlightDescriptor, options: CallOptions | None = None) -> fl.FlightInfo:
        return self.call(lambda front: service.inform(front, descriptor), "get_flight_info", options)

    def do_get(self, ticket: fl.Ticket, options: CallOptions | None = None) -> Rows:
        return Rows(self, ticket.ticket)

    def do_put(self, descriptor: fl.FlightDescriptor, schema: pa.Schema, options: CallOptions | None = None) -> Any:
        sent = Put(self, descriptor, schema)
        return sent, SimpleNamespace(read=sent.read)

    def do_exchange(self, descriptor: fl.FlightDescriptor, options: CallOptions | None = None) -> Any:
        assert b"session" in descriptor.command, "no actor reads many rows by their keys"
        session = Session(self)
        return session, SimpleNamespace(read_chunk=session.read_chunk)

    def close(self) -> None:
        """See FlightClient."""


class Rows:
    """In place of ``FlightStreamReader``: the messages of a scan, which a thread of the server sends one by one, as the
    client takes them."""

    def __init__(self, line: FlightLine, ticket: bytes) -> None:
        self._line, self._coming = line, deque[Any]()
        self._answer, self._room = Answer[None](threads.Event()), threads.Event()
        self._is_cancelled = False
        self._front = line.begin(partial(self._send, ticket=ticket), self._answer, None)
        self._schema: pa.Schema | None = None

    # The thread of the server

    def _send(self, front: Front, ticket: bytes) -> None:
        sent = service.guarded(lambda front: self._send_all(front, ticket), "do_get")(front)
        self._coming.append(sent)

    def _send_all(self, front: Front, ticket: bytes) -> None:
        messages = service.stream(front, ticket)
        try:
            for message in messages:
                self._coming.append(message)
                self._answer.came.set()
                while self._coming and not (self._is_cancelled or self._answer.is_broken):
                    self._room.wait(_LOOK_SECONDS)
                    self._room.clear()
                if self._is_cancelled or self._answer.is_broken:
                    return
        finally:
            messages.close()

    # The client

    def _next(self) -> Any:
        self._line.network.pass_by()
        self._line.network.linger()
        while True:
            self._line.check(self._answer, self._front)
            if self._coming:
                break
            self._answer.came.wait(_LOOK_SECONDS)
            if not self._coming:
                self._answer.came.clear()
        message = self._coming.popleft()
        self._room.set()
        if isinstance(message, fl.FlightError):
            raise message
        return message

    @property
    def schema(self) -> pa.Schema:
        """See FlightStreamReader."""
        if self._schema is None:
            self._schema = self._next()
        return self._schema

    def read_chunk(self) -> Received:
        """See FlightStreamReader."""
        _ = self.schema
        message = self._next()
        if message is None:
            raise StopIteration
        batch, mark = message
        return Received(batch, None if mark is None else pa.py_buffer(mark))

    def read_all(self) -> pa.Table:
        """See FlightStreamReader."""
        batches = []
        while True:
            try:
                batches.append(self.read_chunk().data)
            except StopIteration:
                return pa.Table.from_batches(batches, self.schema)

    def cancel(self) -> None:
        """See FlightStreamReader."""
        self._is_cancelled = True
        self._room.set()


class Put:
    """In place of the writer and the reader of DoPut: all messages go when the client waits for an answer."""

    def __init__(self, line: FlightLine, descriptor: fl.FlightDescriptor, schema: pa.Schema) -> None:
        self._line, self._descriptor, self._schema = line, descriptor, schema
        self._messages: list[service.Message] = []
        self._answers: deque[bytes] | None = None

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """See FlightStreamWriter."""
        self._messages.append((batch, b""))

    def write_with_metadata(self, batch: pa.RecordBatch, metadata: bytes) -> None:
        """See FlightStreamWriter."""
        self._messages.append((batch, metadata))

    def write_metadata(self, metadata: bytes) -> None:
        """See FlightStreamWriter."""
        self._messages.append((None, metadata))

    def done_writing(self) -> None:
        """See FlightStreamWriter."""

    def close(self) -> None:
        """See FlightStreamWriter. The reader has raised what was wrong."""

    def read(self) -> pa.Buffer | None:
        """See FlightMetadataReader."""
        if self._answers is None:
            given: tuple[fl.FlightDescriptor, pa.Schema, Sequence[service.Message]]
            given = self._descriptor, self._schema, self._messages
            self._answers = deque(self._line.call(lambda front: service.write(front, *given), "do_put"))
        return pa.py_buffer(self._answers.popleft()) if self._answers else None


class Session:
    """In place of the writer and the reader of DoExchange: a session, with a process as long as that has the store."""

    def __init__(self, line: FlightLine) -> None:
        self._line, self._request = line, b""
        self._open: OpenSession | None = None

    def begin(self, schema: pa.Schema) -> None:
        """See FlightStreamWriter."""

    def write_metadata(self, request: bytes) -> None:
        """See FlightStreamWriter."""
        self._request = request

    def close(self) -> None:
        """See FlightStreamWriter."""

    def read_chunk(self) -> Received:
        """See FlightStreamReader."""
        member = self._line.member
        if self._open is not None and member is not None and member.front is None:
            raise _broken()
        take = partial(self._take, request=self._request)
        return Received(None, pa.py_buffer(self._line.call(take, "do_exchange", is_of_session=True)))

    def _take(self, front: Front, request: bytes) -> bytes | fl.FlightError:
        opened = self._open = self._open or OpenSession(front)
        if opened.front is not front:
            return _broken()
        return _broken(_ELSEWHERE) if opened.is_over else opened.take(request)

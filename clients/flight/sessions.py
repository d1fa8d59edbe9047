"""Sessions: open DoExchanges that take small reads and writes, so that a request is one message each way."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InternalError, InvalidArgumentError, UnauthenticatedError, UnavailableError
from ...schemas.protocol.session import traced
from .errors import as_store_errors, store_error
from .holder_client import Client, HolderClient
from .idle_streams import IdleStreams

_SESSION = b'{"session":1}'
_NO_COLUMNS = pa.schema([])
_REFUSALS = (InvalidArgumentError, InternalError)
"""How a server answers that knows no sessions. What is wrong with a request comes as an answer."""
_ENDED = (UnavailableError, UnauthenticatedError, *_REFUSALS)
"""How an idle session may turn out to be over: with its token, for one."""


class _Session:
    """One open session. For one thread at a time."""

    def __init__(self, client: Client, *token: str) -> None:
        """``token`` is given if the next call may have another one."""
        self.kind = (client, *token) if token else client
        self.idle_since = 0.0
        self._writer, self._reader = client.do_exchange(fl.FlightDescriptor.for_command(_SESSION), *token)
        self._writer.begin(_NO_COLUMNS)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return its answer."""
        self._writer.write_metadata(request)
        try:
            return self._reader.read_chunk().app_metadata.to_pybytes()
        except StopIteration:
            raise fl.FlightUnavailableError("the server ended the session") from None

    def close(self) -> None:
        """End the session, whether the server reports an error, is gone, or neither."""
        with suppress(pa.ArrowException, OSError):
            self._writer.close()


class Sessions:
    """The open sessions of a client with its server: lends one to each call; idle ones stay open for a moment. Thread
    safe."""

    def __init__(self, client: HolderClient) -> None:
        self._client = client
        self._traceparent = client.traceparent
        self._current_token = client.current_token
        self._idle = IdleStreams[_Session]()
        self._is_known_here = True
        self.have_answered = False
        """Whether the server is known to take them."""

    def ask(self, request: bytes) -> bytes | None:
        """Return the answer to a request that may be sent twice; None if the server is too old for sessions.

        If a session that was idle breaks, use a new one, once. A session takes the requests of one token only.

        Raises:
            InvalidArgumentError: another store is there by now.
            UnavailableError: the server cannot be reached, or refuses a session where it took others: something between
                may have broken it, after the request was carried out.
        """
        if not self._is_known_here:
            return None
        if self._traceparent is not None and (trace := self._traceparent()):
            request = traced(request, trace)
        token = () if self._current_token is None else (self._current_token(),)
        here = self._client.here
        if (idle := self._idle.borrow((here, *token) if token else here)) is not None:
            try:
                return self._answer(idle, request)
            except _ENDED:
                self._client.confirm()  # it may have been carried out, and must not be again by another store
        client = self._client.sure()
        try:
            with as_store_errors():
                session = _Session(client, *token)
            answer = self._answer(session, request)
        except _REFUSALS as error:
            if self.have_answered:
                self.have_answered = False  # refused again, it is an older server by now
                raise UnavailableError(f"the server rejected the session: {error.message}") from None
            self._is_known_here = False
            return None
        self.have_answered = True
        return answer

    def _answer(self, session: _Session, request: bytes) -> bytes:
        try:
            answer = session.ask(request)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            session.close()
            raise store_error(error) from None
        except BaseException:
            session.close()
            raise
        self._idle.give_back(session)
        return answer

    def close(self) -> None:
        """Close idle sessions, and others when their calls end."""
        self._idle.close()

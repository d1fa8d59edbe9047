"""PrivatePort: a second door of a server, on a Unix socket, for the child processes that run statements.

A child shows a token that stands for the caller of its statement. So it sees the tables and columns of the caller, and
what it reads and writes counts as the caller's.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow.flight as fl

from ...schemas.errors import UnauthenticatedError
from ...schemas.protocol.service import StoreService
from ..security.identity import Identity
from ..server import FlightServer
from ..settings.config import ServerConfig

if TYPE_CHECKING:
    from ..security.security import Security

_HEADER = "authorization"
_BEARER = "Bearer "
_ANYONE = Identity("")
"""The caller at a server that asks nobody."""
_UNKNOWN = "this port is for statements that run"


class _StatementHeaders(fl.ServerMiddlewareFactory):
    """Keeps the token of the call whose handler is called next on this thread."""

    def __init__(self) -> None:
        super().__init__()
        self._of_threads: dict[int, str] = {}

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> None:
        """Called by pyarrow for each call, before anything else."""
        given = headers.get(_HEADER, ())
        self._of_threads[threading.get_ident()] = str(given[0]).removeprefix(_BEARER) if given else ""

    def taken(self) -> str:
        """Return the token of the call whose handler has just been called on this thread."""
        return self._of_threads.pop(threading.get_ident(), "")


class _ThreadsCaller(threading.local):
    caller: Identity | None = None


class StatementTokens:
    """Knows for whom each child works. It is to the private port what ``Authentication`` is to the public one."""

    failures: Mapping[str, int] = {}
    handshakes = None

    def __init__(self) -> None:
        self._headers = _StatementHeaders()
        self._callers: dict[str, Identity] = {}
        self._thread = _ThreadsCaller()

    @property
    def middleware(self) -> dict[str, Any]:
        """What a server of pyarrow's must be given."""
        return {"nyala-statement": self._headers}

    @contextmanager
    def lent(self, token: str, caller: Identity | None) -> Iterator[None]:
        """Let a token stand for a caller during the body."""
        self._callers[token] = caller or _ANYONE
        try:
            yield
        finally:
            self._callers.pop(token, None)

    def enter(self, context: fl.ServerCallContext) -> None:
        """Find out for whom the call is that has just been called on this thread."""
        self._thread.caller = self._callers.get(self._headers.taken())

    def require(self) -> None:
        """Raise UnauthenticatedError unless the call is of a statement that runs."""
        if self._thread.caller is None:
            raise UnauthenticatedError(_UNKNOWN)

    @property
    def caller(self) -> Identity | None:
        """For whom the call of this thread is; None: it is not of a statement that runs."""
        return self._thread.caller


class _PrivateSecurity:
    """Lets a port know its callers by the tokens of statements."""

    def __init__(self, tokens: StatementTokens) -> None:
        self.authentication = tokens

    def listen(self, begin: Callable[..., None], location: str, middleware: Mapping[str, Any] | None = None) -> None:
        begin(location, middleware={**self.authentication.middleware, **(middleware or {})})

    def guard(self, store: StoreService) -> None:
        """The public server has one."""

    def is_admin(self, identity: Identity) -> bool:
        return False

    def note(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass


class PrivatePort(FlightServer):
    """Answers the calls of child processes with the store of the public server, as each caller may use it."""

    def __init__(self, public: FlightServer, path: Path) -> None:
        """Listen at a Unix socket, in a directory that only this user may enter."""
        self.tokens = StatementTokens()
        self._public = public
        self.location = f"grpc+unix://{path}"
        config = public.config.model_copy(update={"peer_share": 1.0, "known_share": 0.0, "slow_request_seconds": 0.0})
        super().__init__(
            public.store, self.location, _shared(config), cast("Security", _PrivateSecurity(self.tokens)), None
        )

    def store_of(self, caller: Identity | None) -> StoreService:
        """See FlightServer."""
        return self._public.shared_store_of(caller)


def _shared(config: ServerConfig) -> ServerConfig:
    """Statements were admitted at the public port: their scans wait here, instead of being refused."""
    return config.model_copy(update={"wait_seconds_max": max(config.wait_seconds_max, 60.0)})


def new_token() -> str:
    """Return the token by which a child process of Flight SQL calls the private port; nobody can guess it."""
    return secrets.token_urlsafe(24)

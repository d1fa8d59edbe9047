"""Authentication: who makes a call, by its bearer token or by the client certificate of its connection."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.flight as fl

from ...schemas.errors import StoreError, UnauthenticatedError, UnavailableError
from ..errors.errors import Translator
from .audit import AuditLog
from .entrance import Entrance
from .file_watch import WatchedFiles
from .handshake import AnyHandshake, GivenToken, Handshakes, parts_of
from .identity import Identity, Source
from .openings import Opening, Openings
from .token_file import PREFIX, TokenEntry, id_of, matches, read_tokens

if TYPE_CHECKING:
    from .jwt_tokens import JwtTokens

HEADER = "authorization"
_STREAMS = ("DO_PUT", "DO_EXCHANGE")
_HANDSHAKE = "HANDSHAKE"
_BEARER = "bearer "
_BYTES_MAX = 8192
_NOTHING = (
    "the call has neither a token nor a client certificate that this server accepts: give connect(token=...) or "
    "--token-file, or set NYALA_TOKEN"
)
_BAD_TOKEN = "the token is not valid here: it is unknown, revoked or damaged; ask the operator for another"
_EXPIRED = "the token has expired; ask the operator for another"
UNNAMED = "other types of SAN"
"""The name that gRPC gives to every client whose first alternative name is none of DNS, URI, email and IP address."""
_NO_USER = (
    "the client certificate names no user: its first alternative name is not a DNS name, a URI, an email or an IP "
    "address; ask for a certificate whose first alternative name is one of these, or with only a common name"
)


class Tokens:
    """The tokens in a token file by which a server knows its callers. Thread safe."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError if it is not a valid token file."""
        self._path = path
        self._entries: Mapping[str, TokenEntry] = {}
        self._known: dict[bytes, Identity] = {}
        self._lock = threading.Lock()
        self.files = WatchedFiles("tokens", [path], self._load)

    def entries(self) -> list[TokenEntry]:
        """Return the entries of the file, which have the hashes of tokens."""
        with self._lock:
            return list(self._entries.values())

    def identity(self, token: str) -> Identity | None:
        """Return whose token it is; None if it is not in the file."""
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        number = id_of(token)
        if number is None:
            return None
        if number not in self._entries:
            self.files.refresh()  # it may have just been created
        with self._lock:
            entry = self._entries.get(number)
            if entry is None or not matches(token, entry):
                return None
            identity = Identity(entry.user, frozenset(entry.roles), _seconds(entry), Source.TOKEN, entry.id)
            return self._known.setdefault(digest, identity)

    def _load(self) -> None:
        entries = {entry.id: entry for entry in read_tokens(self._path, is_served=True).tokens}
        with self._lock:
            self._entries = entries
            for digest, identity in list(self._known.items()):
                entry = entries.get(identity.token_id)
                if entry is None or entry.sha256 != digest.hex() or not _is_of(identity, entry):
                    del self._known[digest]
                    identity.is_revoked = True  # calls that run hold this object


def _is_of(identity: Identity, entry: TokenEntry) -> bool:
    same = identity.user == entry.user and identity.roles == frozenset(entry.roles)
    return same and identity.expires == _seconds(entry)


def _seconds(entry: TokenEntry) -> float:
    return entry.expires.timestamp() if entry.expires else math.inf


class _Thread(threading.local):
    identity: Identity | None = None


class _Headers(fl.ServerMiddlewareFactory):
    """Keeps the header of the call whose handler is called next on this thread, and answers handshakes.

    Thread-local data would be lost: until the handler is called, a transport thread is a new one to Python each time.

    Streams from clients are checked here already: Arrow receives their first message before it calls the handler, so
    anyone could open many and send none. The message of any other call is there before either is called.
    """

    def __init__(
        self,
        check: Callable[[Sequence[str | bytes]], Identity | None],
        begin: Callable[[Sequence[str | bytes]], str],
        entrance: Entrance,
    ) -> None:
        super().__init__()
        self._check = check
        self._begin = begin
        self._entrance = entrance
        self._openings = Openings()
        self._of_threads: dict[int, tuple[Sequence[str | bytes], Opening | None]] = {}

    def taken(self) -> Sequence[str | bytes]:
        """Return the headers of authorization of the call whose handler has just been called on this thread."""
        given, opening = self._of_threads.pop(threading.get_ident(), ((), None))
        if opening is not None:
            opening.end()
        return given

    def start_call(self, info: fl.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> fl.ServerMiddleware | None:
        """Called by pyarrow for each call, before anything else."""
        given, method = headers.get(HEADER, ()), info.method.name
        header = _text(given[0]) if given else None
        was_known = self._entrance.knows(header)
        try:
            if method == _HANDSHAKE:
                return GivenToken(self._begin(given))
            opening = None
            if method in _STREAMS:
                caller = self._check(given)
                try:
                    opening = self._openings.begin(caller.user if caller else "")
                except UnavailableError:
                    self._entrance.refuse_streams(header)
                    raise
        except Exception as error:
            raise Translator().flight(error, method.lower()) from None
        finally:
            self._entrance.has_started(was_known, method in _STREAMS or method == _HANDSHAKE)
        self._of_threads[threading.get_ident()] = given, opening
        return opening


class Authentication:
    """Finds out who makes each call of a server. Thread safe."""

    def __init__(
        self,
        tokens: Tokens | None,
        jwts: JwtTokens | None,
        trusts_certificates: bool,
        handshake_seconds: int = 0,
        audit: AuditLog | None = None,
    ) -> None:
        """``trusts_certificates``: a client certificate that TLS has verified identifies its user.
        ``handshake_seconds``: how long tokens are valid that handshakes give; 0: there are no handshakes."""
        self._tokens = tokens
        self._jwts = jwts
        self._trusts_certificates = trusts_certificates
        self._handshakes = Handshakes(handshake_seconds, self._of_bearer, audit) if handshake_seconds else None
        self.entrance = Entrance(trusts_certificates, _NOTHING, self._is_good)
        self._headers = _Headers(self._check, self._begin, self.entrance)
        self._thread = _Thread()
        self._failures = {"missing": 0, "invalid": 0, "expired": 0}

    @property
    def failures(self) -> dict[str, int]:
        """How many calls were rejected, and why; ``crowd``: before they were looked at, since many came at once."""
        return self._failures | {"crowd": self.entrance.rejected}

    @property
    def of_server(self) -> dict[str, Any]:
        """What a server of pyarrow's must be given. It knows no names of certificates with an ``auth_handler``."""
        middleware = {"nyala-authentication": self._headers}
        return {"middleware": middleware} | ({"auth_handler": AnyHandshake()} if self._handshakes else {})

    def enter(self, context: fl.ServerCallContext) -> None:
        """Find out who makes the call whose handler has just been called on this thread.

        Raises:
            UnauthenticatedError: it shows a token that is not valid, whatever else it shows.
        """
        self._thread.identity = None
        given = self._headers.taken()
        if given:
            self._thread.identity = self._by_header(given)
        elif self._trusts_certificates and (name := context.peer_identity()):
            self._thread.identity = self._of_certificate(_text(name))

    @property
    def caller(self) -> Identity | None:
        """Who makes the call that this thread handles; None: it shows nothing."""
        return self._thread.identity

    def require(self) -> None:
        """Raise UnauthenticatedError if it is not known who makes the call that this thread handles."""
        if self._thread.identity is None:
            raise self._failure("missing", _NOTHING)

    def of_request(self, given: Sequence[str], certificate_name: str | None) -> Identity:
        """Return who makes a request of HTTP with these headers of authorization, from a client with this name in its
        certificate.

        Raises:
            UnauthenticatedError: that is not known, or the token is not valid.
        """
        if given:
            return self._by_header(given)
        if self._trusts_certificates and certificate_name:
            return self._of_certificate(certificate_name)
        raise self._failure("missing", _NOTHING)

    def _of_certificate(self, name: str) -> Identity:
        if name == UNNAMED:
            raise self._failure("invalid", _NO_USER)
        return Identity(name, source=Source.CERTIFICATE)

    def _check(self, given: Sequence[str | bytes]) -> Identity | None:
        """Return who makes a call, if its header tells; None: a certificate may. Raises UnauthenticatedError if the
        header suffices to reject it."""
        if given:
            return self._by_header(given)
        if not self._trusts_certificates:
            raise self._failure("missing", _NOTHING)
        return None

    def _by_header(self, given: Sequence[str | bytes]) -> Identity:
        text = _text(given[0])
        try:
            identity = self._of_header(text, len(given))
        except UnauthenticatedError:
            self.entrance.forget(text)
            raise
        self.entrance.learn(text)
        return identity

    def _of_header(self, text: str, count: int) -> Identity:
        if count > 1 or len(text) > _BYTES_MAX or text[: len(_BEARER)].lower() != _BEARER:
            raise self._failure("invalid", 'send one header "authorization", of the form "Bearer TOKEN"')
        token = text[len(_BEARER) :].strip()
        given_here = self._handshakes.identity(token) if self._handshakes else None
        return self._of_bearer(token) if given_here is None else self._valid(given_here)

    def _is_good(self, header: str) -> bool:
        """Return whether a header is that of a valid token, or raise UnauthenticatedError; count and log nothing."""
        if len(header) > _BYTES_MAX:
            return False
        if header[: len(_BEARER)].lower() == _BEARER:
            user, token = None, header[len(_BEARER) :].strip()
        elif self._handshakes is not None:
            user, token = parts_of(header)
        else:
            return False
        given_here = self._handshakes.identity(token) if self._handshakes else None
        identity = given_here or self._of_token(token)
        return identity is not None and identity.is_valid and user in (None, identity.user)

    def _is_still_good(self, header: str) -> bool:
        try:
            return self._is_good(header)
        except UnauthenticatedError:
            return False

    def _begin(self, given: Sequence[str | bytes]) -> str:
        """Return a token for the header of a handshake."""
        if self._handshakes is None:
            return ""  # Arrow rejects it
        if len(given) != 1 or len(given[0]) > _BYTES_MAX:
            raise self._failure("invalid", 'send one header "authorization", of the form "Basic BASE64"')
        text = _text(given[0])
        try:
            token = self._handshakes.begin(text)
        except StoreError:
            if not self._is_still_good(text):
                self.entrance.forget(text)
            raise
        self.entrance.learn(text)
        return token

    def _of_bearer(self, token: str) -> Identity:
        """Return whose token it is. Raises UnauthenticatedError: it is not valid."""
        try:
            identity = self._of_token(token)
        except UnauthenticatedError:
            self._failures["invalid"] += 1
            raise
        if identity is None or identity.is_revoked:
            raise self._failure("invalid", _BAD_TOKEN)
        return self._valid(identity)

    def _valid(self, identity: Identity) -> Identity:
        if not identity.is_valid:
            raise self._failure("expired", _EXPIRED)
        return identity

    def _failure(self, reason: str, message: str) -> UnauthenticatedError:
        self._failures[reason] += 1
        return UnauthenticatedError(message)

    def _of_token(self, token: str) -> Identity | None:
        if self._jwts and not token.startswith(PREFIX):
            return self._jwts.identity(token)
        return self._tokens.identity(token) if self._tokens else None


def _text(given: str | bytes) -> str:
    return given.decode(errors="replace") if isinstance(given, bytes) else given

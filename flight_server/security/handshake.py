"""Handshakes: a user and a token as the password, for a token that soon expires.

Flight clients that know nothing but a user and a password, such as drivers of JDBC and ADBC, call Handshake with the
header ``authorization: Basic`` and show what its answer has, ``authorization: Bearer TOKEN``, from then on. What they
show with each call, and may log or keep, is then worth little soon, and ends with the token that it was given for.

pyarrow tells no address of a client here. So failures are counted by the user that they name, and all together.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow.flight as fl

from ...schemas.errors import UnauthenticatedError, UnavailableError
from .audit import AuditLog
from .identity import Identity
from .token_file import PREFIX

_PREFIX = f"{PREFIX}handshake_"
_BASIC = "basic "
_SECRET_BYTES = 32
_WINDOW_SECONDS = 60.0
_FAILURES_OF_USER = 10
_FAILURES_OF_ALL = 1_000
"""In this time; then only passwords are let in that were right before."""
_WRONG = (
    'the handshake is not valid here: send "authorization: Basic", with the user of a token and the token as the '
    "password"
)
_LIMITED = "too many handshakes have failed; wait, or show the token itself, as a bearer token"


@dataclass(slots=True)
class _Given:
    """The newest token that was given for a password."""

    token: str
    identity: Identity


class Handshakes:
    """The tokens that a server has given for users and passwords. Thread safe.

    A password gets the same token again while more than half of its time is left, so there are at most two of each.
    """

    def __init__(
        self,
        seconds: float,
        check: Callable[[str], Identity],
        audit: AuditLog | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``check`` returns whose a token is, or raises UnauthenticatedError; those given here are not asked for.
        ``seconds``: how long those given are valid."""
        self._seconds = seconds
        self._check = check
        self._audit = audit
        self._now = now
        self._of_tokens: dict[bytes, Identity] = {}
        self._of_passwords: dict[bytes, _Given] = {}
        self._failures: dict[str, int] = {}
        self._window_until = 0.0
        self._lock = threading.Lock()

    def identity(self, token: str) -> Identity | None:
        """Return whose token it is; None if none was given here."""
        return self._of_tokens.get(_digest(token)) if token.startswith(_PREFIX) else None

    def begin(self, header: str) -> str:
        """Return a token for a header of the form ``Basic BASE64``.

        Raises:
            UnauthenticatedError: it is not valid.
            UnavailableError: too many have failed.
        """
        user, password = _parts(header)
        try:
            token = self._given_again(user, password) or self._given_anew(user, password)
        except (UnauthenticatedError, UnavailableError) as error:
            if self._audit is not None:
                self._audit.note("", "handshake", error.code, id=user)  # who says to be that user, and is not known
            raise
        if self._audit is not None:
            self._audit.note(user, "handshake", "ok")
        return token

    def _given_again(self, user: str, password: str) -> str | None:
        given = self._of_passwords.get(_digest(password))
        if given is None or given.identity.user != user or not given.identity.is_valid:
            return None
        return given.token if given.identity.expires - self._now() > self._seconds / 2 else None

    def _given_anew(self, user: str, password: str) -> str:
        known = self._of_passwords.get(_digest(password))
        if known is None or known.identity.user != user:
            self._check_failures(user)
        try:
            whose = self._check(password)
        except UnauthenticatedError:
            self._fail(user)
            raise UnauthenticatedError(_WRONG) from None
        if whose.user != user:
            self._fail(user)
            raise UnauthenticatedError(_WRONG)
        token = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        expires = min(self._now() + self._seconds, whose.expires)
        identity = Identity(whose.user, whose.roles, expires, whose.source, proved_by=whose)
        with self._lock:
            self._forget_ended()
            self._of_tokens[_digest(token)] = identity
            self._of_passwords[_digest(password)] = _Given(token, identity)
        return token

    def _forget_ended(self) -> None:
        self._of_tokens = {digest: each for digest, each in self._of_tokens.items() if each.is_valid}
        self._of_passwords = {digest: each for digest, each in self._of_passwords.items() if each.identity.is_valid}

    def _check_failures(self, user: str) -> None:
        with self._lock:
            now = self._now()
            if not now < self._window_until <= now + _WINDOW_SECONDS:
                self._failures, self._window_until = {}, now + _WINDOW_SECONDS
            failed = self._failures.get(user, 0) >= _FAILURES_OF_USER
            if failed or sum(self._failures.values()) >= _FAILURES_OF_ALL:
                raise UnavailableError(_LIMITED, self._window_until - now)

    def _fail(self, user: str) -> None:
        with self._lock:
            self._failures[user] = self._failures.get(user, 0) + 1


class GivenToken(fl.ServerMiddleware):
    """Answers a handshake with the header that the client shows from then on."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> Mapping[str, str]:
        """Called by pyarrow."""
        return {"authorization": f"Bearer {self._token}"}


class AnyHandshake(fl.ServerAuthHandler):
    """Lets handshakes through: without one, Arrow rejects all. The middleware has decided, by the headers."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Called by pyarrow for a handshake."""

    def is_valid(self, token: bytes) -> bytes:
        """Called by pyarrow for each other call, before the middleware; ``token`` is of a header that is not used."""
        return b""


def _parts(header: str) -> tuple[str, str]:
    """Return the user and the password in a header."""
    try:
        if header[: len(_BASIC)].lower() != _BASIC:
            raise ValueError
        user, found, password = base64.b64decode(header[len(_BASIC) :].strip(), validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        raise UnauthenticatedError(_WRONG) from None
    if not found:
        raise UnauthenticatedError(_WRONG)
    return user, password


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()

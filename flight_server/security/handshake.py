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
"""In this time; then those who fail are told to wait."""
_WRONG = (
    'the handshake is not valid here: send "authorization: Basic", with the user of a token and the token as the '
    "password"
)
_LIMITED = "too many handshakes have failed; wait, or send the token itself, as a bearer token"


@dataclass(slots=True)
class _Given:
    """The newest token that was given for a password."""

    token: str
    identity: Identity
    before: bytes = b""
    """The digest of the one that was given before, which may still be used; empty: there was none."""


class Handshakes:
    """The tokens that a server has given for users and passwords. Thread safe.

    A password gets the same token again while more than half of its time is left, or as much as of its own; and at most
    two are kept of each. A right password is never refused for the wrong ones of others, who can name any user.
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
        user, password = parts_of(header)
        if (token := self._given_again(user, password)) is not None:
            return token
        try:
            token = self._given_anew(user, password)
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
        expires, proof = given.identity.expires, given.identity.proved_by
        is_last = proof is not None and expires >= proof.expires
        return given.token if is_last or expires - self._now() > self._seconds / 2 else None

    def _given_anew(self, user: str, password: str) -> str:
        try:
            whose = self._check(password)
        except UnauthenticatedError:
            raise self._failure(user) from None
        if whose.user != user:
            raise self._failure(user)
        token = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        expires = min(self._now() + self._seconds, whose.expires)
        identity = Identity(whose.user, whose.roles, expires, whose.source, whose.token_id, proved_by=whose)
        with self._lock:
            self._forget_ended()
            of_password, of_token = _digest(password), _digest(token)
            last = self._of_passwords.get(of_password)
            if last is not None and last.before:
                self._of_tokens.pop(last.before, None)
            self._of_tokens[of_token] = identity
            self._of_passwords[of_password] = _Given(token, identity, _digest(last.token) if last else b"")
        return token

    def _forget_ended(self) -> None:
        self._of_tokens = {digest: each for digest, each in self._of_tokens.items() if each.is_valid}
        self._of_passwords = {digest: each for digest, each in self._of_passwords.items() if each.identity.is_valid}

    def _failure(self, user: str) -> UnauthenticatedError | UnavailableError:
        """Count a failure for a user; return the error."""
        with self._lock:
            now = self._now()
            if not now < self._window_until <= now + _WINDOW_SECONDS:
                self._failures, self._window_until = {}, now + _WINDOW_SECONDS
            failed = self._failures.get(user, 0)
            if failed >= _FAILURES_OF_USER or sum(self._failures.values()) >= _FAILURES_OF_ALL:
                return UnavailableError(_LIMITED, self._window_until - now)
            self._failures[user] = failed + 1
            return UnauthenticatedError(_WRONG)


class GivenToken(fl.ServerMiddleware):
    """Answers the handshake of a caller with a password: sends the header that the client shows from then on."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> Mapping[str, str]:
        """Called by pyarrow."""
        return {"authorization": f"Bearer {self._token}"}


class AnyHandshake(fl.ServerAuthHandler):
    """Lets every caller's handshake through: without one, Arrow rejects all. The middleware has decided, by the
    headers."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Called by pyarrow for a handshake."""

    def is_valid(self, token: bytes) -> bytes:
        """Called by pyarrow for each other call, before the middleware; ``token`` is of a header that is not used."""
        return b""


def parts_of(header: str) -> tuple[str, str]:
    """Return the user and the password in a caller's header."""
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

"""Security: what a server is given to listen with TLS and to know its callers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...schemas.errors import InvalidArgumentError
from ...schemas.protocol.service import StoreService
from ..native.tls_credentials import ClientCertificates, TlsCredentials
from .admins import Admins
from .audit import AuditLog
from .authentication import Authentication, Tokens
from .certificates import Certificates, read_certificates
from .file_watch import FileWatch, WatchedFiles
from .guard import Guard
from .identity import Identity, Source
from .token_file import TokenEntry

if TYPE_CHECKING:
    from ..settings.settings import ServeOptions
    from .jwt_tokens import JwtTokens


class Tls:
    """The certificates of a server, and gRPC's credentials made of them."""

    def __init__(self, options: ServeOptions) -> None:
        """Raises InvalidArgumentError if a file is missing or invalid."""
        certificate, key, client_ca = options.tls_cert, options.tls_key, options.tls_client_ca
        if certificate is None or key is None:
            raise InvalidArgumentError("TLS needs both --tls-cert and --tls-key")
        self.clients = ClientCertificates.NONE
        if client_ca is not None:
            asked = options.tls_client_certs
            self.clients = ClientCertificates.OPTIONAL if asked == "optional" else ClientCertificates.REQUIRED
        try:
            self._credentials = TlsCredentials(self.clients)
        except LookupError as error:
            if self.clients is ClientCertificates.OPTIONAL:
                raise InvalidArgumentError(
                    "this version of pyarrow cannot make client certificates optional: set tls_client_certs=required"
                ) from error
            self._credentials = None
        self._read: Callable[[], Certificates] = lambda: read_certificates(certificate, key, client_ca)
        self.files = WatchedFiles("certificates", [each for each in (certificate, key, client_ca) if each], self._load)

    def _load(self) -> None:
        self._current = self._read()
        if self._credentials:
            self._credentials.replace(self._current.certificate, self._current.key, self._current.client_ca)

    @property
    def current(self) -> Certificates:
        """The certificates that are in force."""
        return self._current

    def listen(self, begin: Callable[..., None], location: str, **more: Any) -> None:
        """Begin to listen."""
        current = self._current
        more |= {"tls_certificates": [(current.certificate, current.key)]}
        if self.clients is not ClientCertificates.NONE:
            more |= {"verify_client": True, "root_certificates": current.client_ca}
        with self._credentials.listening() if self._credentials else nullcontext():
            begin(location, **more)


class Security:
    """The TLS and the authentication of one server, either of which may be missing."""

    def __init__(self, options: ServeOptions) -> None:
        """Read what the options name.

        Raises:
            StoreError: a file is missing or invalid.
        """
        self.tls = Tls(options) if options.has_tls else None
        tokens = self._tokens = Tokens(options.tokens) if options.tokens else None
        trusts_certificates = options.tls_client_ca is not None
        jwts = _jwts(options) if options.jwks else None
        has_authentication = options.has_authentication
        self._audit = _audit(options)
        self._admins = Admins(options.admins, _sources(options))
        self.authentication = None
        if has_authentication:
            seconds = _handshake_seconds(options)
            self.authentication = Authentication(tokens, jwts, trusts_certificates, seconds, self._audit)
        watched = [each.files for each in (self.tls, tokens, jwts) if each]
        self._watch = FileWatch(watched)

    def listen(self, begin: Callable[..., None], location: str, middleware: dict[str, Any] | None = None) -> None:
        """Let a server begin to listen: ``begin`` is the constructor of pyarrow's, which gets this ``middleware``."""
        more: dict[str, Any] = self.authentication.of_server if self.authentication else {}
        if middleware:
            more = {**more, "middleware": {**more.get("middleware", {}), **middleware}}
        with self.authentication.entrance.listening() if self.authentication else nullcontext():
            if self.tls:
                self.tls.listen(begin, location, **more)
            else:
                begin(location, **more)

    def guard(self, store: StoreService) -> Guard | None:
        """Return what gives each caller the store as far as grants allow; None if nobody is asked who calls."""
        return Guard(store, self._admins, self._audit) if self.authentication else None

    def token_entries(self) -> list[tuple[TokenEntry, bool]]:
        """Return what the token file says of each token, and whether its user may do everything; nothing without
        one."""
        entries = self._tokens.entries() if self._tokens else []
        return [(each, self.is_admin(Identity(each.user, frozenset(each.roles)))) for each in entries]

    def is_admin(self, identity: Identity) -> bool:
        """Whether a user may do everything, whatever a store grants."""
        return self._admins.include(identity)

    def note(self, identity: Identity, action: str, outcome: str, **more: object) -> None:
        """Tell the audit log, if there is one, what a user did to the process, and ``more`` of it."""
        if self._audit:
            self._audit.note(identity.user, action, outcome, **more)

    def load_again(self) -> None:
        """Load certificates and tokens again, changed or not."""
        self._watch.load_all()

    def close(self) -> None:
        """Let no waiting call in any more, and stop looking at the files."""
        if self.authentication:
            self.authentication.entrance.close()
        self._watch.stop()
        if self._audit:
            self._audit.close()


def _sources(options: ServeOptions) -> list[Source]:
    given = {Source.TOKEN: options.tokens, Source.JWT: options.jwks, Source.CERTIFICATE: options.tls_client_ca}
    return [source for source, value in given.items() if value]


def _jwts(options: ServeOptions) -> JwtTokens:
    from .jwt_tokens import JwtTokens

    assert options.jwks is not None
    if not options.jwt_issuer or not options.jwt_audience:
        raise InvalidArgumentError(
            "JWTs need jwt_issuer and jwt_audience, so that tokens for other services are rejected"
        )
    return JwtTokens(options.jwks, options.jwt_issuer, options.jwt_audience, options.jwt_algorithms)


def _handshake_seconds(options: ServeOptions) -> int:
    if options.handshake_seconds and not (options.tokens or options.jwks):
        raise InvalidArgumentError(
            "handshake_seconds needs tokens or jwks, since the password of a handshake is a token"
        )
    if options.handshake_seconds and options.tls_client_ca:
        raise InvalidArgumentError(
            "handshake_seconds cannot be combined with tls_client_ca: with handshakes, Arrow does not report "
            "the client certificate; leave one of them out, or run two servers"
        )
    return options.handshake_seconds


def _audit(options: ServeOptions) -> AuditLog | None:
    if not options.has_authentication and (options.audit_log or options.admins):
        raise InvalidArgumentError("audit_log and admins need authentication: tokens, jwks or tls_client_ca")
    if options.audit_log is None:
        return None
    return AuditLog(options.audit_log, options.audit_log_bytes, options.audit_log_files)

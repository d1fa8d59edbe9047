"""Credentials: how a client shows a server who it is, and knows that it talks to the right one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError
from . import transport
from .token import Token

ClientCert = tuple[str | Path, str | Path] | str | Path
"""The PEM files of a client certificate and its key; or one file with both."""

TLS = "grpc+tls"
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The token of a Flight client in a file, read again for every call, so that it can be replaced."""

    path: Path

    def __call__(self) -> str:
        """Return the token. Raises InvalidArgumentError if the file cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidArgumentError(f"the token file {self.path} cannot be read: {why}") from None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that a Flight client shows a server. Its text has no secret, and it may be sent to other
    processes."""

    token: Token | None = field(default=None, repr=False)
    tls_roots: Path | None = None
    """The roots of server certificates, in PEM; None: those of the system."""
    client_cert: Path | None = None
    client_key: Path | None = None
    traces: bool = False
    """Whether requests take the caller's trace of OpenTelemetry along."""

    @property
    def is_secret(self) -> bool:
        """Whether there is something to show that others must not see."""
        return self.token is not None or self.client_cert is not None

    @classmethod
    def of(
        cls,
        token: Token | None = None,
        tls_roots: str | Path | None = None,
        client_cert: ClientCert | None = None,
        traces: bool = False,
    ) -> Credentials:
        """Return the credentials given, and for those that are None the environment's: ``NYALA_TOKEN``,
        ``NYALA_TOKEN_FILE``, ``NYALA_TLS_ROOTS``, ``NYALA_CLIENT_CERT`` and ``NYALA_CLIENT_KEY``."""
        found = of_environment(os.environ)
        if client_cert is None:
            certificate, key = found.client_cert, found.client_key
        elif isinstance(client_cert, tuple):
            certificate, key = (Path(each) for each in client_cert)
        else:
            certificate = key = Path(client_cert)
        roots = found.tls_roots if tls_roots is None else Path(tls_roots)
        return cls(found.token if token is None else token, roots, certificate, key, traces)

    def connect(self, url: str, options: list[tuple[str, Any]]) -> fl.FlightClient:
        """Return a client of pyarrow's, or one like it that shows the token and the caller's trace.

        Raises:
            InvalidArgumentError: a file cannot be read; or without TLS the token would be sent in clear, or the client
                certificate not at all; or the package for traces is missing.
            ArrowException, ValueError, TypeError: the URL is invalid.
        """
        scheme = str(url).partition("://")[0]
        more = self._tls() if scheme == TLS else {}
        transport.prepare()
        client = fl.connect(url, generic_options=options, **more)
        try:
            if self.is_secret:
                self._check_hidden(url, scheme)
            return self._with_headers(client)
        except InvalidArgumentError:
            client.close()
            raise

    def _check_hidden(self, url: str, scheme: str) -> None:
        from urllib.parse import urlsplit

        if scheme in (TLS, "grpc+unix") or urlsplit(url).hostname in _HERE:
            return
        wrong, what = "present no client certificate, and be unencrypted", "certificate"
        if self.token is not None:
            wrong, what = "send the token unencrypted", "token"
        raise InvalidArgumentError(f"the connection to {url} would {wrong}: use {TLS}://, or give no {what}")

    def _with_headers(self, client: fl.FlightClient) -> fl.FlightClient:
        if self.token is None and not self.traces:
            return client
        from .header_client import HeaderClient

        traceparent = _traceparent() if self.traces else None
        return HeaderClient(client, self.token, traceparent)  # pyright: ignore[reportReturnType]

    def _tls(self) -> dict[str, Any]:
        found: dict[str, Any] = {"tls_root_certs": _system_roots() if self.tls_roots is None else _pem(self.tls_roots)}
        if self.client_cert is not None:
            if self.client_key is None:
                raise InvalidArgumentError("a client certificate needs its key: client_cert=(cert, key)")
            found |= {"cert_chain": _pem(self.client_cert), "private_key": _pem(self.client_key)}
        return found


def of_environment(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of a Flight client that environment variables give."""

    def path(name: str) -> Path | None:
        return Path(value) if (value := environment.get(name)) else None

    file = path("NYALA_TOKEN_FILE")
    token = environment.get("NYALA_TOKEN") or (TokenFile(file) if file else None)
    certificate = path("NYALA_CLIENT_CERT")
    return Credentials(token, path("NYALA_TLS_ROOTS"), certificate, path("NYALA_CLIENT_KEY") or certificate)


def _traceparent() -> Callable[[], str]:
    try:
        from .caller_trace import traceparent
    except ModuleNotFoundError:
        raise InvalidArgumentError("traces need the package opentelemetry-api: pip install 'nyala[otel]'") from None
    return traceparent


def _pem(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise InvalidArgumentError(f"{path} is not PEM")
    return content


def _system_roots() -> bytes | None:
    """Return the roots of the system, since gRPC would take those that it was built with."""
    import ssl

    paths = ssl.get_default_verify_paths()
    return _pem(Path(paths.cafile)) if paths.cafile else None

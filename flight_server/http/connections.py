"""Connections of the HTTP port: their certificates, and who is at the other end."""

from __future__ import annotations

import asyncio
import os
import ssl
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ..native.tls_credentials import ClientCertificates
from ..security.authentication import UNNAMED
from ..security.certificates import Certificates
from ..security.security import Tls

CERTIFICATE_NAME = "certificate_name"
"""What the state of a request calls the name in the client's certificate; None if there is none."""
CONNECTIONS_MAX = 128
HANDSHAKE_SECONDS = 10.0
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 60.0


class HttpConnection(H11Protocol):
    """One connection to the HTTP port. Anyone may connect, so each has a time for the next request, and for each
    answer. If there are too many, the one that is the longest without a request makes room, or that which waits the
    longest for its answer: one that comes with its request at once, as a check of health does, is always served."""

    _end: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFICATE_NAME: name_in(transport.get_extra_info("peercert"))}
        self._end = self.loop.call_later(_REQUEST_SECONDS, transport.abort)
        others = [each for each in self.connections if isinstance(each, HttpConnection) and each is not self]
        if len(others) >= CONNECTIONS_MAX:
            last = min(others, key=lambda each: (each._is_answering(), each._end.when()))
            self.connections.discard(last)
            last.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._end.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """See H11Protocol. Bytes alone do not gain time: a request does, when its head is complete."""
        last = self.cycle
        super().handle_events()
        if self.cycle is not last and self._is_answering():
            self._allow(_ANSWER_SECONDS)

    def on_response_complete(self) -> None:
        """See H11Protocol. The answer may still be on its way, and is cut off with the connection."""
        self._allow(_REQUEST_SECONDS)
        super().on_response_complete()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _allow(self, seconds: float) -> None:
        self._end.cancel()
        self._end = self.loop.call_later(seconds, self.transport.abort)


def name_in(certificate: dict[str, Any] | None) -> str | None:
    """Return the user in the certificate of an HTTP client, as Arrow's server names it: the first alternative name,
    ``UNNAMED`` if it is of a kind that gRPC does not tell, or the common name; None if there is neither."""
    if not certificate:
        return None
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            return _address(value)
        return value if kind in ("DNS", "URI", "email") else UNNAMED
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for kind, value in subject if kind == "commonName"), None)


def _address(text: str) -> str:
    """Return an address as gRPC writes it."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return UNNAMED
    return inet_ntop(AF_INET6 if address.version == 6 else AF_INET, address.packed)


class CurrentCertificates(ssl.SSLContext):
    """Gives each new connection to the HTTP port the certificates that are in force when it begins."""

    _tls: Tls
    _known: tuple[Certificates, ssl.SSLContext]

    @classmethod
    def of(cls, tls: Tls) -> CurrentCertificates:
        """Return what follows the certificates of a server."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._tls = tls
        context._known = tls.current, _context(tls.current, tls.clients)
        return context

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """See ssl.SSLContext. asyncio calls it for each connection, on one thread."""
        certificates = self._tls.current
        if self._known[0] is not certificates:
            self._known = certificates, _context(certificates, self._tls.clients)
        return self._known[1].wrap_bio(*arguments, **named)


def _context(certificates: Certificates, clients: ClientCertificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # What was checked is what is used, and OpenSSL takes it from files alone: from one in memory, without a name.
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with open(memory, "wb") as file:
        file.write(certificates.certificate + b"\n" + certificates.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    if certificates.client_ca is not None:
        context.load_verify_locations(cadata=certificates.client_ca.decode("ascii"))
        is_optional = clients is ClientCertificates.OPTIONAL
        context.verify_mode = ssl.CERT_OPTIONAL if is_optional else ssl.CERT_REQUIRED
    return context

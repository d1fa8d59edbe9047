"""The certificate of a server, its key, and the authority whose clients it trusts: read and checked before use."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...engine.fs.private_file import read_private
from ...schemas.errors import InvalidArgumentError

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of a server, and the authority whose clients it trusts, in PEM."""

    certificate: bytes
    """The server's own, followed by those between it and a root."""
    key: bytes = field(repr=False)
    client_ca: bytes | None = None
    """The roots of client certificates; None: clients need none."""


def read_certificates(certificate: Path, key: Path, client_ca: Path | None) -> Certificates:
    """Read and check the certificates of a server.

    Raises:
        InvalidArgumentError: one cannot be read or is not PEM, others can read the key, or it is not that of the
            certificate; the message names the file.
    """
    found = Certificates(
        _blocks(_read(certificate)), _read(key, read_private), _blocks(_read(client_ca)) if client_ca else None
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"{certificate} and {key} are not a certificate and its key: {_why(error)}"
        ) from None
    try:
        _shake_hands(context, found.certificate)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgumentError(f"clients would reject the certificate {certificate}: {_why(error)}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise InvalidArgumentError(f"{client_ca} is not a certificate in PEM: {_why(error)}") from None
    return found


def _shake_hands(server: ssl.SSLContext, certificate: bytes) -> None:
    """Make a connection in memory, as a client that trusts this certificate: rejected if expired or not for servers."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata=certificate.decode("ascii"))
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(here, there), server.wrap_bio(there, here, server_side=True)
    for side in (*sides, *sides):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def _read(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    try:
        return read(path)
    except FileNotFoundError:
        raise InvalidArgumentError(f"there is no file {path}; put it there, or mount it into the container") from None
    except OSError as error:
        why = f"{path} cannot be read by the user {os.geteuid()}: {error.strerror}"
        raise InvalidArgumentError(why) from None


def _blocks(pem: bytes) -> bytes:
    """Return the certificates without the words around them, which may be in any encoding."""
    return b"\n".join(match.group() for match in _BLOCK.finditer(pem)) + b"\n"


def _no_password() -> str:
    """Reject an encrypted key: without this function, OpenSSL would ask for its password on the terminal."""
    raise ValueError("the key is encrypted; give an unencrypted key, in a file that only the server can read")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    reason = getattr(error, "reason", None)
    if reason:
        return reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)

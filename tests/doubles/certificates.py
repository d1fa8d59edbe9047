"""An authority that issues certificates for tests, as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

UNNAMED = (
    x509.OtherName(x509.ObjectIdentifier("1.3.6.1.4.1.311.20.2.3"), b"\x0c\x05alice"),  # a UPN of Active Directory
    x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])),
    x509.RegisteredID(x509.ObjectIdentifier("1.2.3.4")),
)
"""Alternative names that name no user: gRPC tells a server nothing of them."""
NAMES: tuple[tuple[x509.GeneralName, str], ...] = (
    (x509.DNSName("alice.example.org"), "alice.example.org"),
    (x509.UniformResourceIdentifier("spiffe://example.org/alice"), "spiffe://example.org/alice"),
    (x509.RFC822Name("alice@example.org"), "alice@example.org"),
    (x509.IPAddress(ipaddress.ip_address("10.1.2.3")), "10.1.2.3"),
    (x509.IPAddress(ipaddress.ip_address("2001:db8::a:0:0:1")), "2001:db8::a:0:0:1"),
    (x509.IPAddress(ipaddress.ip_address("::ffff:10.1.2.3")), "::ffff:10.1.2.3"),
)
"""Alternative names, and the users that they name."""
_HERE: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a folder; ``roots`` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        own = _builder(self._name, self._name, self._key, 1).add_extension(constraints, critical=True)
        self.roots = folder / f"{name}.pem"
        self.roots.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", days: float = 1, into: Pair | None = None) -> Pair:
        """Issue a certificate for servers on this machine; ``into`` existing files, which are replaced."""
        return self._issue(name, x509.SubjectAlternativeName(_HERE), ExtendedKeyUsageOID.SERVER_AUTH, days, into)

    def client(self, user: str, days: float = 1, names: Sequence[x509.GeneralName] = ()) -> Pair:
        """Issue a certificate that names a user, by its common name, and by alternative ``names``."""
        alternatives = x509.SubjectAlternativeName(names) if names else None
        return self._issue(user, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, days, None)

    def _issue(
        self,
        name: str,
        names: x509.SubjectAlternativeName | None,
        usage: x509.ObjectIdentifier,
        days: float,
        into: Pair | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key, days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        pair = into or Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.touch(0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now + dt.timedelta(days=days))
    )

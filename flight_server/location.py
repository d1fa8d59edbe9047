"""Parses and checks the address that a server listens on: ``grpc://host:port``."""

from __future__ import annotations

import errno
import ipaddress
import socket
from urllib.parse import urlsplit

from ..schemas.errors import InvalidArgumentError, UnavailableError

_TCP = ("grpc", "grpc+tcp")
_UNIX = "grpc+unix"
DEFAULT_LOCATION = "grpc://127.0.0.1:8815"


def check_location(location: str, insecure: bool) -> None:
    """Reject an address that a server cannot, or should not, listen on.

    Raises:
        InvalidArgumentError: the location is invalid; or, without ``insecure``, other machines can reach it: there is
            no TLS or authentication yet.
    """
    parts = urlsplit(location)
    if parts.scheme == _UNIX and parts.path:
        return
    host, port = _host_and_port(location)
    if host is None or port is None or parts.scheme not in _TCP:
        raise InvalidArgumentError(
            f"invalid location {location!r}; use one such as {DEFAULT_LOCATION} (port 0: any) or grpc+unix:///path"
        )
    if not insecure and not _is_loopback(host):
        raise InvalidArgumentError(
            f"other machines can reach {host}, and this version has neither TLS nor authentication: "
            "listen on 127.0.0.1, or pass --insecure on a trusted network"
        )


def check_free(location: str) -> None:
    """Check that a port is free, before opening a store for it, and with a clearer error than gRPC's.

    Raises:
        UnavailableError: the port is in use.
    """
    host, port = _host_and_port(location)
    if host is None or not port or urlsplit(location).scheme == _UNIX:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        why = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise UnavailableError(f"cannot listen on {location}: {why}; choose another with --listen") from None


def bound_location(location: str, port: int) -> str:
    """Return ``location`` with the port that was bound."""
    parts = urlsplit(location)
    if parts.scheme == _UNIX:
        return location
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _host_and_port(location: str) -> tuple[str | None, int | None]:
    parts = urlsplit(location)
    try:
        return parts.hostname, parts.port
    except ValueError:
        return parts.hostname, None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

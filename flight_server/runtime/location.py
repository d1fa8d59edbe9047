"""Parses and checks the address that a server listens on: ``grpc://host:port``."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.store.locations import DEFAULT_LOCATION

_TCP = ("grpc", "grpc+tcp")
_TLS = "grpc+tls"
_UNIX = "grpc+unix"
_ANY = ("0.0.0.0", "::")


def with_tls(location: str) -> str:
    """Return the location of a server that has a certificate: ``grpc://`` then means ``grpc+tls://``. A Unix socket
    stays one; it has no TLS.

    Raises:
        InvalidArgumentError: the location is one without TLS.
    """
    scheme, _, rest = location.partition("://")
    if scheme == _UNIX:
        return location
    if scheme not in ("grpc", _TLS):
        raise InvalidArgumentError(f"{location} has no TLS, but --tls-cert is given: use grpc+tls://host:port")
    return f"{_TLS}://{rest}"


def check_location(location: str, insecure: bool, has_tls: bool = False, has_authentication: bool = False) -> None:
    """Reject an address that a server's process cannot, or should not, listen on.

    Raises:
        InvalidArgumentError: the location is invalid; or, without ``insecure``, other machines can reach it, and the
            server lacks TLS or authentication.
    """
    parts = urlsplit(location)
    if parts.scheme == _UNIX and parts.path:
        return
    host, port = _host_and_port(location)
    if parts.scheme == _TLS and not has_tls:
        raise InvalidArgumentError(f"{location} needs a certificate: give --tls-cert and --tls-key")
    if host is None or port is None or parts.scheme not in (*_TCP, _TLS):
        raise InvalidArgumentError(
            f"invalid location {location!r}; use one such as {DEFAULT_LOCATION} (port 0: any) or grpc+unix:///path"
        )
    check_reach(host, insecure, has_tls, has_authentication)


def check_reach(host: str, insecure: bool, has_tls: bool, has_authentication: bool) -> None:
    """Reject an address that other machines can reach if the server lacks TLS or authentication, unless ``insecure``.

    Raises:
        InvalidArgumentError: that is so.
    """
    lacking = [
        what
        for what, has in (
            ("TLS (--tls-cert, --tls-key)", has_tls),
            ("authentication (--tokens, jwks or --tls-client-ca)", has_authentication),
        )
        if not has
    ]
    if lacking and not insecure and not is_loopback(host):
        raise InvalidArgumentError(
            f"other machines can reach {host}, but the server lacks {' and '.join(lacking)}: add what is missing, "
            "listen on 127.0.0.1, or pass --insecure on a trusted network"
        )


def advertised(location: str, has_tls: bool) -> str:
    """Return a location that others are to tell clients, as ``with_tls`` makes it if the server has TLS.

    Raises:
        InvalidArgumentError: clients cannot call it.
    """
    parts = urlsplit(location)
    host, port = _host_and_port(location)
    is_socket = parts.scheme == _UNIX and parts.path
    if not is_socket and (parts.scheme not in (*_TCP, _TLS) or not host or not port):
        raise InvalidArgumentError(f"invalid location {location!r} in --advertise; use one such as grpc://m1:8815")
    return with_tls(location) if has_tls else location


def check_free(location: str) -> None:
    """Check that nobody listens on an address, before opening a store for it, and with a clearer error than gRPC's.

    Raises:
        UnavailableError: somebody does, or it is none of this machine's.
    """
    parts = urlsplit(location)
    host, port = _host_and_port(location)
    try:
        if parts.scheme == _UNIX:
            _check_unused(parts.path)
        elif host is not None and port:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        raise cannot_listen(location, error, "--listen") from None


def _check_unused(path: str) -> None:
    """Raise OSError if a server listens on a Unix socket: gRPC would take the path from it, and leave it running."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # more clients wait for it than it takes
            pass
        except OSError:
            return  # there is none, or a server left it behind
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def cannot_listen(where: str, error: OSError, option: str) -> UnavailableError:
    """Return the error for an address that cannot be listened on; ``option`` chooses another."""
    what = "socket" if where.startswith(_UNIX) else "port"
    why = f"the {what} is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
    return UnavailableError(f"cannot listen on {where}: {why}; choose another with {option}")


def bound_location(location: str, port: int) -> str:
    """Return ``location`` with the port that was bound."""
    parts = urlsplit(location)
    if parts.scheme == _UNIX:
        return location
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def reachable(location: str) -> str:
    """Return a bound location as other machines may call it: with this machine's name in place of any address."""
    parts = urlsplit(location)
    if parts.hostname not in _ANY:
        return location
    return f"{parts.scheme}://{socket.gethostname()}:{parts.port}"


def counted_up(given: Sequence[str], count: int, option: str) -> list[str]:
    """Return an address to listen on for each of ``count`` processes: those that ``option`` gave, or if it is one, that
    one and the ports after its; port 0 stays 0.

    Raises:
        InvalidArgumentError: it gave another number, or there are no such ports.
    """
    if len(given) == count:
        return [*given]
    if len(given) != 1:
        raise InvalidArgumentError(
            f"give {option} once for each --name, or only once: the ports are then counted up from its port"
        )
    port = _host_and_port(given[0])[1]
    if port is None or port + count > 65536:
        raise InvalidArgumentError(f"ports cannot be counted up from {given[0]}: give {option} once for each --name")
    return [bound_location(given[0], port and port + at) for at in range(count)]


def _host_and_port(location: str) -> tuple[str | None, int | None]:
    parts = urlsplit(location)
    try:
        return parts.hostname, parts.port
    except ValueError:
        return parts.hostname, None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

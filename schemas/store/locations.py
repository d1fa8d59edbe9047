"""Locations: the addresses of the processes that can have one store, of which one has it.

As text they stand between commas, and one without a scheme takes that of the one before: ``grpc://m1:8815,m2:8815``. So
do sockets: ``grpc+unix:///run/a.sock,/run/b.sock``. A host and port alone, ``m1:8815``, mean ``grpc://``. In Python and
in a placement they may also be a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import InvalidArgumentError

DEFAULT_LOCATION = "grpc://127.0.0.1:8815"
"""Where a server listens, and a client looks for one, if nothing else is given."""
_UNIX = "grpc+unix"
_TLS = "grpc+tls"
_OF_WEB = {"http": "grpc", "https": _TLS}
"""The schemes of web pages, and those of Flight in their place."""
_PORT = re.compile(r":\d*$")
_HOST_AND_PORT = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


def locations_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return each location of a store once, whole, in the order given.

    Raises:
        InvalidArgumentError: there is none, one is empty, or has a user or a password.
    """
    found: list[str] = []
    scheme = ""
    for text in (given,) if isinstance(given, str) else given:
        for piece in str(text).split(","):
            name, mark, _ = piece.strip().partition("://")
            if mark:
                scheme = name
                found.append(piece.strip())
            elif not piece.strip():
                raise InvalidArgumentError("a location between commas is empty")
            elif scheme == _UNIX and not piece.strip().startswith("/"):
                found[-1] += f",{piece}"  # the name of a socket may have a comma
            else:
                if _HOST_AND_PORT.fullmatch(piece.strip()):
                    scheme = scheme or "grpc"
                found.append(f"{scheme}://{piece.strip()}" if scheme else piece.strip())
    secret = next((each for each in found if "@" in each and not each.startswith(_UNIX)), None)
    if secret is not None:
        host = secret.rpartition("@")[2]
        raise InvalidArgumentError(f"the location of {host} must not contain credentials: give a token instead")
    if not found:
        raise InvalidArgumentError("give the location of a server, such as grpc://127.0.0.1:8815")
    return tuple(dict.fromkeys(found))


def check_servers(locations: Iterable[str]) -> None:
    """Check that each location of a store names a server by host and port, as far as a look at it tells.

    Raises:
        InvalidArgumentError: the scheme is that of web pages; the host is missing; or the port, without which gRPC
            takes that of HTTPS. The message says what to write.
    """
    for location in locations:
        scheme, mark, place = location.partition("://")
        place = place.rstrip("/")
        if scheme not in _OF_WEB and scheme not in _OF_WEB.values():
            continue
        host, _, port = place.rpartition(":") if _PORT.search(place) else (place, "", "")
        whole = f"{_OF_WEB.get(scheme, scheme)}://{host or '127.0.0.1'}:{port or 8815}"
        if scheme in _OF_WEB:
            raise InvalidArgumentError(f"the URL {location} is the URL of a web page: give {whole}")
        if mark and not host:
            raise InvalidArgumentError(f"the URL {location} has no host: give it, as in {whole}")
        if mark and not port and scheme != _TLS:
            raise InvalidArgumentError(f"the URL {location} has no port: add it, as in {whole}")


def joined(locations: Iterable[str]) -> str:
    """Return the locations of a store as one text, which ``locations_of`` reads."""
    return ",".join(locations)

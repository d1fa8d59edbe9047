"""Who is at the other end of a call, as far as an address tells."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Peer:
    """``connection`` is one TCP connection, which one client has; ``address`` one machine. Both are empty where they
    would say nothing: all clients on this machine have one address, and over a Unix socket one connection too."""

    connection: str
    address: str


@lru_cache(1024)
def peer_of(text: str) -> Peer:
    """Return the peer that gRPC writes as ``ipv4:10.0.0.7:5000``, ``ipv6:%5B::1%5D:5000`` or ``unix:``."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port:
        return Peer("", "")
    host = host.strip("[]").partition("%")[0].removeprefix("::ffff:")
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        return Peer(rest, "")
    return Peer(rest, "" if is_here else host)

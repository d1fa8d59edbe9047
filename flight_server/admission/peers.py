"""Identifies the client of a call, as far as its address allows."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a call, by whose limits admission counts it: ``connection`` is one TCP connection, of one client;
    ``address`` is one machine. Both are empty if they would not distinguish clients: those on this machine share an
    address, and over a Unix socket also a connection."""

    connection: str
    address: str
    user: str = ""
    """Who calls; empty if the server does not ask."""
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Connection and address, or one if they are equal; and ``user_name``."""

    def __post_init__(self) -> None:
        user = (self.user_name,) if self.user else ()
        object.__setattr__(self, "names", (*{self.connection, self.address}, *user))

    @property
    def user_name(self) -> str:
        """The user, as no connection or address is written."""
        return f"user {self.user}"


@lru_cache(1024)
def peer_of(text: str, user: str = "") -> Peer:
    """Return the client by which admission counts a call: the peer that gRPC writes as ``ipv4:10.0.0.7:5000``,
    ``ipv6:%5B::1%5D:5000`` or ``unix:``."""
    kind, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port:
        return Peer("", "", user)
    host = host.strip("[]").partition("%")[0].removeprefix("::ffff:")
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        return Peer(rest, "", user)
    return Peer(rest, "" if is_here else host, user)

"""Ends one call from the server's side, wherever it is stuck: in a read, or in a write that nobody takes.

pyarrow cannot do this; gRPC has ``grpc_call_cancel_with_status``.

A Python ``ServerCallContext`` ends with the pointer to Arrow's context, which has a pointer to gRPC's context and then
the peer as a string. That string is compared with the peer in Python before anything else is trusted. If the symbol or
the layout differs, the client's whole connection is shut down instead.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import unquote

import pyarrow.flight as fl

from .library import ANCHOR, Library, arrow_library, word_at

_LOG = logging.getLogger("nyala.flight_server")
_CANCEL = "grpc_call_cancel_with_status"
UNAVAILABLE, UNAUTHENTICATED = 14, 16
_GRPC_CONTEXT, _PEER, _PEER_SIZE = 8, 16, 24
"""Offsets in Arrow's context: the pointer to gRPC's, and the peer's text and size."""
_GRPC_CALL = 8
"""Offset in gRPC's context: the pointer to the call."""


def end_call(context: fl.ServerCallContext, message: str, status: int = UNAVAILABLE) -> None:
    """End a running call by gRPC's C library: its client gets a status of gRPC and ``message``, its handler the end of
    the stream.

    The caller makes sure that the call's handler, or its stream, has not returned.
    """
    cancel = _cancel()
    call = _call_of(context) if cancel else 0
    if cancel and call:
        cancel(call, status, message.encode(), None)
    else:
        _shut_connection(context.peer())


@cache
def _cancel() -> Any:
    """Return gRPC's function, or None if the library does not export it."""
    try:
        address = Library(arrow_library("libarrow_flight"), ANCHOR).address(_CANCEL)
    except (LookupError, OSError) as error:
        _LOG.warning("with this version of pyarrow, stuck streams end only with their connections: %s", error)
        return None
    types = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)


def _call_of(context: fl.ServerCallContext) -> int:
    """Return the address of gRPC's call; 0 if the objects are not laid out as expected."""
    arrow_context = word_at(id(context) + type(context).__basicsize__ - 8)
    peer = context.peer().encode()
    if word_at(arrow_context + _PEER_SIZE) != len(peer):
        return 0
    if ctypes.string_at(word_at(arrow_context + _PEER), len(peer)) != peer:
        return 0
    return word_at(word_at(arrow_context + _GRPC_CONTEXT) + _GRPC_CALL)


def _shut_connection(peer: str) -> None:
    """Shut down the connection from ``peer``, in gRPC's notation, if it is a TCP connection of this process."""
    kind, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if kind not in ("ipv4", "ipv6"):
        return
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                there = connection.getpeername()
                if isinstance(there, tuple) and there[:2] == (host.strip("[]"), int(port)):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

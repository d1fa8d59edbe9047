"""Ending one call from the server's side, wherever it is stuck: in a read, or in a write that nobody takes.

pyarrow has no way; gRPC has ``grpc_call_cancel_with_status``.

A ``ServerCallContext`` of Python ends with the pointer to Arrow's, which has a pointer to gRPC's context and then the
peer as a string; that string is compared with what Python says before anything is believed. Where the symbol or the
layout is another, the client's whole connection is shut instead.
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

from .library import Library, arrow_library, word_at

_LOG = logging.getLogger("nyala.flight_server")
_ANCHOR = "_ZN5arrow6flight8internal10FlightData11OpenMessageEv"
_CANCEL = "grpc_call_cancel_with_status"
_UNAVAILABLE = 14
_GRPC_CONTEXT, _PEER, _PEER_SIZE = 8, 16, 24
"""Of Arrow's context: the pointer to gRPC's, and the text and size of the peer."""
_GRPC_CALL = 8
"""Of gRPC's context: the pointer to the call."""


def end_call(context: fl.ServerCallContext, message: str) -> None:
    """End a running call; its client is told UNAVAILABLE and ``message``, its handler that the stream is over.

    Only for a call whose handler, or stream, has not returned: the caller sees to that.
    """
    cancel = _cancel()
    call = _call_of(context) if cancel else 0
    if cancel and call:
        cancel(call, _UNAVAILABLE, message.encode(), None)
    else:
        _shut_connection(context.peer())


@cache
def _cancel() -> Any:
    """Return gRPC's function, None where the library does not tell where it is."""
    try:
        address = Library(arrow_library("libarrow_flight"), _ANCHOR).address(_CANCEL)
    except (LookupError, OSError) as error:
        _LOG.warning("with this pyarrow, stuck streams end only with their connections: %s", error)
        return None
    types = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(address)


def _call_of(context: fl.ServerCallContext) -> int:
    """Return the address of gRPC's call; 0 where the objects are not laid out as expected."""
    arrow_context = word_at(id(context) + type(context).__basicsize__ - 8)
    peer = context.peer().encode()
    if word_at(arrow_context + _PEER_SIZE) != len(peer):
        return 0
    if ctypes.string_at(word_at(arrow_context + _PEER), len(peer)) != peer:
        return 0
    return word_at(word_at(arrow_context + _GRPC_CONTEXT) + _GRPC_CALL)


def _shut_connection(peer: str) -> None:
    """Shut the connection from ``peer``, as gRPC writes addresses, if it is a TCP connection of this process."""
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

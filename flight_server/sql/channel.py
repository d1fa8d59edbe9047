"""Channel: frames over a socket between the server and a child process that runs statements.

A frame is a letter, the length of its body as four bytes, and the body. A request is a frame of JSON, and one of
parameters if it has any. An answer is a schema, any number of batches, and in the end JSON: of what was done, or of an
error.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

_HEAD = struct.Struct(">cI")


class FrameKind(bytes, Enum):
    """The kind of a frame on the channel to a child process that runs statements: what its body is."""

    REQUEST = b"Q"
    """JSON: what to do."""
    PARAMETERS = b"P"
    """A stream of Arrow IPC: the parameters of the request before it, a row for each run."""
    SCHEMA = b"S"
    """Of the batches that follow, as Arrow IPC."""
    BATCH = b"B"
    """A record batch, as Arrow IPC."""
    TURN = b"T"
    """JSON with ``table``: the statement asks for the turn on a table. The server answers with the request ``turn``."""
    END = b"E"
    """JSON: the statement has ended."""
    FAILURE = b"F"
    """JSON with ``code`` and ``message``: it has failed."""


class ChannelFrame(NamedTuple):
    """One frame on the channel to a child process that runs statements."""

    kind: FrameKind
    body: pa.Buffer

    def json(self) -> dict[str, Any]:
        """Return the body as JSON."""
        return json.loads(self.body.to_pybytes())


class ChannelClosedError(Exception):
    """The process at the other end of a channel for SQL statements is gone."""


class Channel:
    """One end of the socket between the server and a child process that runs SQL statements. One thread may send while
    another receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, kind: FrameKind, body: bytes | pa.Buffer) -> None:
        """Send a frame. Raises ChannelClosedError if nobody receives."""
        view = memoryview(body)
        try:
            if len(view) < 4096:
                self._socket.sendall(_HEAD.pack(kind.value, len(view)) + view)
            else:
                self._socket.sendall(_HEAD.pack(kind.value, len(view)))
                self._socket.sendall(view)
        except OSError:
            raise ChannelClosedError from None

    def send_json(self, kind: FrameKind, **body: Any) -> None:
        """Send a frame of JSON. Raises ChannelClosedError if nobody receives."""
        self.send(kind, json.dumps(body).encode())

    def has_frame(self, seconds: float) -> bool:
        """Wait for a frame, or for the end of the other process, and return whether there is one."""
        return bool(self._poll.poll(max(seconds, 0.0) * 1000))

    def receive(self) -> ChannelFrame:
        """Return the next frame. Raises ChannelClosedError at the end."""
        kind, size = _HEAD.unpack(self._exactly(_HEAD.size))
        return ChannelFrame(FrameKind(kind), self._exactly(size))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exactly(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer)
        place = 0
        while place < size:
            try:
                count = self._socket.recv_into(view[place:])
            except OSError:
                raise ChannelClosedError from None
            if not count:
                raise ChannelClosedError
            place += count
        return buffer

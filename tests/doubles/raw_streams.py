"""Streams of Flight by raw HTTP/2 (RFC 9113): thousands cost a client nothing, and need not behave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping

_HEADERS, _RESET, _SETTINGS = 1, 3, 4
_END_HEADERS, _END_STREAM, _ACKNOWLEDGED = 4, 1, 1


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """Return a frame."""
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def head_of(method: str, more: Mapping[str, str]) -> bytes:
    """Return the headers of a call of Flight: literals, not indexed (RFC 7541)."""
    path = f"/arrow.flight.protocol.FlightService/{method}"
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    headers |= {"te": "trailers", "content-type": "application/grpc", **more}
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers.items())


def _text(text: str) -> bytes:
    content = text.encode()
    size = len(content)
    assert size < 127 + 128, "a length of one or two bytes"
    return (bytes([size]) if size < 127 else bytes([127, size - 127])) + content


class RawStreams:
    """One connection with streams. What comes is read by a thread."""

    def __init__(self, port: int, method: str, count: int, headers: Mapping[str, str] | None = None) -> None:
        """Open streams that send their headers and nothing else."""
        self.received = b""
        self.ended: set[int] = set()
        """The streams that the server has ended, by an answer."""
        self.reset: set[int] = set()
        """Those that it has refused as too many."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.settimeout(None)
        self._next = 1
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()
        self.open(method, count, headers or {})

    def open(self, method: str, count: int, headers: Mapping[str, str]) -> None:
        """Open more streams."""
        head = head_of(method, headers)
        numbers = range(self._next, self._next + 2 * count, 2)
        self._next = numbers.stop
        self._socket.sendall(b"".join(frame(_HEADERS, _END_HEADERS, number, head) for number in numbers))

    def wait_for(self, is_there: Callable[[RawStreams], bool], seconds: float = 20.0) -> None:
        """Return once something has come."""
        deadline = time.monotonic() + seconds
        while not is_there(self):
            assert time.monotonic() < deadline, (len(self.ended), len(self.reset), self.received[-2_000:])
            time.sleep(0.005)

    def close(self) -> None:
        """Close the connection."""
        with self._socket:
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        unread = b""
        try:
            while piece := self._socket.recv(1 << 16):
                self.received += piece
                unread += piece
                while len(unread) >= 9 and len(unread) >= 9 + int.from_bytes(unread[:3], "big"):
                    end = 9 + int.from_bytes(unread[:3], "big")
                    self._take(unread[3], unread[4], int.from_bytes(unread[5:9], "big"))
                    unread = unread[end:]
        except OSError:
            pass

    def _take(self, kind: int, flags: int, stream: int) -> None:
        if kind == _HEADERS and flags & _END_STREAM:
            self.ended.add(stream)
        elif kind == _RESET and stream not in self.ended:
            self.reset.add(stream)
        elif kind == _SETTINGS and not flags & _ACKNOWLEDGED:
            self._socket.sendall(frame(_SETTINGS, _ACKNOWLEDGED, 0))

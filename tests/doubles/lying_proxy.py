"""An HTTP proxy that lies as networks, balancers and stores do, in front of a server that plays S3.

It answers 500 before or after the effect, loses answers, doubles requests, lets them arrive after the client has given
up, answers 409 though nothing happened, cuts bodies short, and is slow. What it does to a request is drawn from a seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from .loop_server import LoopServer

_AWAY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"
_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
_CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"
_HEAD_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Odds:
    """How probable each lie is, for each request that it fits; the rest is passed on truly."""

    error_before: float = 0.03
    slow: float = 0.03
    answer_lost: float = 0.04
    """This and the next four befall PUT, POST and DELETE only."""
    error_after: float = 0.04
    doubled: float = 0.04
    late: float = 0.04
    conflict: float = 0.03
    cut: float = 0.04
    """Befalls GET only: the answer ends within its body."""


_ON_CHANGES = ("answer_lost", "error_after", "doubled", "late", "conflict")


class LyingProxy(LoopServer):
    """A proxy in a thread of its own, in front of ``backends``, as in ``http://127.0.0.1:1234``. A context manager.

    ``events`` counts what it did. ``late_seconds`` is the longest that a request comes late.
    """

    def __init__(self, backends: Sequence[str], seed: int, odds: Odds | None = None, late_seconds: float = 1.0) -> None:
        super().__init__("lying-proxy")
        self._backends = [urlsplit(each).netloc.split(":") for each in backends]
        self._random = random.Random(seed)
        self._odds = odds or Odds()
        self._late_seconds = late_seconds
        self.events: Counter[str] = Counter()
        self._pending: set[asyncio.Task[Any]] = set()
        self._serving: set[asyncio.Task[Any] | None] = set()
        """Nothing else keeps a task whose client is silent."""

    @property
    def address(self) -> str:
        """Where it listens, as in ``backends``."""
        return f"http://127.0.0.1:{self.here}"

    def land_late_ones(self) -> None:
        """Return when all that is under way has reached a backend."""
        self._run(self._settle())

    async def _settle(self) -> None:
        while self._pending:
            await asyncio.wait(self._pending)

    async def _end(self) -> None:
        await self._settle()
        await super()._end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until either side drops it."""
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            stays = True
            while stays:
                answer, stays = await self._answer(await _message(reader))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, request: _Message) -> tuple[bytes, bool]:
        """Return what the client is told, and whether the connection stays."""
        lie = self._draw(request.method)
        self.events[lie or "true"] += 1
        if lie == "error_before":
            return _ERROR, True
        if lie == "conflict":
            return _CONFLICT, True
        if lie == "late":
            self._start(self._ask_late(request))
            return b"", False
        if lie == "doubled":
            self._start(self._ask(request))
        if lie == "slow":
            await asyncio.sleep(self._random.uniform(0.05, 0.3))
        answer = await self._ask(request)
        if lie == "answer_lost":
            return b"", False
        if lie == "error_after":
            return _ERROR, True
        if lie == "cut" and len(answer.body) > 1:
            return answer.head + answer.body[: len(answer.body) // 2], False
        return answer.head + answer.body, True

    def _draw(self, method: str) -> str:
        """Return what happens to a request; nothing for most."""
        drawn = self._random.random()
        for field in fields(self._odds):
            if (field.name in _ON_CHANGES and method in ("GET", "HEAD")) or (field.name == "cut" and method != "GET"):
                continue
            drawn -= getattr(self._odds, field.name)
            if drawn < 0:
                return field.name
        return ""

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._loop.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _ask_late(self, request: _Message) -> None:
        await asyncio.sleep(self._random.uniform(0, self._late_seconds))
        await self._ask(request)

    async def _ask(self, request: _Message) -> _Message:
        """Return the answer of a backend; each request has a connection of its own."""
        host, port = self._random.choice(self._backends)
        try:
            reader, writer = await asyncio.open_connection(host, int(port), limit=_HEAD_BYTES_MAX)
        except OSError:
            self.events["backend away"] += 1
            return _Message(_AWAY, b"")
        try:
            writer.write(request.head + request.body)
            await writer.drain()
            return await _message(reader, has_body=request.method != "HEAD")
        except (asyncio.IncompleteReadError, ConnectionError):
            self.events["backend away"] += 1
            return _Message(_AWAY, b"")
        finally:
            writer.close()


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer; the body as it was sent, in chunks or not."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()


async def _message(reader: asyncio.StreamReader, has_body: bool = True) -> _Message:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = [line.partition(b":") for line in head.lower().split(b"\r\n")[1:]]
    headers = {key.strip(): value.strip() for key, _, value in lines}
    if not has_body:
        return _Message(head, b"")
    if headers.get(b"transfer-encoding") == b"chunked":
        return _Message(head, await _chunks(reader))
    return _Message(head, await reader.readexactly(int(headers.get(b"content-length", 0))))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if not size:
            return body

"""A TCP proxy that can be cut, as a network is: bytes wait, and arrive late once it is whole again."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .loop_server import LoopServer

_CHUNK_BYTES = 1 << 16


class CutProxy(LoopServer):
    """A proxy in a thread of its own, in front of ``port`` on this machine. A context manager; ``port`` of its own is
    ``here``.

    While it is cut, what either side sends is held, and new connections are neither refused nor served. What a side
    sent before it gave up is still delivered afterwards, as packets are that were sent again and again.
    """

    def __init__(self, port: int) -> None:
        super().__init__("cut-proxy")
        self._port = port
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Let nothing through from now on."""
        self._loop.call_soon_threadsafe(self._is_whole.clear)

    def mend(self) -> None:
        """Let everything through, what is held first."""
        self._loop.call_soon_threadsafe(self._is_whole.set)

    def drop(self) -> None:
        """End all connections, as networks do that forget them; what is held is lost."""
        self._loop.call_soon_threadsafe(self._abort)

    def lead_to(self, port: int) -> None:
        """End all connections; who connects from now on comes to another port."""
        self._port = port
        self.drop()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until both sides have ended it."""
        self._writers.add(writer)
        try:
            await self._is_whole.wait()
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            self._close(writer)
            return
        self._writers.add(back_writer)
        await asyncio.gather(self._pass_on(reader, back_writer), self._pass_on(back_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                await self._is_whole.wait()
                writer.write(chunk)
                await writer.drain()
            await self._is_whole.wait()
        except OSError:
            await self._is_whole.wait()
        finally:
            self._close(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        with suppress(RuntimeError):  # the loop is closed
            writer.close()

"""Upload: puts the payload of a slot as chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ... import threads
from ...codecs.checksum import crc32
from ...mvcc.clock import elapsed_seconds
from .chunk import PayloadChunk, chunk_name
from .pace import Pace
from .slot_store import SlotStore


class Upload:
    """Puts the payload of one slot as chunks. ``chunks`` are those that were put: one after the other, by a thread of
    its own, so that beats go on, or by ``put_rest``."""

    def __init__(
        self,
        slots: SlotStore,
        pace: Pace,
        reign: int,
        nonce: bytes,
        payload: Sequence[bytes | memoryview],
        boot_seconds: Callable[[], float],
    ) -> None:
        """``nonce`` is one that nobody else has."""
        self.nonce = nonce
        self.chunks: list[PayloadChunk] = []
        self.heard_at = elapsed_seconds()
        """When it heard last of the other side."""
        self._slots = slots
        self._pace = pace
        self._reign = reign
        self._boot_seconds = boot_seconds
        self._cut = cut(payload, lambda: pace.bytes)
        self._content = next(self._cut, None)
        """Of the next chunk: after a failure the same bytes are put again under the same name."""
        self._failure: BaseException | None = None
        self._is_stopped = False
        self._is_at_rest = threads.Event()
        self._is_at_rest.set()

    def go_on(self) -> None:
        """Let a thread put what is left, unless one does. Raises RuntimeError if a process may have no more threads."""
        if self._is_at_rest.is_set() and self._content is not None:
            self._failure = None
            thread = threads.Thread(target=self._run, name="nyala-upload", daemon=True)
            self._is_at_rest.clear()
            try:
                thread.start()
            except BaseException:
                self._is_at_rest.set()
                raise

    def is_at_rest(self, seconds: float) -> bool:
        """Wait so long at most; return whether nothing is being put any more."""
        return self._is_at_rest.wait(seconds)

    def check(self) -> None:
        """Raise UnavailableError if there was no answer, or whatever else kept it from putting all."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Put no more chunks: nobody will name them."""
        self._is_stopped = True

    def put_rest(self) -> None:
        """Put what is left, in this thread. Raises UnavailableError; then it may be called again."""
        while self._content is not None and not self._is_stopped:
            self._put(self._content)
            self._content = next(self._cut, None)

    def _run(self) -> None:
        try:
            self.put_rest()
        except BaseException as error:
            self._failure = error
        finally:
            self._is_at_rest.set()

    def _put(self, content: bytes) -> None:
        began = self._boot_seconds()
        self._slots.put_chunk(chunk_name(self._reign, self.nonce, len(self.chunks)), content)
        self._pace.note(len(content), self._boot_seconds() - began)
        self.chunks.append(PayloadChunk(len(content), crc32(content)))
        self.heard_at = elapsed_seconds()


def cut(payload: Sequence[bytes | memoryview], size: Callable[[], int]) -> Iterator[bytes]:
    """Yield all bytes of a slot's payload in chunks, each time as many as ``size`` returns then."""
    taken: list[bytes | memoryview] = []
    room = size()
    for piece in map(memoryview, payload):
        start = 0
        while start < len(piece):
            taken.append(piece[start : start + room])
            start += len(taken[-1])
            room -= len(taken[-1])
            if not room:
                yield b"".join(taken)
                taken, room = [], size()
    if taken:
        yield b"".join(taken)

"""A bucket that counts what is asked of it, takes its time, and fails on purpose."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from nyala.engine.bucket import Bucket
from nyala.engine.fs.filesystem import ReadableFile
from nyala.schemas.errors import UnavailableError

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike

T = TypeVar("T")


class WatchedBucket:
    """``inner``, watched. The calls whose numbers (1 is the first) are in ``failing`` raise UnavailableError, after
    their effect if ``too_late``."""

    def __init__(self, inner: Bucket, delay_seconds: float = 0.0) -> None:
        self.inner = inner
        self.delay_seconds = delay_seconds
        self.calls: Counter[str] = Counter()
        self.got_bytes = 0
        self.at_once = 0
        self.most_at_once = 0
        self.failing: Callable[[int, str], bool] = lambda number, call: False
        self.too_late = False
        self.flipped: int | None = None
        """A byte of the next range that is got, which arrives as another one."""
        self.sound_gets = 0
        """The ranges before that one, which arrive as they are."""
        self.ranges: list[tuple[str, int, int]] = []
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Count from nothing."""
        self.calls.clear()
        self.ranges.clear()
        self.got_bytes = self.most_at_once = 0

    def create(self, name: str, content: bytes) -> bool:
        return self._watched("create", lambda: self.inner.create(name, content))

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        self._watched("put", lambda: self.inner.put(name, content))

    def get(self, name: str) -> bytes:
        return self._counted(self._watched("get", lambda: self.inner.get(name)))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        with self._lock:
            self.ranges.append((name, offset, length))
        return self._counted(self._watched("get_range", lambda: self.inner.get_range(name, offset, length)))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.get_range(name, offset, length) for offset, length in ranges]

    def size(self, name: str) -> int:
        return self._watched("size", lambda: self.inner.size(name))

    def list(self, prefix: str, after: str = "") -> list[tuple[str, int]]:
        return self._watched("list", lambda: self.inner.list(prefix, after))

    def delete(self, names: Iterable[str]) -> None:
        self._watched("delete", lambda: self.inner.delete(names))

    def copy(self, source: str, target: str) -> None:
        self._watched("copy", lambda: self.inner.copy(source, target))

    def _watched(self, call: str, work: Callable[[], T]) -> T:
        with self._lock:
            self.calls[call] += 1
            fails = self.failing(self.calls.total(), call)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.delay_seconds:
                time.sleep(self.delay_seconds)
            if fails and not self.too_late:
                raise UnavailableError(f"no answer to {call}")
            result = work()
            if fails:
                raise UnavailableError(f"no answer to {call}")
            return result
        finally:
            with self._lock:
                self.at_once -= 1

    def _counted(self, content: bytes) -> bytes:
        with self._lock:
            self.got_bytes += len(content)
            self.sound_gets -= 1
            if self.flipped is None or self.sound_gets >= 0:
                return content
            at, self.flipped = self.flipped % len(content), None
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

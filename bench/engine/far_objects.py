"""An object store that is as far away as a real one, in memory: each request takes its time, and is counted."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nyala.engine.bucket import Patience
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.patient import PatientBucket

PUT, GET, LIST, DELETE = "PUT", "GET", "LIST", "DELETE"
_PAGE_NAMES = 1_000
"""Names in one answer to a LIST, and in one request to delete."""
_PART_BYTES, _SINGLE_BYTES_MAX = 8 << 20, 64 << 20
"""Larger objects are put in parts, of which each is a request, and two more begin and end them."""


class FarObjects:
    """Objects of which a PUT, and the first byte of a GET, take a while; other requests take as long as a GET.

    ``requests`` counts them as a store in a cloud would, ``got_bytes`` what was read. Threads wait side by side.
    """

    def __init__(self, put_seconds: float, get_seconds: float, inner: MemoryObjects | None = None) -> None:
        self.inner = inner or MemoryObjects()
        self.put_seconds, self.get_seconds = put_seconds, get_seconds
        self.requests: Counter[str] = Counter()
        self.got_bytes = 0
        self._mutex = threading.Lock()

    def __repr__(self) -> str:
        return "far away"

    def reset(self) -> None:
        """Count from nothing."""
        with self._mutex:
            self.requests.clear()
            self.got_bytes = 0

    def within(self, seconds: float) -> "FarObjects":
        return self

    def put_if_absent(self, name: str, content: bytes) -> None:
        self._take(PUT, self.put_seconds)
        self.inner.put_if_absent(name, content)

    def put(self, name: str, content: Any) -> None:
        self.inner.put(name, content)
        size = self.inner.size(name)
        self._take(PUT, self.put_seconds, 1 if size <= _SINGLE_BYTES_MAX else 2 + -(-size // _PART_BYTES))

    def get(self, name: str) -> bytes:
        self._take(GET, self.get_seconds)
        return self._counted(self.inner.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._take(GET, self.get_seconds, len(ranges))
        return [self._counted(content) for content in self.inner.get_ranges(name, ranges)]

    def size(self, name: str) -> int:
        self._take(GET, self.get_seconds)
        return self.inner.size(name)

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        found = self.inner.list(prefix, after)
        pages = max(1, -(-len(found) // _PAGE_NAMES))
        self._take(LIST, self.get_seconds * pages, pages)
        return found

    def delete(self, names: Sequence[str]) -> None:
        self._take(DELETE, self.put_seconds, -(-len(names) // _PAGE_NAMES))
        self.inner.delete(names)

    def copy(self, source: str, target: str) -> None:
        self._take(PUT, self.put_seconds)
        self.inner.copy(source, target)

    def _take(self, kind: str, seconds: float, count: int = 1) -> None:
        with self._mutex:
            self.requests[kind] += count
        time.sleep(seconds)

    def _counted(self, content: bytes) -> bytes:
        with self._mutex:
            self.got_bytes += len(content)
        return content


def far_bucket(objects: FarObjects) -> PatientBucket:
    """Return the objects as a bucket, with the patience of a real one."""
    return PatientBucket(objects, Patience())

"""Fetches ranges of objects: a few at once over all objects, each byte by one thread only."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from ....schemas.errors import StoreError
from ... import threads
from ..bucket import Bucket

AT_ONCE = 64
"""Requests that are under way at the same time: an opening asks for the ends of thousands of files, each some 30 ms."""
LARGE_AT_ONCE = 16
"""Requests for more than ``_LARGE_BYTES`` beside them, whose bytes are in memory until they are kept."""
_LARGE_BYTES = 256 << 10
REQUEST_BYTES = 8 << 20
"""The most bytes of one request: more of an object are fetched by several."""
_WASTE = 10
"""A gap is fetched with what is around it if it is at most this fraction of it: a request has its price."""

Range = tuple[int, int]
"""The first byte, and the end."""


class Fetcher:
    """Fetches ranges of objects from a bucket, for all files of a store. Thread safe."""

    def __init__(self, bucket: Bucket, is_held: Callable[[], bool]) -> None:
        """``is_held`` tells whether no other process can have the store now, and delete its objects."""
        self._bucket = bucket
        self._is_held = is_held
        self._turns = threads.BoundedSemaphore(AT_ONCE)
        self._large_turns = threads.BoundedSemaphore(LARGE_AT_ONCE)
        self._pool = threads.ThreadPoolExecutor(AT_ONCE, "nyala-fetch")  # no thread before the first work
        self._is_closed = False

    def read(self, name: str, first: int, last: int) -> bytes:
        """Return the bytes [first, last) of an object. Raises OSError: EAGAIN if it was lost with the store."""
        with self._turns_for(last - first), answered(name):
            if self._is_closed:
                raise OSError(errno.EAGAIN, "the files are closed", name)  # no file is to blame
            try:
                return self._bucket.get_range(name, first, last - first)
            except FileNotFoundError:
                if self._is_held():
                    raise
                raise OSError(errno.EAGAIN, "another process has the store, and has replaced this file", name) from None

    def _turns_for(self, size_bytes: int) -> threads.BoundedSemaphore:
        return self._turns if size_bytes <= _LARGE_BYTES else self._large_turns

    def begin(self, work: Callable[[], None]) -> None:
        """Let a thread do work that reads something; there is one for each request that may be under way. It is not
        done, or later, if there can be no thread."""
        with suppress(RuntimeError):  # it was closed, the interpreter ends, or no thread can be started
            self._pool.submit(work)

    def close(self, wait: bool = True) -> None:
        """End what is under way. Whoever waits for what has not begun, or reads later, gets an OSError EAGAIN."""
        self._is_closed = True
        self._pool.shutdown(wait)


class Coming:
    """Bytes [first, last) of an object that somebody fetches from the bucket: the first thread that wants them, or is
    free."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self.content: Future[bytes] = Future()
        self.is_begun = False


def requests(wanted: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return the ranges of an object to request from a bucket, to have all of ``wanted``: nothing of ``taken``, and of
    other bytes only small gaps.

    >>> requests([(0, 100), (105, 205), (400, 500)], [(450, 460)])
    [(0, 205), (400, 450), (460, 500)]
    """
    blocks = sorted(taken)
    found: list[Range] = []
    useful = 0
    for first, last in _without(sorted(wanted), blocks):
        if found:
            start, end = found[-1]
            gap, more = first - end, max(0, last - max(first, end))
            is_free = not any(a < first and end < b for a, b in blocks) if gap > 0 else True
            if is_free and gap * _WASTE <= useful + more and last - start <= REQUEST_BYTES:
                found[-1] = start, max(last, end)
                useful += more
                continue
            first = max(first, end)
        while last - first > REQUEST_BYTES:
            found.append((first, first + REQUEST_BYTES))
            first += REQUEST_BYTES
        if first < last:
            found.append((first, last))
            useful = last - first
    return found


def _without(wanted: Iterable[Range], taken: Iterable[Range]) -> Iterator[Range]:
    """Yield the parts of the sorted ranges that are not taken."""
    blocks = list(taken)
    for first, last in wanted:
        for start, end in blocks:
            if first < end and start < last:
                if first < start:
                    yield first, start
                first = max(first, end)
        if first < last:
            yield first, last


@contextmanager
def answered(name: str) -> Iterator[None]:
    """Turn a failure of the bucket into an OSError: EAGAIN if it gave no answer, since no file is to blame for that."""
    try:
        yield
    except StoreError as error:
        raise OSError(errno.EAGAIN, f"the bucket failed: {error}", name) from error
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "the bucket has no such object", name) from error

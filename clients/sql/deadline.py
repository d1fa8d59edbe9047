"""The time that a statement may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, Queue

import pyarrow as pa

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.request import check
from .workers import give_up

_LOOK_SECONDS = 0.1
"""A signal may wake another thread than the main one, which then sees it at its next look."""


class Deadline:
    """When an SQL query must have ended."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds > 0:
            raise InvalidArgumentError(f"timeout must be above 0 seconds, not {seconds!r}")
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """The seconds that are left."""
        return None if self._end is None else self._end - time.monotonic()

    def check(self) -> None:
        """Raise UnavailableError if the statement has taken too long, or its caller is gone."""
        check()
        if (left := self.left) is not None and left <= 0:
            raise self.passed()

    def passed(self) -> UnavailableError:
        """Return the error of a statement that takes too long."""
        return UnavailableError(f"the statement takes longer than its timeout of {self.seconds:g} s")


def within(deadline: Deadline, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an SQL query until a deadline, or until Ctrl-C in the main thread. A thread of its own makes
    them, and goes on after that: nothing ends a join."""
    queue: Queue[pa.RecordBatch | BaseException | None] = Queue(1)
    is_left = threading.Event()

    def make() -> None:
        try:
            for batch in batches:
                queue.put(batch)
                if is_left.is_set():
                    return
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    thread = threading.Thread(target=make, name="nyala-sql", daemon=True)
    thread.start()
    try:
        while True:
            left = deadline.left
            try:
                batch = queue.get(timeout=_LOOK_SECONDS if left is None else min(max(left, 0.0), _LOOK_SECONDS))
            except Empty:
                if left is not None and left <= 0:
                    raise deadline.passed() from None
                continue
            if batch is None:
                return
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        is_left.set()
        with suppress(Empty):
            queue.get_nowait()  # a full queue would hold the thread for ever
        if thread.is_alive():
            give_up(thread)

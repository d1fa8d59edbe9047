"""The pool that reads for scans: the threads that ask, and helpers that all stores of the process share.

A thread that waits for a piece of its scan reads it itself, or another piece of its own, unless a helper has begun it.
So a scan of one piece is read without another thread, no scan waits for those of others, and helpers only make it
faster. They take pieces from the threads that have any, in turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from ... import threads

Given = ParamSpec("Given")
Result = TypeVar("Result")

_HELPERS_MAX = 64


class _Queue:
    """The pieces of one thread that nobody has begun, in the order in which they are needed."""

    __slots__ = ("is_offered", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[_Piece] = deque()
        self.is_offered = False
        """Whether helpers know of it."""


class _Helpers:
    """The threads that help. Their lock guards all queues."""

    def __init__(self) -> None:
        self.lock = threads.RLock()  # the garbage collector may cancel a scan's pieces on a thread that holds it
        self._threads = threads.ThreadPoolExecutor(_HELPERS_MAX, "nyala-scan")
        self._turns: deque[_Queue] = deque()
        self._working = 0

    def offer(self, queue: _Queue, most: int) -> bool:
        """Let helpers, ``most`` at once, take pieces of a queue; return whether to `start` one more. Under the lock."""
        if not queue.is_offered:
            queue.is_offered = True
            self._turns.append(queue)
        is_more = self._working < most
        self._working += is_more
        return is_more

    def start(self) -> None:
        """Start a helper that `offer` asked for."""
        try:
            self._threads.submit(self._help)
        except RuntimeError:  # the interpreter ends; scans go on without helpers
            with self.lock:
                self._working -= 1

    def _help(self) -> None:
        while True:
            with self.lock:
                piece = self._next()
                if piece is None:
                    self._working -= 1
                    return
                piece.begin()
            piece.run()
            del piece  # its result belongs to those who wait for it

    def _next(self) -> _Piece | None:
        while self._turns:
            queue = self._turns.popleft()
            piece = queue.pieces.popleft() if queue.pieces else None
            if queue.pieces:
                self._turns.append(queue)
            else:
                queue.is_offered = False
            if piece is not None:
                return piece
        return None


_HELPERS = _Helpers()


class _Piece(Future[Any]):
    """A piece of a scan. Whoever waits for it helps."""

    def __init__(self, pool: ScanPool, queue: _Queue, work: Callable[[], Any]) -> None:
        super().__init__()
        self._pool, self._queue = pool, queue
        self._work: Callable[[], Any] | None = work

    def result(self, timeout: float | None = None) -> Any:
        while not self.done() and (piece := self._claimed()):
            piece.run()
        return super().result(timeout)

    def cancel(self) -> bool:
        with _HELPERS.lock:
            if self in self._pool.waiting:
                self._pool.waiting.discard(self)
                self._queue.pieces.remove(self)
        is_cancelled = super().cancel()
        if is_cancelled:
            self._work = None  # it may hold the files of a rowset
        return is_cancelled

    def begin(self) -> None:
        """Count it as in progress; under the lock."""
        self._pool.waiting.discard(self)
        self._pool.running += 1

    def run(self) -> None:
        """Do the work, once it has begun."""
        work, self._work = self._work, None
        try:
            if self.set_running_or_notify_cancel() and work is not None:
                try:
                    result = work()
                except BaseException as error:  # whoever waits gets it
                    self.set_exception(error)
                else:
                    self.set_result(result)
        finally:
            self._pool.ended()

    def _claimed(self) -> _Piece | None:
        """Return this piece to be run, if nobody has begun it, else another of the same thread, if there is one."""
        pieces = self._queue.pieces
        with _HELPERS.lock:
            if self in self._pool.waiting:
                pieces.remove(self)
                piece = self
            elif pieces:
                piece = pieces.popleft()
            else:
                return None
            piece.begin()
        return piece


class ScanPool(Executor):
    """The threads that read for the scans of one store."""

    def __init__(self, at_once: int) -> None:
        """At most ``at_once`` threads read for a scan, the one that asks included; 0 is the same as 1."""
        self.waiting: set[_Piece] = set()
        """Pieces that nobody has begun."""
        self.running = 0
        self._helpers_max = min(at_once - 1, _HELPERS_MAX)
        self._mine = threads.local()
        self._is_closed = False
        self._has_ended = threads.Condition(_HELPERS.lock)

    @property
    def ahead(self) -> int:
        """How many pieces a scan should submit before it needs them."""
        return 2 * (self._helpers_max + 1) if self._helpers_max > 0 else 0

    def submit(self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Result]:
        """Queue a piece of a scan of the calling thread; it may be begun only when its result is asked for.

        Raises RuntimeError after ``shutdown``.
        """
        queue: _Queue | None = getattr(self._mine, "queue", None)
        if queue is None:
            queue = self._mine.queue = _Queue()
        piece = _Piece(self, queue, lambda: fn(*args, **kwargs))
        with _HELPERS.lock:
            if self._is_closed:
                raise RuntimeError("the pool was shut down")
            queue.pieces.append(piece)
            self.waiting.add(piece)
            # A single piece is for the caller: most scans of few rows have one.
            is_wanted = self._helpers_max > 0 and len(queue.pieces) > 1 and _HELPERS.offer(queue, self._helpers_max)
        if is_wanted:
            _HELPERS.start()
        return piece

    def ended(self) -> None:
        """Count a piece as done."""
        with _HELPERS.lock:
            self.running -= 1
            self._has_ended.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work, and cancel what nobody has begun; wait for the rest."""
        del cancel_futures
        with _HELPERS.lock:
            self._is_closed = True
            waiting = list(self.waiting)
        for piece in waiting:
            piece.cancel()
        with _HELPERS.lock:
            while wait and self.running:
                self._has_ended.wait()

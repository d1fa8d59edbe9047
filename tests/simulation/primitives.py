"""Primitives: doubles of the names in `engine/threads`, whose threads take turns under a `Scheduler`.

They mean what those of the standard library mean. Whoever is no thread of the simulation, or comes after its end, meets
locks that are always free. A thread that was killed releases what it holds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

from .scheduler import Scheduler, Task

_ENDLESS = float("inf")


class Primitives:
    """The names of `engine/threads`, for one scheduler: ``names()`` has a value for each that the engine calls."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def names(self) -> dict[str, Any]:
        """Return what takes the place of each name."""
        scheduler = self.scheduler
        return {
            "Barrier": lambda parties: Barrier(scheduler, parties),
            "BoundedSemaphore": lambda value=1: Semaphore(scheduler, value),
            "Condition": lambda lock=None: Condition(scheduler, lock),
            "Event": lambda: Event(scheduler),
            "Lock": lambda: Lock(scheduler),
            "RLock": lambda: RLock(scheduler),
            "Thread": lambda **given: Thread(scheduler, **given),
            "ThreadPoolExecutor": lambda most, name="pool": Pool(scheduler, most, name),
            "monotonic": lambda: scheduler.now,
            "sleep": self.sleep,
            "wait": wait_for_all,
        }

    def sleep(self, seconds: float) -> None:
        """Let others work for so long."""
        if self.scheduler.mine() is not None:
            self.scheduler.wait([], self.scheduler.now + max(seconds, 0))


def _moment(scheduler: Scheduler, seconds: float | None) -> float:
    return _ENDLESS if seconds is None or seconds < 0 else scheduler.now + seconds


class Lock:
    """A lock, which any thread may release."""

    __slots__ = ("_is_held", "_queue", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False
        self._queue: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        if scheduler.mine() is None:
            return self._take_outside(blocking)
        scheduler.point()
        until = _moment(scheduler, timeout)
        while self._is_held:
            if not blocking or scheduler.now >= until:
                return False
            scheduler.wait(self._queue, until)
        self._is_held = True
        return True

    def _take_outside(self, blocking: bool) -> bool:
        if self._is_held and not blocking:
            return False
        self._is_held = True
        return True

    def release(self) -> None:
        scheduler = self._scheduler
        if scheduler.is_over:
            self._is_held = False
            return
        if scheduler.is_ending:  # it may have lost the lock while it waited for a condition
            self._is_held = False
            scheduler.wake(self._queue)
            return
        if not self._is_held:
            raise RuntimeError("release unlocked lock")
        self._is_held = False
        scheduler.wake(self._queue)
        scheduler.point()

    def locked(self) -> bool:
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock:
    """A lock that its owner may take again."""

    __slots__ = ("_count", "_lock", "_owner")

    def __init__(self, scheduler: Scheduler) -> None:
        self._lock = Lock(scheduler)
        self._owner: int | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()
        if self._owner == me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count <= 0:
            self._owner = None
            self._lock.release()

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()

    def _release_save(self) -> int:
        count, self._count = self._count, 1
        self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    """A condition over a lock, a new RLock if none is given."""

    def __init__(self, scheduler: Scheduler, lock: Lock | RLock | None = None) -> None:
        self._scheduler = scheduler
        self._lock: Lock | RLock = RLock(scheduler) if lock is None else lock
        self._queue: list[Task] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        if scheduler.mine() is None:
            return True
        until, lock = _moment(scheduler, timeout), self._lock
        if isinstance(lock, RLock):
            count = lock._count
            # Between the release and the wait nobody may notify: the real ones enter the queue first.
            with scheduler.undivided():
                lock._release_save()
            is_woken = scheduler.wait(self._queue, until)
            lock._acquire_restore(count)
        else:
            with scheduler.undivided():
                lock.release()
            is_woken = scheduler.wait(self._queue, until)
            lock.acquire()
        return is_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = _moment(self._scheduler, timeout)
        while not (answer := predicate()):
            if self._scheduler.now >= until or self._scheduler.is_over:
                break
            self.wait(None if until == _ENDLESS else until - self._scheduler.now)
        return answer

    def notify(self, n: int = 1) -> None:
        self._scheduler.wake(self._queue, n)

    def notify_all(self) -> None:
        self._scheduler.wake(self._queue)


class Event:
    """A flag to wait for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._queue: list[Task] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if not self._scheduler.is_over:
            self._scheduler.wake(self._queue)
            self._scheduler.point()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        if scheduler.mine() is None:
            return self._is_set
        scheduler.point()
        if not self._is_set:
            scheduler.wait(self._queue, _moment(scheduler, timeout))
        return self._is_set


class Semaphore:
    """A bounded semaphore."""

    def __init__(self, scheduler: Scheduler, value: int) -> None:
        self._condition, self._free, self._most = Condition(scheduler), value, value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self._condition:
            if not self._free and not blocking:
                return False
            if not self._condition.wait_for(lambda: self._free, timeout):
                return False
            self._free -= 1
            return True

    def release(self) -> None:
        with self._condition:
            if self._free >= self._most:
                raise ValueError("Semaphore released too many times")
            self._free += 1
            self._condition.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Barrier:
    """Lets threads go on when all have come."""

    def __init__(self, scheduler: Scheduler, parties: int) -> None:
        self._condition, self._missing = Condition(scheduler), parties

    def wait(self, timeout: float | None = None) -> int:
        with self._condition:
            self._missing -= 1
            if not self._missing:
                self._condition.notify_all()
            elif not self._condition.wait_for(lambda: not self._missing, timeout):
                raise threading.BrokenBarrierError
            return self._missing


class Thread:
    """A thread of the simulation."""

    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str = "thread",
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        self._scheduler, self._target, self.name, self.daemon = scheduler, target, name, daemon
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._ended = Event(scheduler)
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._scheduler.start(self.name, self._run)

    def _run(self) -> None:
        try:
            self._target(*self._args, **self._kwargs)
        finally:
            self._ended._is_set = True
            if not self._scheduler.is_over:
                self._scheduler.wake(self._ended._queue)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._ended.is_set()

    @property
    def ident(self) -> int | None:
        return self._task.ident if self._task else None


class Pool(Executor):
    """Threads that take work from a queue; as many as there is work for, up to ``most``."""

    def __init__(self, scheduler: Scheduler, most: int, name: str) -> None:
        self._scheduler, self._most, self._name = scheduler, most, name
        self._work: deque[tuple[Future[Any], Callable[..., Any], Any, Any]] = deque()
        self._more = Condition(scheduler)
        self._threads: list[Thread] = []
        self._idle = 0
        self._is_shut = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Future[Any]()
        with self._more:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._work.append((future, work, args, kwargs))
            is_new = self._idle < len(self._work) and len(self._threads) < self._most
            if is_new:
                thread = Thread(self._scheduler, self._serve, f"{self._name}-{len(self._threads)}")
                self._threads.append(thread)
            else:
                self._more.notify()
        if is_new:
            thread.start()
        return future

    def _serve(self) -> None:
        while True:
            with self._more:
                self._idle += 1
                self._more.wait_for(lambda: self._work or self._is_shut)
                self._idle -= 1
                if not self._work:
                    return
                future, work, args, kwargs = self._work.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                answer = work(*args, **kwargs)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(answer)
            del future, work, args, kwargs

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._scheduler.is_ending:  # of a generator that is collected
            return
        with self._more:
            self._is_shut = True
            while cancel_futures and self._work:
                self._work.pop()[0].cancel()
            self._more.notify_all()
        for thread in self._threads if wait else ():
            thread.join()


def wait_for_all(calls: Iterable[Future[Any]]) -> None:
    """Wait until all are over."""
    for call in calls:
        if not call.cancelled():
            call.exception()

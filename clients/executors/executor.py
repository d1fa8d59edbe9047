"""Who runs the tasks of a job: a pool of threads of this process, or Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Protocol, TypeVar

from ...schemas.errors import InvalidArgumentError, UnavailableError

Task = TypeVar("Task")
Result = TypeVar("Result")

ATTEMPTS = 4
"""How often a task is begun that finds the store unavailable; Spark's own number."""
_PAUSE_SECONDS = 0.5
LOCAL_WORKERS_MAX = 8


class Executor(Protocol):
    """Runs one function on many tasks."""

    @property
    def width(self) -> int:
        """About how many tasks run at once."""
        ...

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index of the task, result), in the order in which tasks end or all at the end.

        ``done`` is told how many tasks have ended, from time to time, by those executors whose results come late.
        Functions and tasks can be pickled and do the same when they are run again: a task may run more than once.

        Raises:
            StoreError: that of the first task that failed for good; the others are stopped or left out.
        """
        ...


class Mapping(Protocol):
    """An executor as others have them, those of ``concurrent.futures`` among them."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Iterable[Result]:
        """Return the result of each task, in their order."""
        ...


def results(executor: Executor, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Return the result of each task, in their order."""
    given = list(tasks)
    found = dict(executor.run(function, given))
    return [found[index] for index in range(len(given))]


class MappedExecutor:
    """Somebody else's executor."""

    def __init__(self, executor: Mapping) -> None:
        self._executor = executor

    @property
    def width(self) -> int:
        """See Executor; it is not known."""
        return os.cpu_count() or 1

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """See Executor."""
        yield from enumerate(self._executor.map(partial(attempted, function), tasks))


class LocalExecutor:
    """Threads of this process: Arrow and Flight do their work without the lock of the interpreter."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InvalidArgumentError(f"workers must be at least 1, not {workers}")
        self._workers = workers or min(LOCAL_WORKERS_MAX, 2 * (os.cpu_count() or 2))

    @property
    def width(self) -> int:
        """See Executor."""
        return self._workers

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return the result of each task, in their order: as executors of ``concurrent.futures``."""
        return results(self, function, tasks)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """See Executor."""
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="nyala-job")
        try:
            running = {pool.submit(attempted, function, task): index for index, task in enumerate(tasks)}
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def attempted(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task, again after a pause where the store was not available."""
    for attempt in range(1, ATTEMPTS):
        try:
            return function(task)
        except UnavailableError as error:
            time.sleep(error.retry_after_seconds or _PAUSE_SECONDS * attempt)
    return function(task)

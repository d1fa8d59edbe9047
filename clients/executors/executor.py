"""Executors run the tasks of a job: in a thread pool of this process, or in Spark."""

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
"""How often to start a task that finds the store unavailable; Spark's own number."""
_PAUSE_SECONDS = 0.5
LOCAL_WORKERS_MAX = 8


class Executor(Protocol):
    """An executor: runs one function on the many tasks of a job."""

    @property
    def width(self) -> int:
        """About how many tasks run at once."""
        ...

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """Yield (index of the task, result) as tasks end, or all at the end.

        ``done`` is called now and then with the number of finished tasks, by executors whose results come late.
        Functions and tasks must be picklable, and repeatable: a task may run more than once.

        Raises:
            StoreError: the error of the first task that failed for good; the others are stopped or skipped.
        """
        ...


class Mapping(Protocol):
    """The caller's own executor with ``map`` only, such as those of ``concurrent.futures``."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task], /) -> Iterable[Result]:
        """Return the result of each task, in the order of the tasks."""
        ...


def results(executor: Executor, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Run tasks by an executor and return the result of each, in the order of the tasks."""
    given = list(tasks)
    found = dict(executor.run(function, given))
    return [found[index] for index in range(len(given))]


class MappedExecutor:
    """An executor that runs tasks by another executor's ``map``."""

    def __init__(self, executor: Mapping) -> None:
        self._executor = executor

    @property
    def width(self) -> int:
        """See Executor. A guess, since it is not known."""
        return os.cpu_count() or 1

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """See Executor."""
        yield from enumerate(self._executor.map(partial(attempted, function), tasks))


class LocalExecutor:
    """The executor "local", which runs a job's tasks on threads of this process: Arrow and Flight release the
    interpreter lock while they work."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InvalidArgumentError(f"workers must be at least 1, not {workers}")
        self._workers = workers or min(LOCAL_WORKERS_MAX, 2 * (os.cpu_count() or 2))

    @property
    def width(self) -> int:
        """See Executor."""
        return self._workers

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return the result of each task, in the order of the tasks, like executors of ``concurrent.futures``."""
        return results(self, function, tasks)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """See Executor."""
        pool, is_dropped = ThreadPoolExecutor(self._workers, thread_name_prefix="nyala-job"), False
        try:
            running = {pool.submit(attempted, function, task): index for index, task in enumerate(tasks)}
            for future in as_completed(running):
                yield running[future], future.result()
        except GeneratorExit:  # perhaps by the garbage collector, on a thread where a join would wait for ever
            is_dropped = True
            raise
        finally:
            pool.shutdown(wait=not is_dropped, cancel_futures=True)


def attempted(function: Callable[[Task], Result], task: Task) -> Result:
    """Run one task of an executor; retry it after a pause while the store is unavailable."""
    for attempt in range(1, ATTEMPTS):
        try:
            return function(task)
        except UnavailableError as error:
            time.sleep(error.retry_after_seconds or _PAUSE_SECONDS * attempt)
    return function(task)

"""An executor without threads: the submitting thread does the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class CallerRuns(Executor):
    """Does each piece of work in the submitting thread, before ``submit`` returns.

    Reading a chunk takes some hundred short Python calls with kernels of 10 to 100 microseconds between them. Threads
    that share it mostly wait for the interpreter, and each turn costs a wake-up: on two cores they take half as much
    processor time again, and no less time (bench/README.md).
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    def submit(self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Result]:
        """Do the work; return a completed future. Raises RuntimeError after ``shutdown``."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the executor was shut down")
            self._running += 1
        future: Future[Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more work; wait for the work of other threads."""
        with self._changed:
            self._closed = True
            while wait and self._running:
                self._changed.wait()

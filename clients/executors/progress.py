"""The progress of a job: a bar on a terminal, lines elsewhere, nothing unless asked for."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from ...schemas.phrases import counted
from .executor import Executor

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Task = TypeVar("Task")
Result = TypeVar("Result")

Show = Literal["auto", "lines", "off"]
"""auto: a bar if standard error is a terminal; lines: a bar there, lines elsewhere."""

LINE_SECONDS = 5.0
"""Seconds between two lines."""


class JobProgress:
    """The progress of a job that an executor runs: counts the tasks of one step, on standard error."""

    def __init__(self, what: str, tasks: int, show: Show) -> None:
        self._what = what
        self._tasks = tasks
        self._rows = 0
        self._done = 0
        self._lock = threading.Lock()
        on_terminal = bool(sys.stderr) and sys.stderr.isatty()
        self._bar = _bar(what, tasks) if on_terminal and show != "off" else None
        self._lines = not on_terminal and show == "lines"
        self._line_at = time.monotonic() + LINE_SECONDS

    def ended(self, done: int) -> None:
        """Record that ``done`` tasks have ended."""
        self._done = max(self._done, done)
        if self._bar:
            progress, task = self._bar
            progress.update(task, completed=self._done, rows=f"{self._rows:,} rows" if self._rows else "")
        elif self._lines and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            self._line(f"{self._done} of {counted(self._tasks, 'task')}, {counted(self._rows, 'row')}")

    def advance(self, rows: int) -> None:
        """Count rows of running tasks. Thread safe."""
        with self._lock:
            self._rows += rows
            self.ended(self._done)

    def add(self, rows: int) -> None:
        """Count one more task, of ``rows`` rows."""
        with self._lock:
            self._rows += rows
            self.ended(self._done + 1)

    def _line(self, text: str) -> None:
        sys.stderr.write(f"{self._what}: {text}\n")
        sys.stderr.flush()

    def __enter__(self) -> JobProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar[0].stop()
        elif self._lines and error is None and self._tasks:
            self._line(f"all done: {counted(self._tasks, 'task')}, {counted(self._rows, 'row')}")


def run_tasks(
    executor: Executor,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    rows: Callable[[Result], int],
    what: str,
    show: Show,
) -> Iterator[tuple[int, Result]]:
    """Run the tasks of a job by an executor: yield (index, result) as the tasks end, and show progress; ``rows``
    returns the number of rows of a result."""
    with JobProgress(what, len(tasks), show) as progress:
        for index, result in executor.run(function, tasks, progress.ended):
            progress.add(rows(result))
            yield index, result


def _bar(what: str, tasks: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.start()
    return progress, progress.add_task(what, total=tasks, rows="")


def cut_note(cells: int) -> str:
    """Return what the progress report of a job that writes adds if some cells were cut to the length of their
    column."""
    return f"; {counted(cells, 'cell')} cut to the length of the column" if cells else ""

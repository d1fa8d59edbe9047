"""A progress bar for long loads: on a terminal, and only once it is worth one."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_SECONDS = 1.0
"""Loads that end sooner show no bar."""


class LoadProgress:
    """The progress bar of ``Table.write`` and other long calls of users: counts rows. After the first second it shows
    them on standard error, if that is a terminal."""

    def __init__(self, what: str, rows: int | None) -> None:
        self._what = what
        self._rows = rows
        self._done = 0
        self._shown: tuple[Progress, TaskID] | None = None
        self._show_at = time.monotonic() + PATIENCE_SECONDS if sys.stderr and sys.stderr.isatty() else float("inf")

    def advance(self, rows: int) -> None:
        """Add ``rows`` to the count."""
        self._done += rows
        if self._shown:
            progress, task = self._shown
            progress.update(task, completed=self._done)
        elif time.monotonic() >= self._show_at:
            self._shown = self._show()

    def reach(self, done: int, total: int) -> None:
        """Set the count, and a total that may have grown."""
        self._rows = total
        self.advance(done - self._done)
        if self._shown:
            progress, task = self._shown
            progress.update(task, total=total)

    def _show(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.start()
        return progress, progress.add_task(self._what, total=self._rows, completed=self._done)

    def __enter__(self) -> LoadProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown:
            self._shown[0].stop()

"""What a terminal shows while a statement takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Lock, Timer
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from ....schemas.phrases import counted

if TYPE_CHECKING:
    from rich.progress import Progress

_AFTER_SECONDS = 1.0


class StatementProgress:
    """Shows on standard error, if that is a terminal, how long a statement of ``nyala sql`` has run and how many rows
    were read of it, from its second second on. A context manager."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_over = not sys.stderr.isatty()
        self._bar: Progress | None = None
        self._timer: Timer | None = None
        self._rows = 0
        self._began = monotonic()

    def __enter__(self) -> StatementProgress:
        if not self._is_over:
            self._timer = Timer(_AFTER_SECONDS, self._begin)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Show nothing any more: something else is about to be shown."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and count their rows."""
        for batch in batches:
            yield batch
            self._rows += batch.num_rows
            with self._lock:
                if self._bar is not None:
                    self._bar.update(self._bar.task_ids[0], description=self._description)

    @property
    def _description(self) -> str:
        return counted(self._rows, "row") if self._rows else "running"

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with self._lock:
            if self._is_over:
                return
            console = Console(stderr=True)
            self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)
            self._bar.add_task(self._description, total=None)
            self._bar.tasks[0].start_time = self._began
            self._bar.start()

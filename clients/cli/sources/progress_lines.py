"""Lines on standard error that tell how far a source is."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from ....schemas.phrases import counted

if TYPE_CHECKING:
    from ...sources.runner import Progress

_LINE_SECONDS = 5.0
_MIB = 1 << 20


class ProgressLines:
    """The lines that ``nyala mirror``, ``consume`` and ``follow`` write on standard error about their progress: one
    that changes on a terminal, one every few seconds elsewhere."""

    def __init__(self, is_terminal: bool, is_quiet: bool) -> None:
        self._is_terminal = is_terminal
        self._is_quiet = is_quiet
        self._at = 0.0
        self._rows_then = 0
        self._note = ""
        self._has_line = False
        self.counts = (0, 0)
        """Changes and transactions applied so far."""

    def report(self, progress: Progress) -> None:
        """Show how far the runner is."""
        if progress.state == "following":
            self.counts = (progress.rows, progress.transactions)
        now = time.monotonic()
        is_due = now - self._at >= (1.0 if self._is_terminal else _LINE_SECONDS)
        if self._is_quiet or not (is_due or progress.note != self._note):
            return
        text = self._text(progress, now - self._at if self._at else None)
        self._at, self._rows_then, self._note = now, progress.rows, progress.note
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._has_line = True
        else:
            typer.echo(text, err=True)

    def _text(self, progress: Progress, seconds: float | None) -> str:
        if progress.note:
            return progress.note
        if progress.state == "copying":
            return f"copying: {progress.parts} of {counted(progress.parts_in_all, 'part')}, {progress.rows:,} rows"
        rate = 0.0 if not seconds else max(progress.rows - self._rows_then, 0) / seconds
        behind = "" if progress.lag_bytes is None else f", {progress.lag_bytes / _MIB:,.1f} MiB behind"
        if progress.lag_messages is not None:
            behind = f", {counted(progress.lag_messages, 'message')} behind"
        if progress.rejects:
            behind += f", {progress.rejects:,} rejected"
        lag = "" if progress.lag_seconds is None else f", lag {progress.lag_seconds:.1f} s"
        return f"at {progress.position}: {progress.rows:,} changes, {rate:,.0f} a second{behind}{lag}"

    def end(self) -> None:
        """End the line on a terminal."""
        if self._has_line:
            sys.stderr.write("\n")

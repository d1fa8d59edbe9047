"""``nyala mirror``, perhaps with a mistake that a campaign must see: ``mirror_process.py MISTAKE ARGUMENTS...``."""

from __future__ import annotations

import sys
from collections.abc import Callable

from nyala.__main__ import main
from nyala.clients.sources import runner
from nyala.clients.sources.postgres import stream
from nyala.clients.sources.source import BatchLimits


def tear() -> None:
    """Commit what has come, also within a transaction of the source."""
    cut = stream.ChangeStream._cut

    def torn(self: stream.ChangeStream, end: int) -> object:
        is_open, self._is_open = self._is_open, False
        self._ended = self._ended or stream.Commit(self._after, runner.datetime.now(runner.UTC))
        batch = cut(self, end)
        self._is_open = is_open
        return batch

    def is_due(self: stream.ChangeStream, now: float) -> bool:  # not from the half of the limits on, as it is by right
        return self._ended is not None and not self._is_open and now - self._begun_at >= self._limits.seconds

    stream.ChangeStream._is_due = is_due  # pyright: ignore[reportAttributeAccessIssue]
    stream.ChangeStream._cut = torn  # pyright: ignore[reportAttributeAccessIssue]
    runner.BatchLimits = lambda: BatchLimits(rows=500)  # pyright: ignore[reportAttributeAccessIssue]


def confirm_first() -> None:
    """Commit the position before the rows, in a commit of its own."""
    advance = runner.Runner._advance

    def first(
        self: runner.Runner, staging: runner.StagedCommit, before: runner.Position | None, after: runner.Position
    ) -> runner.Position:
        if before is None or before.position is None:
            return advance(self, staging, before, after)
        position = advance(self, runner.StagedCommit(self._database._store), before, after)
        runner.time.sleep(1)  # a kill may come here
        if not staging.is_empty:
            staging.commit()
        return position

    runner.Runner._advance = first


MISTAKES: dict[str, Callable[[], None]] = {"none": lambda: None, "tear": tear, "confirm-first": confirm_first}

if __name__ == "__main__":
    MISTAKES[sys.argv.pop(1)]()
    main()

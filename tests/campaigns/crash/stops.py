"""Stop a loaded server by SIGTERM again and again: it ends in time, with a clean log and nothing
to replay, and has every acknowledged row.

    python tests/campaigns/crash/stops.py --cycles 200 --seed 0

As ``kill9.py``, whose writers and maintenance these are, with an end that is asked for.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.manifest.manifest import read_manifest
from tests.campaigns import options as drawn
from tests.campaigns.crash.kill9 import Campaign, Server, main

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "history_max_age_seconds"})
END_SECONDS = 10.0


class Stops(Campaign):
    """Counts over all cycles."""

    slowest = 0.0

    def _end(self, server: Server, directory: Path) -> None:
        began = time.monotonic()
        code = server.stop()
        seconds = time.monotonic() - began
        self.slowest = max(self.slowest, seconds)
        assert code == 0 and seconds < END_SECONDS, f"the server ended with {code} after {seconds:.1f} s"
        manifest = read_manifest(drawn.unlocked(LocalFileSystem(directory)))
        assert manifest.clean_stop is not None, "the log has no mark of a clean stop"
        assert not _replayed(directory), "the next start had to replay what the stop did not flush"

    def __str__(self) -> str:
        return f"{super().__str__()}; the slowest stop took {self.slowest:.1f} s"


def _replayed(directory: Path) -> list[str]:
    """Open a store; return what recovery says that it replayed."""
    said: list[str] = []
    log, told = logging.getLogger("nyala.recovery"), logging.Handler(logging.INFO)
    told.emit = lambda record: said.append(record.getMessage())
    log.addHandler(told)
    level, log.level = log.level, logging.INFO
    try:
        drawn.database_at(directory, maintenance="off").close()
    finally:
        log.removeHandler(told)
        log.level = level
    return [text for text in said if text.startswith("replayed")]


if __name__ == "__main__":
    main(Stops, FEATURES)

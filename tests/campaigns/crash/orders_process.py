"""A process whose threads write logs of changes in random orders into its own store, to be killed.

python tests/campaigns/crash/orders_process.py PLACE PROGRESS SEED LOGS

PROGRESS: a file of `openings_process.progress_in`: how many changes of all logs each writer has done

The rows of each log have keys of their own, and a column that orders their changes. The writers share out the changes
of a log, whose order is random. One that starts again repeats some.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa

import nyala
from nyala.schemas.errors import StoreError
from tests.campaigns.crash.openings_process import progress_in
from tests.campaigns.options import database_at

WRITERS, KEYS, CHANGES = 8, 6, 80
"""Of each log."""
SHARE = CHANGES // WRITERS
"""The changes of a log that one writer does."""
SCHEMA = pa.schema(
    [
        pa.field("log", pa.int64(), False),
        pa.field("key", pa.int64(), False),
        pa.field("at", pa.int64()),
        pa.field("text", pa.string()),
    ]
)


class Event(NamedTuple):
    """A change in a log: of two with one key, the one with the higher ``at`` counts."""

    key: int
    at: int
    is_delete: bool

    def row(self, log: int) -> dict[str, object]:
        """Return the row to write."""
        own: dict[str, object] = {"log": log, "key": self.key, "at": self.at}
        return own if self.is_delete else own | {"text": f"{self.at} of {log}"}


def log_of(seed: int, number: int) -> list[Event]:
    """Return the changes of a log, in the random order in which they come."""
    random = Random(f"{seed}-{number}")
    moments = list(range(CHANGES))
    random.shuffle(moments)
    return [Event(random.randrange(KEYS), at, random.random() < 0.3) for at in moments]


def main() -> None:
    place, progress, seed, logs = sys.argv[1], progress_in(Path(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])
    with database_at(place) as database:
        table, ended = database.table("t"), threading.Event()
        tasks = [(_write, (table, writer, progress, seed, logs)) for writer in range(WRITERS)]
        threads = [threading.Thread(target=task, args=given) for task, given in tasks]
        upkeep = threading.Thread(target=_maintain, args=(table, ended))
        for thread in (*threads, upkeep):
            thread.start()
        for thread in threads:
            thread.join()
        ended.set()
        upkeep.join()


def _write(table: nyala.Table, writer: int, progress: np.ndarray, seed: int, logs: int) -> None:
    random = Random(time.time_ns() + writer)
    step = max(int(progress[writer]) - random.randrange(2 * SHARE), 0)
    while step < logs * SHARE:
        log, first = divmod(step, SHARE)
        events = log_of(seed, log)[writer::WRITERS][first : first + random.randrange(1, 6)]
        while events:
            count = next((i for i, each in enumerate(events) if each.is_delete != events[0].is_delete), len(events))
            rows = [each.row(log) for each in events[:count]]
            table.write(rows, "delete" if events[0].is_delete else "upsert")
            events = events[count:]
            step += count
            progress[writer] = max(step, int(progress[writer]))


def _maintain(table: nyala.Table, ended: threading.Event) -> None:
    random = Random(time.time_ns())
    while not ended.wait(random.uniform(0.02, 0.3)):
        with suppress(StoreError):  # the store's own maintenance is at work
            table.maintain(random.choice(["flush", "flush_deltas", "minor_compact", "major_compact", "compact"]))


if __name__ == "__main__":
    main()

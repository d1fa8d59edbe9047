"""Kill -9 a process that has written single rows for a while, into its own store or as a server; measure how long the
next opening takes, and look for each row.

    python tests/campaigns/crash/openings.py --cycles 20 --seed 0

The stores have the options that stores have. However long a process has written, the replay after its death is bounded
(``recovery_seconds_max``). The time of an opening is that of all of it, up to the first answer; a server's is counted
from the start of its process.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np

import nyala
from nyala.engine.options import StoreOptions
from tests.campaigns import options as drawn
from tests.campaigns.crash.kill9 import CYCLES_A_STORE, START_SECONDS, Server, main
from tests.campaigns.crash.openings_process import SCHEMA, progress_in
from tests.campaigns.crash.server_process import OPTIONS
from tests.doubles.waiting import until

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability"}, without={"recovery_seconds_max", "flush_bytes"})
"""How long a start takes is measured."""
_WRITERS = 16
_DEFAULTS = {name: getattr(StoreOptions(), name) for name in OPTIONS.model_fields_set}
"""Of the options that other campaigns set."""


@contextmanager
def _served(directory: Path) -> Iterator[nyala.Database]:
    with Server(directory, **_DEFAULTS) as server, nyala.connect(server.location) as database:
        yield database


@dataclass
class OpeningCampaign:
    """Counts over all cycles."""

    seed: int
    seconds_max: float = 60.0
    """How long a process writes at most."""
    cycles: int = 0
    acknowledged: int = 0
    swarm: drawn.Swarm = drawn.PLAIN
    openings: dict[str, list[float]] = field(default_factory=lambda: {"embedded": [], "server": []})
    """How long each took, in seconds."""

    def run(self, cycles: int) -> None:
        """Kill ``cycles`` times: a process with the store as its own, and a server of it, in turn."""
        random = Random(self.seed)
        while self.cycles < cycles:
            with (
                self.swarm.round(self.cycles),
                tempfile.TemporaryDirectory(prefix="nyala-openings-") as directory,
            ):
                with drawn.database_at(directory) as database:
                    columns = drawn.columns(SCHEMA)
                    database.create_table("t", SCHEMA, ["writer", "number"], (), columns, **drawn.table())
                taken = np.zeros(_WRITERS, np.int64)
                for _ in range(min(CYCLES_A_STORE, cycles - self.cycles)):
                    self._cycle(list(self.openings)[self.cycles % 2], Path(directory), taken, random)

    def _cycle(self, way: str, directory: Path, taken: np.ndarray, random: Random) -> None:
        is_served = way == "server"
        with tempfile.NamedTemporaryFile(prefix="nyala-progress-") as file:
            progress = progress_in(Path(file.name), taken)
            with Server(directory, **_DEFAULTS) if is_served else nullcontext() as server:
                place = server.location if server else str(directory)
                program = str(Path(__file__).with_name("openings_process.py"))
                with subprocess.Popen([sys.executable, program, place, file.name]) as process:
                    try:
                        until(lambda: (progress > taken).any(), START_SECONDS)
                        seconds = random.uniform(0.02, self.seconds_max)
                        time.sleep(seconds)
                    finally:
                        (server or process).kill()
                        process.kill()
            counts = np.array(progress)
        began = time.monotonic()
        with (_served if is_served else drawn.database_at)(directory) as database:
            assert database.table("t").get((0, 0)) is not None
            opening = time.monotonic() - began
            self._check(database.table("t"), counts)
        rows = int((counts - taken).sum())
        taken[:] = counts
        self.cycles += 1
        self.acknowledged += rows
        self.openings[way].append(opening)
        what = f"{way}, {rows} rows in {seconds:.0f} s, opened in {opening:.2f} s"
        print(f"cycle {self.cycles}: {what}; {self}", flush=True)

    def _check(self, table: nyala.Table, counts: np.ndarray) -> None:
        """Compare all rows with the steps that were acknowledged, and count those that survived without."""
        found = table.scan(columns=["writer", "number", "step"], ordered=True).to_arrow()
        writers, numbers, steps = (column.to_numpy() for column in found.columns)
        for writer in range(_WRITERS):
            is_own = writers == writer
            survived = int(steps[is_own].max(initial=-1)) + 1
            assert survived - counts[writer] in (0, 1), (writer, survived, counts[writer])
            known = np.arange((survived + 1) // 2)
            assert np.array_equal(numbers[is_own], known), f"writer {writer}: a row is lost"
            assert np.array_equal(steps[is_own], np.minimum(2 * known + 1, survived - 1)), f"{writer}: a change is lost"
            counts[writer] = survived

    def __str__(self) -> str:
        openings = [
            f"{way} {statistics.median(seconds):.2f} s (at most {max(seconds):.2f})"
            for way, seconds in self.openings.items()
            if seconds
        ]
        return f"{self.acknowledged} rows, 0 lost; {', '.join(openings)}; load {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main(OpeningCampaign, FEATURES)

"""Kill -9 a process whose writers bring the changes of logs in random orders, until all are there: the table is that of
the sorted logs.

    python tests/campaigns/crash/orders.py --cycles 1000 --seed 0

A cycle is a log of its own. Writers that start again repeat changes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np

import nyala
from tests.campaigns import options as drawn
from tests.campaigns.crash.kill9 import START_SECONDS, main
from tests.campaigns.crash.openings_process import progress_in
from tests.campaigns.crash.orders_process import SCHEMA, SHARE, WRITERS, log_of
from tests.doubles.waiting import until

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "maintenance"})


@dataclass
class OrderCampaign:
    """Counts over all logs."""

    seed: int
    cycles: int = 0
    """Logs that were checked."""
    kills: int = 0
    rows: int = 0
    """Those that the logs leave."""
    swarm: drawn.Swarm = drawn.PLAIN

    def run(self, cycles: int) -> None:
        """Write so many logs, with kills, and check the rows that they leave."""
        random = Random(self.seed)
        with self.swarm.round(0), tempfile.TemporaryDirectory(prefix="nyala-orders-") as directory:
            place, file = Path(directory, "store"), Path(directory, "progress")
            with drawn.database_at(place) as database:
                database.create_table(
                    "t",
                    SCHEMA,
                    ["log", "key"],
                    column_options=drawn.columns(SCHEMA),
                    partition_by=[nyala.partition.hash("log", "key", buckets=2)],
                    **drawn.table(order_by="at"),
                )
            progress = progress_in(file, np.zeros(WRITERS, np.int64))
            while (progress < cycles * SHARE).any():
                self._run_for(random.uniform(0.05, 2), place, file, progress, cycles)
            self._check(place, cycles)

    def _run_for(self, seconds: float, place: Path, file: Path, progress: np.ndarray, logs: int) -> None:
        """Run the process, and kill it after some time of work."""
        program = str(Path(__file__).with_name("orders_process.py"))
        before = progress.copy()
        command = [sys.executable, program, str(place), str(file), str(self.seed), str(logs)]
        with subprocess.Popen(command) as process:
            try:
                until(lambda: (progress > before).any() or process.poll() is not None, START_SECONDS)
                end = time.monotonic() + seconds
                while process.poll() is None and time.monotonic() < end:
                    time.sleep(0.01)
            finally:
                self.kills += process.poll() is None
                process.kill()
        assert process.returncode in (0, -9), f"the process ended with {process.returncode}"

    def _check(self, place: Path, logs: int) -> None:
        expected: dict[tuple[int, int], str] = {}
        for log in range(logs):
            for event in sorted(log_of(self.seed, log), key=lambda event: event.at):
                if event.is_delete:
                    expected.pop((log, event.key), None)
                else:
                    expected[log, event.key] = f"{event.at} of {log}"
        with drawn.database_at(place) as database:
            rows = database.table("t").scan(columns=["log", "key", "text"]).to_arrow().to_pylist()
        actual = {(row["log"], row["key"]): row["text"] for row in rows}
        wrong = {key for key in actual.keys() | expected.keys() if actual.get(key) != expected.get(key)}
        assert not wrong, f"{len(wrong)} keys differ from the sorted logs, such as {min(wrong)}"
        self.cycles += logs
        self.rows += len(rows)

    def __str__(self) -> str:
        return f"{self.cycles} logs in random orders, {self.kills} kills, {self.rows} rows as in the sorted logs"


if __name__ == "__main__":
    main(OrderCampaign, FEATURES)

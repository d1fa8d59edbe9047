"""Readers of a directory beside the process that has the store, which is killed and started again.

    python tests/campaigns/live/campaign.py --seconds 60 --seed 0
    python tests/campaigns/live/campaign.py --seconds 30 --seed 7 --options 'encryption=on'

`holder_process` changes the store in every way; `reader` says what each read must show. Some readers are open all the
time, in several threads; others are opened and closed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from tests.campaigns import options as drawn
from tests.campaigns.live.reader import LiveReader, Told

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "maintenance"})
_READERS = 4
_ROUND_SECONDS = 30.0


class LiveCampaign:
    """One run: a holder after another, and readers all the while."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = str(directory)
        self._random = Random(seed)
        self.told = Told()
        self.reads: Counter[str] = Counter()
        self.kills = self.openings = 0
        self.failures: list[BaseException] = []
        self._is_over = threading.Event()

    def run(self, seconds: float, is_enough: Callable[[], bool] = lambda: True) -> None:
        """Let holders write for some seconds, and until ``is_enough``. Raises Violation."""
        end, late = time.monotonic() + seconds, time.monotonic() + seconds + 60
        holder = self._start()
        with nyala.open(self._directory, read_only=True, **drawn.keywords()) as shared:
            threads = [
                threading.Thread(target=self._read, args=(number, shared if number % 2 else None), daemon=True)
                for number in range(_READERS)
            ]
            for each in threads:
                each.start()
            try:
                while not self.failures and (time.monotonic() < end or (not is_enough() and time.monotonic() < late)):
                    time.sleep(self._random.uniform(0.3, 2.0))
                    if self._random.random() < 0.6:
                        holder.kill()
                        self._ended(holder)
                        self.kills += 1
                        time.sleep(self._random.choice((0.0, 0.3)))  # nobody has it
                        holder = self._start()
            finally:
                self._is_over.set()
                for each in threads:
                    each.join(60)
                holder.kill()
                self._ended(holder)
        if self.failures:
            raise self.failures[0]
        assert not self.told.failure, self.told.failure

    def _start(self) -> subprocess.Popen[str]:
        """Start a holder, and return when it has the store open."""
        program = str(Path(__file__).with_name("holder_process.py"))
        command = [sys.executable, program, self._directory, str(self._random.randrange(1 << 30))]
        opened = self.told.openings
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        thread = threading.Thread(target=self._hear, args=(process,), daemon=True)
        process.__dict__["heard_by"] = thread
        thread.start()
        while self.told.openings == opened:
            assert process.poll() is None, "the holder ended"
            time.sleep(0.01)
        return process

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self.told.hear(line)

    def _ended(self, process: subprocess.Popen[str]) -> None:
        """Wait until all that a killed holder has said was heard."""
        process.wait()
        process.__dict__["heard_by"].join()
        assert process.stdout is not None
        process.stdout.close()

    def _read(self, number: int, shared: nyala.Database | None) -> None:
        random = Random(number)
        try:
            while not self._is_over.is_set():
                database: Any = shared or nyala.open(self._directory, read_only=True, **drawn.keywords())
                self.openings += shared is None
                reader = LiveReader(database, self.told, random.randrange(1 << 30))
                for _ in range(100_000 if shared else random.randrange(5, 60)):
                    if self._is_over.is_set():
                        break
                    reader.check()
                self.reads.update(reader.reads)
                if shared is None:
                    database.close()
        except BaseException as error:
            self.failures.append(error)

    def __str__(self) -> str:
        return f"{self.reads.total():,} reads, {self.openings} openings, {self.kills} kills: {dict(self.reads)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    swarm, rounds = drawn.swarm_of(FEATURES, options), max(2, round(options.seconds / _ROUND_SECONDS))
    for number in range(rounds):
        with swarm.round(number), tempfile.TemporaryDirectory(prefix="nyala-live-") as directory:
            campaign = LiveCampaign(Path(directory) / "store", options.seed + number)
            campaign.run(options.seconds / rounds)
        print(campaign, flush=True)


if __name__ == "__main__":
    main()

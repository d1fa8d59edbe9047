"""Kill -9 a process that writes one or two rows at once from several threads into its own store; look for each row.

    python tests/campaigns/crash/embedded.py --cycles 20 --seed 0

Each step of a writer follows from its number, so what must be there follows from how many steps it has taken: those
that were acknowledged, and perhaps the one that was on its way. Flushes and merges run beside the writers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from tests.campaigns import options as drawn
from tests.campaigns.crash.embedded_process import SCHEMA, open_store, step
from tests.campaigns.crash.kill9 import CYCLES_A_STORE, explicit_encodings, main

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "maintenance", "history_max_age_seconds"})
_WRITERS = 12
Cells = dict[int, tuple[Any, ...]]


def state_after(writer: int, steps: int) -> Cells:
    """Return the step and the text of each of a writer's rows."""
    rows: Cells = {}
    for number in range(steps):
        op, written = step(writer, number)
        for row in written:
            if op == "delete":
                del rows[row["number"]]
            else:
                rows[row["number"]] = row["step"], row.get("text", rows.get(row["number"], (0, ""))[1])
    return rows


@dataclass
class EmbeddedCampaign:
    """Counts over all cycles."""

    seed: int
    cycles: int = 0
    acknowledged: int = 0
    survived: int = 0
    swarm: drawn.Swarm = drawn.PLAIN

    def run(self, cycles: int) -> None:
        """Kill ``cycles`` times."""
        random = Random(self.seed)
        while self.cycles < cycles:
            with (
                self.swarm.round(self.cycles),
                tempfile.TemporaryDirectory(prefix="nyala-embedded-") as directory,
            ):
                with open_store(directory) as database:
                    options = explicit_encodings(SCHEMA) if random.random() < 0.5 else None
                    stored = drawn.columns(SCHEMA, options)
                    database.create_table("t", SCHEMA, ["writer", "number"], (), stored, **drawn.table())
                taken = [0] * _WRITERS
                for _ in range(min(CYCLES_A_STORE, cycles - self.cycles)):
                    self._cycle(directory, taken, random)

    def _cycle(self, directory: str, taken: list[int], random: Random) -> None:
        program = str(Path(__file__).with_name("embedded_process.py"))
        command = [sys.executable, program, directory, json.dumps(taken), str(random.randrange(1 << 30))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            lines = [process.stdout.readline()]
            time.sleep(random.uniform(0.02, 1.0))
            process.kill()
            lines += process.stdout.readlines()
        whole = [line for line in lines if line.endswith("\n")]
        assert whole, f"the process wrote nothing: exit code {process.returncode}"
        moments: dict[int, int] = {}
        for line in whole:
            writer, number, timestamp = map(int, line.split())
            assert number == taken[writer], "a writer has skipped a step"
            taken[writer], moments[writer] = number + 1, timestamp
        with open_store(directory) as database:
            self._check(database.table("t"), taken, moments)
        self.cycles += 1
        self.acknowledged += len(whole)
        print(f"cycle {self.cycles}: {self}", flush=True)

    def _check(self, table: nyala.Table, taken: list[int], moments: dict[int, int]) -> None:
        for writer, steps in enumerate(taken):
            known = state_after(writer, steps)
            if writer in moments:
                then = _rows(table, writer, moments[writer])
                assert then == known, (writer, steps, set(known.items()) ^ set(then.items()))
            now = _rows(table, writer)
            if now != known:
                known = state_after(writer, steps + 1)
                assert now == known, (writer, steps, set(known.items()) ^ set(now.items()))
                taken[writer] += 1
                self.survived += 1
            for number in list(known)[-3:]:
                row = table.get((writer, number))
                assert row is not None and (row["step"], row["text"]) == known[number], (writer, row)

    def __str__(self) -> str:
        return f"{self.acknowledged} rows acknowledged, 0 lost; {self.survived} that were not survived"


def _rows(table: nyala.Table, writer: int, as_of: int | None = None) -> Cells:
    rows = table.scan(where=f"writer = {writer}", as_of=as_of).to_arrow().to_pylist()
    found = {row["number"]: (row["step"], row["text"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


if __name__ == "__main__":
    main(EmbeddedCampaign, FEATURES)

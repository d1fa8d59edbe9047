"""Kill -9 a loaded server, start it again, and look for every row that was acknowledged.

    python tests/campaigns/crash/kill9.py --cycles 200 --seed 0
    python tests/campaigns/crash/kill9.py --cycles 10 --seed 7 --options 'flush_bytes=4000 encryption=on'

Writers insert, change and delete rows over Arrow Flight while maintenance goes on. After each kill the rows
of a writer must be those of its acknowledged batches, with the one that was on its way wholly there or wholly absent;
and earlier moments must read as before. The seed draws the operations and the moments of the kills. In
`retries.py` the clients live on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.schemas.cells.encoding import AUTO, encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import StoreError
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.table.column import ColumnOptions
from tests.campaigns import options as drawn
from tests.campaigns.crash.server_process import OPTIONS as SMALL
from tests.campaigns.model.oracle import Key, ModelSchema, Oracle, Plan, Row
from tests.doubles.processes import children_of, kill

SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int16(), False),
        pa.field("number", pa.int32(), False),
        pa.field("batch", pa.int32()),
        pa.field("text", pa.string()),
    ]
)
MODEL = ModelSchema(
    key=("writer", "number"),
    defaults={"batch": None, "text": None},
    merges={"batch": lambda old, new: (old or 0) + new},
)
OPTIONS = {"batch": ColumnOptions(merge="coalesce(batch, 0) + excluded.batch")}
FEATURES = drawn.Features(drawn.LOADS, allowed=drawn.ALLOWED)
CYCLES_A_STORE = 10
"""After so many the store is left behind and a new one begun, so that checking stays cheap."""
START_SECONDS, STOP_SECONDS = 60, 30
FIRST_ANSWER_SECONDS = 30
MOMENTS_CHECKED = 3
_OWN = ("flush_bytes", "flush_deltas_bytes", "wal_segment_bytes", "scan_threads")
_WARM = 0.8
"""So many of the kills wait for a first answer: where the machine is busy, many would come before any."""


def explicit_encodings(schema: pa.Schema) -> dict[str, ColumnOptions]:
    """Return for each column one encoding for all of its pages, the first after ``auto``, and the rule of merges."""
    kinds = {field.name: encodings_for(LogicalType.from_arrow(field)) for field in schema}
    first = {name: next(each for each in kinds[name] if each != AUTO) for name in kinds}
    return {name: OPTIONS.get(name, ColumnOptions()).model_copy(update={"encoding": first[name]}) for name in kinds}


class Server:
    """A server process on a directory; a ``with`` block ends in its death."""

    def __init__(self, directory: Path, port: int = 0, **options: Any) -> None:
        program = Path(__file__).with_name("server_process.py")
        words = [str(program), str(directory), str(port), json.dumps(options)]
        if "processes" in drawn.current().values:
            own = {**{name: getattr(SMALL, name) for name in _OWN}, **options}
            words = ["-m", "nyala", "serve", "--data", str(directory), "--listen", f"grpc://127.0.0.1:{port}", "--json"]
            words += drawn.flags(**own)
        command = [sys.executable, *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: exit code {self._process.wait(START_SECONDS)}")
        self.location: str = json.loads(line)["location"]

    def kill(self) -> None:
        below = list(children_of(self._process.pid)) if "processes" in drawn.current().values else []
        self._process.kill()
        for pid in below:
            kill(pid)
        self._process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self._process.terminate()
        return self._process.wait(STOP_SECONDS)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._process.stdout:
            self._process.stdout.close()


@dataclass
class Writer:
    """Writes its own rows, one batch at a time, and knows what must be there."""

    number: int
    random: Random
    oracle: Oracle = field(default_factory=lambda: Oracle(MODEL))
    pending: Plan | None = None
    moments: list[int] = field(default_factory=list)
    acknowledged: int = 0
    next_row: int = 0
    failure: BaseException | None = None

    def run(self, location: str) -> None:
        """Write until the server is gone."""
        try:
            with suppress(StoreError), nyala.connect(location, retries=False) as database:
                table = database.table("t")
                while True:
                    self._write(table)
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def _write(self, table: nyala.Table) -> None:
        op, rows = self.draw()
        plan = self.oracle.plan(op, rows)
        self.pending = plan
        result = table.write(rows, op, on_error="return")
        assert (result.rows, result.applied, result.ignored, result.errors) == plan.answer, (op, rows, result)
        self.oracle.commit(plan, result.timestamp)
        self.pending = None
        self.acknowledged += 1
        self.moments = [*self.moments[1 - MOMENTS_CHECKED :], result.timestamp]

    def draw(self) -> tuple[str, list[Row]]:
        """Return an operation that cannot be refused, on a few new or old rows."""
        op = self.random.choice(["insert", "insert", "upsert", "merge", "update_ignore", "delete_ignore"])
        count = self.random.choice([1, self.random.randint(1, 12)])  # single rows have a way of their own
        if op == "insert" or not self.next_row:
            numbers = range(self.next_row, self.next_row + count)
            self.next_row += count
            op = "insert"
        else:
            numbers = [self.random.randrange(self.next_row) for _ in range(count)]
        keys: list[Row] = [{"writer": self.number, "number": number} for number in numbers]
        if op == "delete_ignore":
            return op, keys
        batch = self.acknowledged
        cells = {"batch": batch} if op == "update_ignore" else {"batch": batch, "text": f"{batch} " * 30}
        return op, [key | cells for key in keys]

    def settle(self, found: dict[Key, Row], timestamp: int) -> bool:
        """Compare the rows found after a restart; return whether the batch in doubt is there."""
        known = self.oracle.now()
        pending, self.pending = self.pending, None
        # ``insert`` of a batch that is absent is drawn again under new numbers: nothing of it may appear later.
        if found == known:
            return False
        assert pending is not None, _difference(self.number, found, known)
        with_pending = {key: row for key, row in (known | pending.changes).items() if row is not None}
        assert found == with_pending, _difference(self.number, found, with_pending)
        self.oracle.commit(pending, timestamp)
        return True


def _difference(writer: int, found: dict[Key, Row], expected: dict[Key, Row]) -> str:
    lost = {key: row for key, row in expected.items() if found.get(key) != row}
    extra = {key: row for key, row in found.items() if expected.get(key) != row}
    return (
        f"writer {writer}: {len(lost)} rows lost or changed: {list(lost.items())[:3]}; found: {list(extra.items())[:3]}"
    )


@dataclass
class Campaign:
    """Counts over all cycles."""

    seed: int
    cycles: int = 0
    acknowledged: int = 0
    survived: int = 0
    vanished: int = 0
    rows_checked: int = 0
    swarm: drawn.Swarm = drawn.PLAIN

    def run(self, cycles: int) -> None:
        random = Random(self.seed)
        while self.cycles < cycles:
            with (
                self.swarm.round(self.cycles),
                tempfile.TemporaryDirectory(prefix="nyala-kill9-") as directory,
            ):
                writers = [Writer(number, Random(random.random())) for number in range(random.randint(2, 4))]
                for _ in range(min(CYCLES_A_STORE, cycles - self.cycles)):
                    self._cycle(Path(directory), writers, random)
                with Server(Path(directory)) as server:
                    self._check(server.location, writers)

    def _cycle(self, directory: Path, writers: list[Writer], random: Random) -> None:
        before = sum(writer.acknowledged for writer in writers)
        with Server(directory) as server:
            self._check(server.location, writers)
            threads = [threading.Thread(target=writer.run, args=(server.location,)) for writer in writers]
            threads.append(threading.Thread(target=_maintain_at_times, args=(server.location, Random(random.random()))))
            for thread in threads:
                thread.start()
            if random.random() < _WARM:
                wait_for_answers(writers, before + 1)
            time.sleep(random.uniform(0.02, 1.0))
            self._end(server, directory)
            for thread in threads:
                thread.join(STOP_SECONDS)
            assert not any(thread.is_alive() for thread in threads), "a client hangs after the server's death"
        for writer in writers:
            if writer.failure:
                raise writer.failure
        self.cycles += 1
        self.acknowledged += sum(writer.acknowledged for writer in writers) - before
        print(f"cycle {self.cycles}: {self}", flush=True)

    def _end(self, server: Server, directory: Path) -> None:
        server.kill()

    def _check(self, location: str, writers: list[Writer]) -> None:
        with nyala.connect(location) as database:
            damaged = database.health().damaged
            assert not damaged, damaged
            options = drawn.columns(SCHEMA, OPTIONS), True
            parts = [nyala.hash("writer", buckets=3)] if "processes" in drawn.current().values else []
            table = database.create_table("t", SCHEMA, ["writer", "number"], parts, *options, **drawn.table())
            now = database.now()
            found = _rows(table, now)
            for writer in writers:
                had_pending = writer.pending is not None
                survived = writer.settle({key: row for key, row in found.items() if key[0] == writer.number}, now)
                self.survived += survived
                self.vanished += had_pending and not survived
                for moment in writer.moments:
                    then = _rows(table, moment, f"writer = {writer.number}")
                    expected = writer.oracle.as_of(moment)
                    assert then == expected, _difference(writer.number, then, expected)
            self.rows_checked += len(found)

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} batches acknowledged, 0 lost; of those in doubt {self.survived} survived, "
            f"{self.vanished} did not; {self.rows_checked} rows checked"
        )


def wait_for_answers(writers: list[Writer], count: int) -> None:
    """Return when so many batches have been answered, or one cannot wait longer."""
    deadline = time.monotonic() + FIRST_ANSWER_SECONDS
    while sum(writer.acknowledged for writer in writers) < count and time.monotonic() < deadline:
        time.sleep(0.01)


def _rows(table: nyala.Table, as_of: int, where: str | None = None) -> dict[Key, Row]:
    rows = table.scan(as_of=as_of, where=where).to_arrow().to_pylist()
    found = {(row["writer"], row["number"]): row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def _maintain_at_times(location: str, random: Random) -> None:
    with suppress(StoreError), nyala.connect(location, retries=False) as database:
        table = database.table("t")
        while True:
            time.sleep(random.uniform(0, 0.2))
            table.maintain(random.choice(list(MaintenanceKind)))


class Kills(Protocol):
    """What all campaigns are."""

    cycles: int

    def run(self, cycles: int) -> None: ...


class KillsOf(Protocol):
    """What makes a campaign of a seed."""

    def __call__(self, seed: int, *, swarm: drawn.Swarm) -> Kills: ...


def main(campaign_of: KillsOf, features: drawn.Features) -> None:
    """Run the campaign of a seed for as many kills as the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    started = time.monotonic()
    campaign = campaign_of(options.seed, swarm=drawn.swarm_of(features, options))
    print(f"seed {options.seed}", flush=True)
    campaign.run(options.cycles)
    print(f"{campaign.cycles} cycles in {time.monotonic() - started:.0f} s: {campaign}")


if __name__ == "__main__":
    main(Campaign, FEATURES)

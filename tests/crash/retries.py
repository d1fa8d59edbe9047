"""Kill -9 a server again and again, each time start it on the same port, and let its clients find their own way back.

The writers live through all kills: their batches are numbered, and the client sends again what was not answered. No
call may fail, and in the end the change feed must show each batch once, at the moment of its answer, and nothing else.

    python tests/crash/retries.py --cycles 20 --seed 0
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa

import nyala
from nyala.schemas.errors import StoreError
from nyala.schemas.operation import Operation
from nyala.schemas.service import MaintenanceKind
from nyala.schemas.write import WriteCommand, WriteResult
from tests.crash.kill9 import CYCLES_A_STORE, MODEL, SCHEMA, Server, Writer, main
from tests.model.feed import feed
from tests.model.oracle import Plan

_ANSWERED_SECONDS = 60
"""A writer that gets no answer for so long has lost its way."""
_STREAM_BATCHES = 6
FEED = ("_op", "_timestamp", *MODEL.columns)


class PatientWriter(Writer):
    """A writer that never hears of the kills. Half of its batches go in streams, where several are on their way."""

    def run_until(self, location: str, stop: threading.Event) -> None:
        """Write until ``stop`` is set; the first thing that is wrong becomes ``failure``."""
        try:
            with nyala.connect(location) as database:
                table = database.table("t")
                while not stop.is_set():
                    if self.random.random() < 0.5:
                        self._write(table)
                    else:
                        self._stream(database)
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def _stream(self, database: nyala.Database) -> None:
        """Insert new rows in several batches of one stream."""
        plans: list[Plan] = []
        command = WriteCommand(table="t", op=Operation.INSERT)
        for number, result in enumerate(database._store.write_all(command, self._batches(plans))):
            self._take(plans[number], result)

    def _batches(self, plans: list[Plan]) -> Iterator[pa.RecordBatch]:
        for _ in range(_STREAM_BATCHES):
            first, self.next_row = self.next_row, self.next_row + self.random.randint(1, 12)
            rows = [
                {"writer": self.number, "number": number, "batch": self.acknowledged, "text": "streamed"}
                for number in range(first, self.next_row)
            ]
            plans.append(self.oracle.plan("insert", rows))
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)

    def _take(self, plan: Plan, result: WriteResult) -> None:
        assert (result.rows, result.applied, result.ignored, result.errors) == plan.answer, result
        self.oracle.commit(plan, result.timestamp)
        self.acknowledged += 1


@dataclass
class RetryCampaign:
    """Counts over all cycles."""

    seed: int
    cycles: int = 0
    acknowledged: int = 0
    changes_checked: int = 0

    def run(self, cycles: int) -> None:
        random = Random(self.seed)
        while self.cycles < cycles:
            with tempfile.TemporaryDirectory(prefix="nyala-kill9-") as directory:
                self._one_store(Path(directory), min(CYCLES_A_STORE, cycles - self.cycles), random)

    def _one_store(self, directory: Path, cycles: int, random: Random) -> None:
        writers = [PatientWriter(number, Random(random.random())) for number in range(random.randint(2, 4))]
        stop = threading.Event()
        server = Server(directory, _free_port())
        location, port = server.location, int(server.location.rpartition(":")[2])
        with nyala.connect(location) as database:
            database.create_table("t", SCHEMA, ["writer", "number"])
            start = database.now()
        threads = [threading.Thread(target=each.run_until, args=(location, stop)) for each in writers]
        threads.append(threading.Thread(target=_maintain_until, args=(location, stop, Random(random.random()))))
        for thread in threads:
            thread.start()
        try:
            for _ in range(cycles):
                _wait_until_all_are_answered(writers)
                time.sleep(random.uniform(0.0, 0.8))
                server.__exit__()
                server = Server(directory, port)
                self.cycles += 1
                print(f"cycle {self.cycles}: {self._tally(writers)}", flush=True)
            _wait_until_all_are_answered(writers)
            stop.set()
            for thread in threads:
                thread.join(_ANSWERED_SECONDS)
            assert not any(thread.is_alive() for thread in threads), "a client hangs"
            self._check(location, writers, start)
        finally:
            stop.set()
            server.__exit__()

    def _check(self, location: str, writers: list[PatientWriter], start: int) -> None:
        """Compare every change that was ever made with what was acknowledged."""
        raise_failures(writers)
        with nyala.connect(location) as database:
            until = database.now()
            found = database.table("t").changes(start, until, every=True, ordered=True).to_arrow()
        assert found.schema.names == list(FEED)
        expected = [
            tuple(change.cells(MODEL.columns, False))
            for writer in writers
            for change in feed(writer.oracle, start, until, every=True)
        ]
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert rows == expected, (
            f"lost: {sorted(set(expected).difference(rows))[:3]}; "
            f"not acknowledged: {sorted(set(rows).difference(expected))[:3]}"
        )
        self.changes_checked += len(rows)
        self.acknowledged += sum(writer.acknowledged for writer in writers)

    def _tally(self, writers: list[PatientWriter]) -> str:
        return f"{self.acknowledged + sum(writer.acknowledged for writer in writers)} batches acknowledged"

    def __str__(self) -> str:
        return f"{self.acknowledged} batches acknowledged, each applied once; {self.changes_checked} changes checked"


def raise_failures(writers: list[PatientWriter]) -> None:
    """Raise what a writer met."""
    for writer in writers:
        if writer.failure:
            raise writer.failure


def _wait_until_all_are_answered(writers: list[PatientWriter]) -> None:
    """Return when every writer has got an answer from now on: then it has found the server."""
    before = [writer.acknowledged for writer in writers]
    deadline = time.monotonic() + _ANSWERED_SECONDS
    while any(writer.acknowledged == count for writer, count in zip(writers, before, strict=True)):
        raise_failures(writers)
        assert time.monotonic() < deadline, "a writer gets no answers any more"
        time.sleep(0.01)


def _maintain_until(location: str, stop: threading.Event, random: Random) -> None:
    with nyala.connect(location, retries=False) as database:
        while not stop.wait(random.uniform(0, 0.2)):
            with suppress(StoreError):
                database.table("t").maintain(random.choice(list(MaintenanceKind)))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


if __name__ == "__main__":
    main(RetryCampaign)

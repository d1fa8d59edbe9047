"""Kill -9 a server again and again, each time start it on the same port, and let its clients find their own way back.

The writers live through all kills: their batches are numbered, and the client sends again what was not answered. No
call may fail, and in the end the change feed must show each batch once, at the moment of its answer, and nothing else.

    python tests/campaigns/crash/retries.py --cycles 20 --seed 0
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.schemas.errors import StoreError
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand, WriteResult
from tests.campaigns.crash.kill9 import MODEL, OPTIONS, SCHEMA, Writer, main
from tests.campaigns.crash.survivors import FEATURES, Survivor, SurvivorCampaign
from tests.campaigns.model.feed import feed
from tests.campaigns.model.oracle import Plan
from tests.campaigns.options import columns, table

_STREAM_BATCHES = 6
FEED = ("_op", "_timestamp", *MODEL.columns)


class PatientWriter(Writer):
    """A writer that never hears of the kills. Half of its batches go in streams, where several are on their way."""

    @property
    def done(self) -> int:
        return self.acknowledged

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
class RetryCampaign(SurvivorCampaign):
    """Counts over all cycles."""

    acknowledged: int = 0
    changes_checked: int = 0

    def clients(
        self, database: nyala.Database, location: str, stop: threading.Event, random: Random
    ) -> tuple[Sequence[Survivor], list[Callable[[], None]]]:
        self._writers = [PatientWriter(number, Random(random.random())) for number in range(random.randint(2, 4))]
        database.create_table("t", SCHEMA, ["writer", "number"], (), columns(SCHEMA, OPTIONS), **table())
        self._start = database.now()
        work = [partial(each.run_until, location, stop) for each in self._writers]
        return self._writers, [*work, partial(maintain_until, location, stop, Random(random.random()))]

    def check(self, database: nyala.Database) -> None:
        """Compare every change that was ever made with what was acknowledged."""
        start, until = self._start, database.now()
        found = database.table("t").changes(start, until, every=True, ordered=True).to_arrow()
        assert found.schema.names == list(FEED)
        expected = [
            tuple(change.cells(MODEL.columns, False))
            for writer in self._writers
            for change in feed(writer.oracle, start, until, every=True)
        ]
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert rows == expected, (
            f"lost: {sorted(set(expected).difference(rows))[:3]}; "
            f"not acknowledged: {sorted(set(rows).difference(expected))[:3]}"
        )
        self.changes_checked += len(rows)
        self.acknowledged += sum(writer.acknowledged for writer in self._writers)

    def __str__(self) -> str:
        return f"{self.acknowledged} batches acknowledged, each applied once; {self.changes_checked} changes checked"


def maintain_until(location: str, stop: threading.Event, random: Random) -> None:
    """Flush and merge at random times until ``stop`` is set."""
    with nyala.connect(location, retries=False) as database:
        while not stop.wait(random.uniform(0, 0.2)):
            with suppress(StoreError):
                database.table("t").maintain(random.choice(list(MaintenanceKind)))


if __name__ == "__main__":
    main(RetryCampaign, FEATURES)

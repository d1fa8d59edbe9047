"""Kill -9 a server again and again while clients read: each scan must show every row of its snapshot once.

One server is killed at random moments and started again on its port. Readers never hear of it: they scan in every way
there is, some slowly, some in key order, some with a limit, and compare row by row with what the table held at the
snapshot. Writers and all maintenance go on meanwhile, so that after a restart rows lie elsewhere than before.

    python tests/campaigns/crash/scans.py --cycles 50 --seed 0
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nyala
from nyala.clients.flight import server_wait
from nyala.schemas.errors import StoreError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.crash.kill9 import main
from tests.campaigns.crash.survivors import FEATURES, Survivor, SurvivorCampaign
from tests.campaigns.options import columns
from tests.campaigns.options import table as options

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.int64()), ("w", pa.binary())])
ROWS = 60_000
OPTIONS = {"flush_bytes": 1 << 20, "flush_deltas_bytes": 256 << 10, "scan_batch_bytes": 128 << 10, "scan_threads": 0}


def rows(keys: np.ndarray, value: int, random: Random) -> pa.RecordBatch:
    """Return rows that are large and do not compress, so that a scan does not fit into the buffers on its way."""
    text = pa.array([f"{key % 97}-{key}" for key in keys.tolist()])
    blobs = pa.array([random.randbytes(200) for _ in range(len(keys))])
    return pa.record_batch([pa.array(keys), text, pa.array(np.full(len(keys), value)), blobs], schema=SCHEMA)


@dataclass
class Truth:
    """What the table holds at a snapshot, and what changed up to it."""

    snapshot: int
    since: int
    rows: pa.Table
    changes: pa.Table

    @classmethod
    def of(cls, table: nyala.Table, since: int, snapshot: int) -> Truth:
        """Read it while nobody is killed."""
        feed = table.changes(since, snapshot, every=True).to_arrow()
        return cls(snapshot, since, in_order(table.scan(as_of=snapshot).to_arrow()), in_order(feed))


def in_order(found: pa.Table) -> pa.Table:
    """Sort by key, changes by key and moment."""
    by = [(name, "ascending") for name in ("k", "_timestamp") if name in found.schema.names]
    return found.take(pc.sort_indices(found, sort_keys=by)).combine_chunks()


class Reader:
    """Reads and compares, whatever becomes of the server."""

    def __init__(self, table: nyala.Table, truth: Truth, random: Random) -> None:
        self._table, self._truth, self._random = table, truth, random
        self.done = 0
        self.failure: BaseException | None = None

    def run_until(self, stop: threading.Event) -> None:
        """Read until ``stop`` is set; the first thing that is wrong becomes ``failure``."""
        ways = [self.rows, self.ordered, self.limited, self.part, self.changes, self.arrow, self.small]
        try:
            while not stop.is_set():
                self._random.choice(ways)()
                self.done += 1
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def rows(self) -> None:
        """All rows, batch by batch, as slowly as a reader may be."""
        self._same(self._slowly(self._table.scan(as_of=self._truth.snapshot)), self._truth.rows)

    def ordered(self) -> None:
        """In the order of the key."""
        found = self._slowly(self._table.scan(as_of=self._truth.snapshot, ordered=True))
        assert found.equals(self._truth.rows), "rows in key order are not those of the snapshot"

    def limited(self) -> None:
        """The first rows in the order of the key, and any so many rows."""
        limit = self._random.randint(1, ROWS)
        first = self._slowly(self._table.scan(as_of=self._truth.snapshot, ordered=True, limit=limit))
        assert first.equals(self._truth.rows.slice(0, limit).combine_chunks()), f"not the first {limit} rows"
        some = self._slowly(self._table.scan(as_of=self._truth.snapshot, limit=limit, columns=["k"]))
        assert some.num_rows == pc.count_distinct(some["k"]).as_py() == min(limit, self._truth.rows.num_rows)

    def part(self) -> None:
        """Some columns of the rows that a filter selects, without their key."""
        least = self._random.randrange(ROWS)
        found = self._slowly(self._table.scan(["v", "s"], f"k >= {least}", as_of=self._truth.snapshot, ordered=True))
        wanted = self._truth.rows.filter(pc.field("k") >= least).select(["v", "s"]).combine_chunks()
        assert found.equals(wanted), f"not the rows from {least} on"

    def changes(self) -> None:
        """Every change up to the snapshot."""
        is_ordered = self._random.random() < 0.5
        feed = self._table.changes(self._truth.since, self._truth.snapshot, every=True, ordered=is_ordered)
        self._same(self._slowly(feed), self._truth.changes)

    def arrow(self) -> None:
        """At one go, in the ways that libraries read."""
        scan = self._table.scan(as_of=self._truth.snapshot)
        ways: list[Callable[[], pa.Table]] = [
            scan.to_arrow,
            lambda: scan.to_reader().read_all(),
            lambda: pa.table(scan),
            lambda: pa.Table.from_pandas(scan.to_pandas(), self._truth.rows.schema, preserve_index=False),
        ]
        self._same(self._random.choice(ways)(), self._truth.rows)

    def small(self) -> None:
        """Point reads, counts, aggregates and look-ups."""
        row = self._truth.rows.slice(self._random.randrange(self._truth.rows.num_rows), 1).to_pylist()[0]
        for _ in range(20):
            scan = self._table.scan(as_of=self._truth.snapshot)
            assert scan.count() == self._truth.rows.num_rows
            total = scan.aggregate({"v": ("v", "sum")})["v"][0].as_py()
            assert total == pc.sum(self._truth.rows["v"]).as_py()
            if (found := self._table.get(row["k"])) is not None:
                assert found["s"] == row["s"]
            assert self._table.describe()["name"] == "t"

    def _slowly(self, scan: nyala.Scan) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        pause = self._random.choice([0, 0, 0.002, 0.02])
        for batch in scan:
            batches.append(batch)
            time.sleep(pause)
        if not batches:
            return scan.to_arrow()
        return pa.Table.from_batches(batches).combine_chunks()

    def _same(self, found: pa.Table, wanted: pa.Table) -> None:
        found = in_order(found)
        lost = len(wanted) - len(found)
        assert found.equals(wanted), f"not the rows of the snapshot: {lost:+} rows are missing, or some differ"


@dataclass
class ScanCampaign(SurvivorCampaign):
    """Counts over all cycles."""

    cycles_a_store = 25
    options = OPTIONS
    pause_seconds = 0.6
    stuck_seconds = 180

    reads: int = 0

    @patch.object(server_wait, "_PAUSES", (0.2,) * 600)  # however slow the machine is, the server is back by then
    def run(self, cycles: int) -> None:
        super().run(cycles)

    def clients(
        self, database: nyala.Database, location: str, stop: threading.Event, random: Random
    ) -> tuple[Sequence[Survivor], list[Callable[[], None]]]:
        table = database.create_table("t", SCHEMA, ["k"], [nyala.hash("k", buckets=2)], columns(SCHEMA), **options())
        truth = _loaded(database, table, random)
        self._readers = [Reader(table, truth, Random(random.random())) for _ in range(3)]
        work = [partial(each.run_until, stop) for each in self._readers]
        return self._readers, [*work, partial(_write_until, table, stop, Random(random.random()))]

    def check(self, database: nyala.Database) -> None:
        """Count the reads: each was compared when it ended."""
        self.reads += sum(each.done for each in self._readers)

    def __str__(self) -> str:
        return f"{self.reads} reads, each with all rows of its snapshot once"


def _loaded(database: nyala.Database, table: nyala.Table, random: Random) -> Truth:
    """Load rows in an order that makes rowsets overlap, change some, and say what is there then."""
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(ROWS)
    for part in np.array_split(order, 10):
        table.insert(rows(part, 0, random))
    since = database.now()
    table.upsert(rows(order[: ROWS // 10], 1, random))
    table.delete({"k": order[ROWS // 10 : ROWS // 8].tolist()})
    table.insert(rows(np.arange(ROWS, ROWS + 2_000), 2, random))
    return Truth.of(table, since, database.now())


def _write_until(table: nyala.Table, stop: threading.Event, random: Random) -> None:
    """Change rows, and let all kinds of maintenance move them."""
    value = 10
    while not stop.is_set():
        with suppress(StoreError):
            first = random.randrange(ROWS)
            table.upsert(rows(np.arange(first, first + 300), value, random))
            table.maintain(random.choice(list(MaintenanceKind)))
        value += 1
        stop.wait(random.uniform(0, 0.3))


if __name__ == "__main__":
    main(ScanCampaign, FEATURES)

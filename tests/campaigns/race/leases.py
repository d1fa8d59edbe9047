"""Scans of many tablets that take far longer than the history they read, while rows change and history is collected.

Tables keep a second of history. Writers change rows all the time, and flushes, compactions and the collection of
history run after one another. Each reader plans a scan and reads its parts slowly, some in any order, as tasks of Spark
do. Each scan must be the state at its snapshot: every row says in which round it was written, and a round is one
commit.

    python tests/campaigns/race/leases.py --seconds 600 --seed 0
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa

import nyala
from nyala.clients.flight.store import FlightStore
from nyala.engine.options import StoreOptions
from nyala.flight_server.server import FlightServer
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.rows.scan import ScanSpec
from tests.campaigns import options as drawn

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "maintenance"}, without={"budget_bytes"})
"""A small budget leaves planned scans too little of what they keep."""
SCHEMA = pa.schema([("id", pa.int64()), ("round", pa.int64()), ("text", pa.string())])
ROWS = 4_000
TABLETS = 8
_JOIN_SECONDS = 120


@dataclass
class LeaseCampaign:
    """One store, its writers and readers."""

    seed: int
    scan_seconds: float
    """How long a reader takes for one scan, about: more than the history."""
    scans: int = 0
    rounds: int = 0
    oldest_seconds: float = 0.0
    """The age that the snapshot of a scan had when its last row came."""
    failures: list[BaseException] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Run for so long, and until every reader has come to an end."""
        stop = threading.Event()
        with tempfile.TemporaryDirectory(prefix="nyala-leases-") as directory:
            store = drawn.store_at(directory, StoreOptions(flush_bytes=1 << 20, scan_batch_bytes=32 << 10))
            server = FlightServer(store, "grpc://127.0.0.1:0")
            url = f"grpc://127.0.0.1:{server.port}"
            try:
                with nyala.connect(url) as database:
                    table = _made(database)
                    threads = [
                        threading.Thread(target=self._guarded, args=(work, url, stop, Random(self.seed + number)))
                        for number, work in enumerate(
                            (self._write, self._maintain, self._read, self._read, self._parts)
                        )
                    ]
                    for thread in threads:
                        thread.start()
                    stop.wait(seconds)
                    stop.set()
                    for thread in threads:
                        thread.join(_JOIN_SECONDS)
                    assert not any(thread.is_alive() for thread in threads), "a client hangs"
                    if self.failures:
                        raise self.failures[0]
                    assert table.scan().count() == ROWS
            finally:
                stop.set()
                server.shutdown()
                store.close()

    def _guarded(self, work: Callable[..., None], url: str, stop: threading.Event, random: Random) -> None:
        try:
            with nyala.connect(url) as database:
                work(database.table("t"), stop, random)
        except BaseException as error:  # the main thread raises it
            self.failures.append(error)
            stop.set()

    def _write(self, table: nyala.Table, stop: threading.Event, random: Random) -> None:
        """Each round is one commit of all rows."""
        while not stop.wait(random.uniform(0, 0.2)):
            self.rounds += 1
            table.upsert(_round(self.rounds), atomic=True)

    def _maintain(self, table: nyala.Table, stop: threading.Event, random: Random) -> None:
        """All kinds of maintenance, and columns that come and go."""
        while not stop.wait(random.uniform(0, 0.2)):
            table.maintain(random.choice(list(MaintenanceKind)))
            if random.random() < 0.1:
                table.alter().add_column("more", "int64").apply()
                table.alter().drop_column("more").apply()

    def _read(self, table: nyala.Table, stop: threading.Event, random: Random) -> None:
        """Iterate slowly, ordered or not."""
        while not stop.is_set():
            columns = random.choice([["id", "round", "text"], ["id", "round"]])
            began = time.monotonic()
            batches: list[pa.RecordBatch] = []
            for batch in table.scan(columns, ordered=random.random() < 0.5):
                batches.append(batch)
                stop.wait(self.scan_seconds / TABLETS)
            self._check(pa.Table.from_batches(batches), began)

    def _parts(self, table: nyala.Table, stop: threading.Event, random: Random) -> None:
        """Read tickets in any order and at any time, as tasks of Spark do."""
        store = table._store
        assert isinstance(store, FlightStore)
        while not stop.is_set():
            parts = store.parts(ScanSpec(table="t", columns=["id", "round"], split_bytes=random.choice([None, 20_000])))
            began = time.monotonic()
            found: list[pa.RecordBatch] = []
            for part in random.sample(parts.parts, len(parts.parts)):
                stop.wait(self.scan_seconds / len(parts.parts))
                found += store.read_part(part)
            self._check(pa.Table.from_batches(found), began)

    def _check(self, found: pa.Table, began: float) -> None:
        ids, rounds = found["id"].to_numpy(), found["round"].to_numpy()
        assert sorted(ids.tolist()) == list(range(ROWS)), f"{len(ids)} rows, {len(set(ids.tolist()))} of them distinct"
        assert len(set(rounds.tolist())) == 1, f"rows of the rounds {sorted(set(rounds.tolist()))} in one scan"
        self.scans += 1
        self.oldest_seconds = max(self.oldest_seconds, time.monotonic() - began)


def _made(database: nyala.Database) -> nyala.Table:
    parts = [nyala.hash("id", buckets=TABLETS)]
    options = drawn.table(history_max_age_seconds=1)
    table = database.create_table("t", SCHEMA, ["id"], parts, drawn.columns(SCHEMA), **options)
    table.insert(_round(0))
    return table


def _round(number: int) -> pa.Table:
    return pa.table([np.arange(ROWS), np.full(ROWS, number), [f"{number}-{row}" for row in range(ROWS)]], schema=SCHEMA)


def main() -> None:
    """Run the campaign that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scan-seconds", type=float, default=8)
    drawn.add_to(parser)
    options = parser.parse_args()
    campaign = LeaseCampaign(options.seed, options.scan_seconds)
    with drawn.swarm_of(FEATURES, options).round(0):
        campaign.run(options.seconds)
    print(
        f"seed {options.seed}: {campaign.scans} scans of one snapshot each, up to {campaign.oldest_seconds:.0f} s old "
        f"under 1 s of history, {campaign.rounds} rounds written meanwhile"
    )


if __name__ == "__main__":
    main()

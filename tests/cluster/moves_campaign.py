"""Tablets that move all the time between three servers, by two who know nothing of each other, beside everything else.

    python tests/cluster/moves_campaign.py --seconds 60 --seed 0 [--bucket]

Meanwhile all rows are written over and over, each scan is made in several ways at one snapshot, and files are flushed
and compacted. Every scan has all rows and the same in all ways; at the end the rows are those of the last write.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))

from cluster import Cluster

import nyala
from nyala.clients.api.table import Table
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    NotFoundError,
    UnavailableError,
    WrongServerError,
)

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
ROWS = 300
LOST = (
    ConflictError,
    NotFoundError,
    UnavailableError,
    WrongServerError,
    AlreadyPresentError,
)
"""What a move may end with when somebody else moves the same tablet."""


class Campaign:
    """What runs at the same time, until ``stop`` is set or something fails."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self.table = cluster.connect().create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=6)])
        self.table.insert(rows(0))

    def run(self, seconds: float) -> None:
        movers = [lambda number=number: self.move(Random(self.seed * 10 + number)) for number in range(2)]
        tasks = [*movers, self.write, self.scan, lambda: self.maintain(Random(self.seed))]
        threads = [threading.Thread(target=self.until_stopped, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]
        found = self.table.scan(ordered=True).to_arrow().combine_chunks()
        assert found == rows(self.counts["writes"]).combine_chunks()

    def until_stopped(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            self.failed.append(error)
            self.stop.set()

    def mine(self) -> Table:
        return self.cluster.connect().table("t")

    def move(self, random: Random) -> None:
        db = self.cluster.connect()
        while not self.stop.is_set():
            place = random.choice(db.table("t").tablets())
            try:
                db.move_tablet("t", place.tablet, random.choice("abc"), server=place.server)
                self.counts["moves"] += 1
            except LOST:
                self.counts["moves that lost to another"] += 1

    def write(self) -> None:
        table = self.mine()
        while not self.stop.is_set():
            table.upsert(rows(self.counts["writes"] + 1))
            self.counts["writes"] += 1

    def scan(self) -> None:
        table = self.mine()
        while not self.stop.is_set():
            moment = table._store.now()
            found = table.scan(as_of=moment).to_arrow().sort_by("id").combine_chunks()
            assert found["id"].to_pylist() == list(range(ROWS))
            assert table.scan(as_of=moment, ordered=True).to_arrow().combine_chunks() == found
            total = table.scan(as_of=moment).aggregate({"sum": ("n", "sum")})["sum"][0].as_py()
            assert total == sum(found["n"].to_pylist())
            self.counts["scans"] += 1

    def maintain(self, random: Random) -> None:
        table = self.mine()
        while not self.stop.wait(0.05):
            try:
                table.maintain(random.choice(["flush", "flush_deltas", "compact", "gc"]))
                self.counts["maintained"] += 1
            except UnavailableError:  # a tablet has gone meanwhile
                continue


def rows(n: int) -> pa.Table:
    return pa.table([pa.array(range(ROWS)), pa.array([n] * ROWS)], schema=SCHEMA)


def check_bucket(url: str) -> None:
    """Nothing that a store needs is missing, and once it was opened again and swept nothing is left of moves."""
    for name in "abc":
        Store.open(home_at(url, name), StoreOptions(maintenance="off")).close()
        sweep(home_at(url, name))
        report = verify_bucket(home_at(url, name))
        assert report.is_sound and not report.notes, (report.problems, report.notes)
        assert not leftovers(home_at(url, name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bucket", action="store_true", help="the stores are in one bucket, which copies files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if asked.bucket:
            os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        cluster = Cluster(place, "abc", bucket=f"file://{place}/bucket" if asked.bucket else None)
        campaign = Campaign(cluster, asked.seed)
        campaign.run(asked.seconds)
        cluster.close()
        if asked.bucket:
            check_bucket(f"file://{place}/bucket")
    print(f"seed {asked.seed}: " + ", ".join(f"{count:,} {what}" for what, count in campaign.counts.items()))


if __name__ == "__main__":
    main()

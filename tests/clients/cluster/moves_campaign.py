"""Tablets that move all the time between servers, by two who know nothing of each other, beside everything else.

    python tests/clients/cluster/moves_campaign.py --seconds 60 --seed 0 [--bucket]
    python tests/clients/cluster/moves_campaign.py --seconds 600 --seed 0 --way directory
    python tests/clients/cluster/moves_campaign.py --seconds 600 --seed 0 --way moto

Meanwhile all rows are written over and over, each scan is made in several ways at one snapshot, and files are flushed
and compacted. Every scan has all rows and the same in all ways; none is stale, and a snapshot shows the same again. At
the end the rows are those of the last write, and the change feed has each write once.

The servers are three in this process; or with ``--way`` two names of a bucket, each with two processes, which are
killed, stopped and cut off (``move_faults.py``). Then it goes in rounds. After each the servers are balanced and
checked, each tablet moves again, and after some rounds the stores are checked: what is in the bucket is what they need.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.clients.api.database import Database
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
from tests.campaigns import options as drawn
from tests.clients.cluster.cluster import Cluster

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
_SNAPSHOTS = 20
_PAUSE_SECONDS = 0.02


class Servers(Protocol):
    """The servers of a campaign."""

    def connect(self) -> Database:
        """Return a database of all of them."""
        ...


class Campaign:
    """What runs at the same time, until ``stop`` is set or something fails."""

    def __init__(self, cluster: Servers, seed: int, names: str = "abc", is_failing: bool = False) -> None:
        """If ``is_failing``, calls may find no server, and are made again."""
        self.cluster = cluster
        self.names = names
        self.random = Random(seed)
        self.stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self.sent = self.acknowledged = 0
        """The newest value that was written to all rows, and that of which this is known."""
        self.snapshots: list[tuple[int, pa.Table]] = []
        self._away = (UnavailableError,) if is_failing else ()
        self._moves_away = (*LOST, *self._away)
        self.db = cluster.connect()
        parts, columns = [nyala.hash("id", buckets=6)], drawn.columns(SCHEMA)
        self.table = self.db.create_table("t", SCHEMA, ["id"], parts, columns, **drawn.table())
        self.followed = self.table._store.now(), -1
        """Up to which moment the change feed was read, and the value that all rows had then."""
        self.table.insert(rows(0))

    def run(self, during: Callable[[], object]) -> None:
        """Do everything at once, until ``during`` returns; then check all rows."""
        self.stop.clear()
        movers = [lambda: self.move(Random(self.random.random())) for _ in range(2)]
        tasks = [*movers, self.write, self.scan, lambda: self.maintain(Random(self.random.random()))]
        threads = [threading.Thread(target=self.until_stopped, args=(task,), daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        try:
            during()
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        self.raise_failure()
        self.check_rows()

    def raise_failure(self) -> None:
        """Raise the first failure, if there is one."""
        if self.failed:
            raise self.failed[0]

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
            try:
                place = random.choice(db.table("t").tablets())
                db.move_tablet("t", place.tablet, random.choice(self.names), server=place.server)
                self.counts["moves"] += 1
            except self._moves_away:
                self.counts["moves that lost to another"] += 1

    def write(self) -> None:
        table = self.mine()
        while not self.stop.is_set():
            self.sent = self.acknowledged + 1
            while True:  # until it is acknowledged
                try:
                    table.write(rows(self.sent), "upsert", writer="campaign", seq=self.sent)
                    break
                except self._away:
                    self.counts["writes that were repeated"] += 1
                    time.sleep(_PAUSE_SECONDS)
            self.acknowledged = self.sent
            self.counts["writes"] += 1

    def scan(self) -> None:
        table = self.mine()
        while not self.stop.is_set():
            try:
                self.scan_now(table)
                self.scan_again(table)
            except self._away:
                self.counts["scans that found no server"] += 1
                time.sleep(_PAUSE_SECONDS)

    def scan_now(self, table: Table) -> None:
        least = self.acknowledged
        moment = table._store.now()
        found = table.scan(as_of=moment).to_arrow().sort_by("id").combine_chunks()
        most = self.sent
        assert found["id"].to_pylist() == list(range(ROWS))
        values = found["n"].to_numpy()
        what = f"{values.min()} to {values.max()}, not {least} to {most}"
        assert least <= values.min() and values.max() <= most, what
        assert table.scan(as_of=moment, ordered=True).to_arrow().combine_chunks() == found
        total = table.scan(as_of=moment).aggregate({"sum": ("n", "sum")})["sum"][0].as_py()
        assert total == int(values.sum())
        self.snapshots = [*self.snapshots[-_SNAPSHOTS:], (moment, found)]
        self.counts["scans"] += 1

    def scan_again(self, table: Table) -> None:
        moment, known = Random(self.counts["scans"]).choice(self.snapshots)
        found = table.scan(as_of=moment, ordered=True).to_arrow().combine_chunks()
        assert found == known, f"the snapshot {moment} has changed"

    def maintain(self, random: Random) -> None:
        table = self.mine()
        while not self.stop.wait(0.05):
            try:
                table.maintain(random.choice(["flush", "flush_deltas", "compact", "gc"]))
                self.counts["maintained"] += 1
            except UnavailableError:  # a tablet has gone meanwhile
                continue

    def check_rows(self) -> None:
        """Every row has the value of the last write, and had each one before once."""
        found = self.table.scan(ordered=True).to_arrow().combine_chunks()
        assert found == rows(self.acknowledged).combine_chunks(), set(found["n"].to_pylist())
        since, value = self.followed
        until = self.table._store.now()
        feed = self.table.changes(since, until, every=True, ordered=True).to_arrow()
        expected = np.arange(value + 1, self.acknowledged + 1)
        assert (feed["id"].to_numpy() == np.repeat(np.arange(ROWS), len(expected))).all(), "rows of the change feed"
        assert (feed["n"].to_numpy() == np.tile(expected, ROWS)).all(), "values of the change feed"
        self.followed = until, self.acknowledged
        self.counts["changes"] += feed.num_rows


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


def run_here(seconds: float, seed: int, folder: Path, bucket: str | None) -> Counter[str]:
    """Move tablets between servers in this process."""
    if bucket:
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    cluster = Cluster(folder, "abc", bucket=bucket)
    try:
        campaign = Campaign(cluster, seed)
        campaign.run(lambda: campaign.stop.wait(seconds))
    finally:
        cluster.close()
    if bucket:
        check_bucket(bucket)
    return campaign.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bucket", action="store_true", help="the stores are in one bucket, which copies files")
    parser.add_argument("--way", choices=["directory", "moto"], help="real processes over such a bucket, which fail")
    parser.add_argument("--lease", type=float, default=2.0, help="lease_seconds of the processes")
    parser.add_argument("--only", default="", help="one of the faults, by the name of its function")
    parser.add_argument(
        "--planted", default="", help="a mistake that it must find: see tests/campaigns/failover/planted.py"
    )
    drawn.add_to(parser)
    asked = parser.parse_args()
    features = drawn.IN_BUCKET if asked.way or asked.bucket else drawn.Features(drawn.LOADS)
    unmaintained = replace(features, without={*features.without, *drawn.OF_MAINTENANCE})
    swarm = drawn.swarm_of(features if asked.way else unmaintained, asked)
    with swarm.round(0), tempfile.TemporaryDirectory(prefix="nyala-moves-") as folder:
        if asked.way:
            from tests.clients.cluster.failing_moves import run_served

            plan = asked.way, asked.lease, asked.planted, asked.only
            counts = run_served(asked.seconds, asked.seed, Path(folder), *plan)
        else:
            bucket = f"file://{folder}/bucket" if asked.bucket else None
            counts = run_here(asked.seconds, asked.seed, Path(folder), bucket)
    print(f"seed {asked.seed}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    main()

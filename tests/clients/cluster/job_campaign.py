"""Jobs on a table of three servers, whose tablets have equal numbers and move meanwhile, compared row by row.

    python tests/clients/cluster/job_campaign.py --seconds 60 --seed 0

Each turn makes one job at random, by the placement or by the URL of one server, at one snapshot, beside a mover and a
writer: what it wrote has to be the rows of the table at that snapshot, as a plain mirror knows them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.clients.api.database import Database
from nyala.clients.jobs.link import Store
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store as EngineStore
from nyala.jobs import apply_changes, backup, checksum, copy_table, export, load, restore, verify
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    WrongServerError,
)
from tests.campaigns import options as drawn
from tests.clients.cluster.cluster import Cluster

FEATURES = drawn.Features(drawn.LOADS, without=drawn.OF_MAINTENANCE)
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string()), ("n", pa.int64())])
KEYS = 600
SPLIT_BYTES = 400
LOST = (ConflictError, NotFoundError, UnavailableError, WrongServerError, AlreadyPresentError, InvalidArgumentError)
"""What a move may end with when a tablet is not where it was looked for."""


def rows(ids: range | list[int], turn: int = 0) -> pa.Table:
    """Rows that are others in every turn."""
    return pa.table(
        [
            pa.array(ids, pa.int64()),
            pa.array([None if i % 7 == 3 else f"{turn} {'x' * (i % 9)}" for i in ids], pa.string()),
            pa.array([i * 1000 + turn for i in ids], pa.int64()),
        ],
        schema=SCHEMA,
    )


def by_key(found: pa.Table) -> list[dict]:
    """Rows in the order of the key, to be compared one by one."""
    return found.select(SCHEMA.names).sort_by("id").to_pylist()


def levels() -> list:
    """Hash buckets times ranges: 12 tablets."""
    return [nyala.hash("id", buckets=4, seed=3), nyala.range("id", bounds=[(None, 100), (100, 400), (400, None)])]


def make_table(cluster: Cluster, name: str = "t") -> None:
    """Create the table, and move tablets until several servers call theirs by equal numbers."""
    db = cluster.connect()
    db.create_table(name, SCHEMA, ["id"], levels(), drawn.columns(SCHEMA), **drawn.table()).insert(rows(range(KEYS)))
    servers = list(cluster.members)
    for turn in range(2):
        for place in db.table(name).tablets():
            if place.tablet % 2 == turn % 2:
                continue
            after = servers[(servers.index(str(place.server)) + 1) % len(servers)]
            db.move_tablet(name, place.tablet, after, server=place.server)
    numbers = Counter(place.tablet for place in db.table(name).tablets())
    assert max(numbers.values()) > 1, numbers


def ways(cluster: Cluster) -> list[Store]:
    """All that a job can be given for the table: the database of the placement, and the URL of each server."""
    return [cluster.connect(), *(member.location for member in cluster.members.values())]


def alone() -> Database:
    """A database of one store, in this process."""
    return Database(EngineStore.open(MemoryFileSystem(), drawn.stored(StoreOptions(maintenance="off"))))


class Moving:
    """Moves tablets of a table at random, beside whoever else works on it, while the context lasts."""

    def __init__(self, cluster: Cluster, random: Random, table: str = "t") -> None:
        self._db = cluster.connect()
        self._servers = list(cluster.members)
        self._random = random
        self._table = table
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: list[BaseException] = []
        self.moves = 0

    def __enter__(self) -> Moving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._move()
        except BaseException as error:
            self._failed.append(error)

    def _move(self) -> None:
        place = self._random.choice(self._db.table(self._table).tablets())
        try:
            self._db.move_tablet(self._table, place.tablet, self._random.choice(self._servers), server=place.server)
            self.moves += 1
        except LOST:
            pass


class Campaign:
    """Jobs at random, each compared with the table at its snapshot."""

    def __init__(self, cluster: Cluster, seed: int, folder: Path) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.folder = folder
        self.counts: Counter[str] = Counter()
        make_table(cluster)
        self.table = cluster.connect().table("t")
        self.backups: list[int] = []
        self.jobs: list[Callable[[Store], None]] = [
            self.export,
            self.copy,
            self.checksum,
            self.back_up,
            self.back_up,
            self.load,
            self.apply,
        ]

    def run(self, turns: int, stopped: Callable[[], bool] = lambda: False) -> None:
        """Make so many jobs, and restore every backup in the end."""
        with Moving(self.cluster, Random(self.random.random())) as moving:
            for _ in range(turns):
                if stopped():
                    break
                self.write()
                job = self.random.choice(self.jobs)
                job(self.random.choice(ways(self.cluster)))
                self.counts[job.__name__] += 1
            self.restore_all()
        self.counts["moves"] = moving.moves

    def write(self) -> None:
        first = self.random.randrange(KEYS)
        self.table.upsert(rows(range(first, first + 90), self.random.randrange(1, 9)))
        self.table.delete_ignore({"id": [self.random.randrange(KEYS) for _ in range(20)]})

    def at(self, snapshot: int) -> list[dict]:
        return by_key(self.table.scan(as_of=snapshot).to_arrow())

    def place(self, what: str) -> Path:
        return self.folder / f"{what} {sum(self.counts.values())}"

    def export(self, store: Store) -> None:
        made = export(store, "t", self.place("export"), split_bytes=SPLIT_BYTES)
        assert by_key(pq.read_table(made.folder)) == self.at(made.snapshot)

    def copy(self, store: Store) -> None:
        with alone() as target:
            made = copy_table(store, target, "t", split_bytes=SPLIT_BYTES)
            assert by_key(target.table("t").scan().to_arrow()) == self.at(made.snapshot)

    def checksum(self, store: Store) -> None:
        found = checksum(store, "t", split_bytes=SPLIT_BYTES)
        with alone() as other:
            other.create_table("t", SCHEMA, ["id"]).insert(self.table.scan(as_of=found.snapshot).to_arrow())
            assert found.is_same(checksum(other, "t"))
            assert verify(store, other, "t", as_of=found.snapshot, split_bytes=SPLIT_BYTES).equal

    def back_up(self, store: Store) -> None:
        made = backup(store, "t", self.folder / "backups", split_bytes=SPLIT_BYTES)
        self.backups.append(made.until)

    def restore_all(self) -> None:
        for until in self.backups:
            with alone() as target:
                assert restore(target, self.folder / "backups", "t", at=until).verified
                assert by_key(target.table("t").scan().to_arrow()) == self.at(until), until
            self.counts["restored"] += 1

    def load(self, store: Store) -> None:
        data = rows(self.random.sample(range(KEYS * 2), 200), 77)
        path = self.place("load").with_suffix(".parquet")
        pq.write_table(data, path, row_group_size=50)
        before = {row["id"]: row for row in self.at(self.table._store.now())}
        assert load(store, "t", path, atomic=self.random.random() < 0.3).applied == 200
        before |= {row["id"]: row for row in data.to_pylist()}
        assert self.at(self.table._store.now()) == [before[key] for key in sorted(before)]

    def apply(self, store: Store) -> None:
        since = self.table._store.now()
        before = {row["id"]: row for row in self.at(since)}
        there = rows(self.random.sample(range(KEYS), 100), 55)
        gone = [key for key in list(before)[:30] if key not in there["id"].to_pylist()]
        ops = pa.array(["upsert"] * there.num_rows + ["delete"] * len(gone))
        path = self.place("changes").with_suffix(".parquet")
        pq.write_table(pa.concat_tables([there, rows(gone)]).append_column("_op", ops), path)
        apply_changes(store, "t", path, batch_rows=64)
        after = {key: row for key, row in before.items() if key not in gone}
        after |= {row["id"]: row for row in there.to_pylist()}
        assert self.at(self.table._store.now()) == [after[key] for key in sorted(after)]


def main() -> None:
    import time

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    asked = parser.parse_args()
    end = time.monotonic() + asked.seconds
    swarm = drawn.swarm_of(FEATURES, asked)
    with swarm.round(0), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as files:
        cluster = Cluster(Path(folder), "abc")
        campaign = Campaign(cluster, asked.seed, Path(files))
        campaign.run(1_000_000, lambda: time.monotonic() > end)
        cluster.close()
    print(f"seed {asked.seed}: " + ", ".join(f"{count:,} {what}" for what, count in campaign.counts.items()))


if __name__ == "__main__":
    main()

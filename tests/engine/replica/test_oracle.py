"""A replica is compared with the holder at the replica's snapshot, whatever the holder does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.schemas.errors import RowErrors, StoreError
from tests.dose import by_night
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import SCHEMA, Follower, Holder, compare

STEPS = 50
KEYS = 60


class Workload:
    """What a holder does, at random."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.holder = Holder.of(Machine())
        self.number = 0
        self.done: list[str] = []
        self.create()

    def step(self) -> None:
        what = self.random.choice(ACTS)
        self.done.append(what.__name__)
        with suppress(RowErrors):
            what(self)

    @property
    def table(self) -> nyala.Table:
        names = self.holder.database.tables()
        return self.holder.database.table(self.random.choice(names)) if names else self.create()

    def create(self) -> nyala.Table:
        self.number += 1
        partitions = [
            [],
            [nyala.hash("id", buckets=2)],
            [nyala.range("id", splits=[20, 40])],
        ][self.number % 3]
        return self.holder.database.create_table(f"t{self.number}", SCHEMA, ["id"], partition_by=partitions)

    def few(self) -> None:
        self.table.upsert(self._rows(self.random.sample(range(KEYS), 5)))

    def update(self) -> None:
        self.table.update([{"id": each, "v": self._next()} for each in self.random.sample(range(KEYS), 8)])

    def delete(self) -> None:
        self.table.delete_ignore([{"id": each} for each in self.random.sample(range(KEYS), 6)])

    def load(self) -> None:
        first = 1_000 * self._next()
        self.table.insert(pa.Table.from_pylist(self._rows(range(first, first + 300)), SCHEMA))

    def transaction(self) -> None:
        tables = self.holder.database.tables()
        with self.holder.database.transaction() as transaction:
            for name in tables[:2]:
                transaction.write(name, self._rows(self.random.sample(range(KEYS), 4)))
                first = 1_000 * self._next()
                transaction.write(name, pa.Table.from_pylist(self._rows(range(first, first + 200)), SCHEMA))

    def maintain(self) -> None:
        op = self.random.choice(["flush", "flush", "flush_deltas", "minor_compact", "major_compact", "compact", "gc"])
        self.done[-1] = op
        self.table.maintain(op)

    def add_column(self) -> None:
        self.table.alter().add_column(f"c{self._next()}", pa.int64(), read_default=7).apply()

    def drop_column(self) -> None:
        table = self.table
        if added := [name for name in table.schema.names if name.startswith("c")]:
            table.alter().drop_column(added[0]).apply()

    def rename(self) -> None:
        self.table.alter().rename(f"r{self._next()}").apply()

    def split(self) -> None:
        table = self.table
        if table.describe()["partitions"] and len(table.tablets()) in (3, 4):
            with suppress(StoreError):
                table.alter().split_partition((self.random.randrange(1, 19),)).apply()

    def drop(self) -> None:
        self.holder.database.drop_table(self.table.name, keep_seconds=self.random.choice([0, 60]))

    def recall(self) -> None:
        if dropped := self.holder.store.dropped_tables():
            self.holder.store.recall_table(dropped[0].table_id, f"again{self._next()}")

    def take_over(self) -> None:
        """Another machine opens the store: after a clean stop, or of a holder that is cut off."""
        former = self.holder
        former.machine.objects.is_away = self.random.random() < 0.5
        with suppress(StoreError):
            former.store.close()
        self.holder = Holder.of(former.machine.other())

    def _rows(self, ids: object) -> list[dict[str, object]]:
        return [{"id": each, "v": self._next(), "name": f"n{each}"} for each in ids]  # type: ignore[attr-defined]

    def _next(self) -> int:
        self.number += 1
        return self.number


ACTS: list[Callable[[Workload], object]] = [
    *[Workload.few] * 6,
    *[Workload.update] * 4,
    *[Workload.delete] * 3,
    *[Workload.load] * 3,
    *[Workload.transaction] * 2,
    *[Workload.maintain] * 8,
    Workload.create,
    Workload.add_column,
    Workload.drop_column,
    Workload.rename,
    Workload.split,
    Workload.drop,
    Workload.recall,
    Workload.take_over,
]


@pytest.mark.parametrize("seed", by_night(range(3), range(2)))
def test_a_replica_shows_what_the_holder_shows_at_its_snapshot(seed: int) -> None:
    random = Random(seed)
    workload = Workload(random)
    follower = Follower(workload.holder.machine)
    follower.catch_up()
    compared = 0
    for _ in range(STEPS):
        workload.step()
        if random.random() < 0.6:
            follower.step(random.randrange(6))
        if random.random() < 0.4:
            compared += compare(workload.holder.store, follower.replica, random)
        if random.random() < 0.2:
            follower.catch_up()
            here, there = follower.replica, workload.holder.store
            assert here.tables() == there.tables()
            assert [here.describe_table(name) for name in here.tables()] == [
                there.describe_table(name) for name in there.tables()
            ]
            compared += compare(there, here, random)
    assert compared > 100, workload.done
    follower.replica.close()
    workload.holder.store.close()
    assert verify_bucket(workload.holder.machine.other().home()).is_sound

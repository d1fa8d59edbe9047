"""Backups in between whatever else happens to a table, in random order: each restores to what was there then."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import TableChecksum, backup, checksum, restore
from nyala.schemas.errors import InvalidArgumentError
from tests.clients.jobs.job_rows import SCHEMA, rows
from tests.dose import by_night

BOUNDS = [(0, 200), (200, 400), (400, 600)]
STEPS = 40
MAINTENANCE = ["flush", "flush_deltas", "minor_compact", "major_compact", "compact"]


class Life:
    """What may happen to the table; rows outside of its ranges are refused, and that is fine."""

    def __init__(self, table: Table, chance: random.Random) -> None:
        self.table = table
        self.chance = chance
        self.added = 0

    def upsert(self) -> None:
        start = self.chance.randrange(600)
        data = rows(range(start, min(600, start + self.chance.randrange(1, 120))), self.chance.randrange(9))
        there = [name for name in data.column_names if name in self.table.schema.names]
        self.table.write(data.select(there), on_error="return")

    def delete(self) -> None:
        self.table.write({"id": [self.chance.randrange(600) for _ in range(40)]}, "delete_ignore", on_error="return")

    def add_column(self) -> None:
        self.added += 1
        nullable = self.chance.random() < 0.5
        self.table.alter().add_column(f"n{self.added}", "int32", nullable, self.added, self.added + 1).apply()

    def drop_column(self) -> None:
        if len(self.table.schema) > 5:
            self.table.alter().drop_column(self.chance.choice(self.table.schema.names[1:])).apply()

    def rename_column(self) -> None:
        added = [name for name in self.table.schema.names if name.startswith("n")]
        if added:
            self.added += 1
            self.table.alter().rename_column(self.chance.choice(added), f"n{self.added}").apply()

    def drop_range(self) -> None:
        lower, upper = self.chance.choice(BOUNDS)
        change = self.table.alter().drop_range_partition(lower, upper)
        if self.chance.random() < 0.7:
            change.add_range_partition(lower, upper)
        with suppress(InvalidArgumentError):  # it is not there any more, or split
            change.apply()

    def split(self) -> None:
        with suppress(InvalidArgumentError):  # there is no range at that key, or it begins there
            self.table.alter().split_partition(self.chance.randrange(1, 600)).apply()

    def maintain(self) -> None:
        self.table.maintain(self.chance.choice(MAINTENANCE))


@pytest.mark.parametrize("seed", by_night(range(3), range(1)))
def test_every_backup_restores(seed: int, make_database: Callable[[], Database], tmp_path: Path) -> None:
    chance = random.Random(seed)
    source, target = make_database(), make_database()
    life = Life(source.create_table("homes", SCHEMA, ["id"], [nyala.range("id", bounds=BOUNDS)]), chance)
    happenings = [life.upsert, life.upsert, life.delete, life.add_column, life.drop_column, life.rename_column]
    happenings += [life.drop_range, life.split, life.maintain]
    made: list[TableChecksum] = []
    for _ in range(STEPS):
        chance.choice(happenings)()
        if chance.random() < 0.25:
            size, anew = chance.choice([3_000, 100_000]), chance.random() < 0.1
            until = backup(source, "homes", tmp_path, split_bytes=size, force_full=anew, checksum=True).until
            made.append(checksum(source, "homes", as_of=until))
    assert len({each.checksum for each in made}) > 3
    for wanted in made:
        name = f"at {wanted.snapshot}"
        assert restore(target, tmp_path, "homes", at=wanted.snapshot, name=name).verified
        assert checksum(target, name).is_same(wanted)

"""Processes that stop, or die, while what they put before a slot is on its way: a large payload, a staged part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.home.bucket import BucketHome
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from tests.campaigns.failover.member import Member
from tests.campaigns.failover.places import DirectoryPlace, bucket_at
from tests.campaigns.failover.points import REACHED, arm
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
LONG = "0123456789" * 6000
"""Ten rows of it are several chunks."""
LEASE_SECONDS = 1.0


def has_store(member: Member) -> bool:
    """Whether a server answers about now."""
    try:
        with nyala.connect(member.location, retries=False) as database:
            database.tables()
    except nyala.StoreError:
        return False
    return True


class Pair:
    """Two servers of one store, and a client of both."""

    def __init__(self, folder: Path) -> None:
        self.place, random = DirectoryPlace(folder / "bucket"), Random(1)
        self.members: list[Member] = []
        for number in (1, 2):
            control = folder / str(number) / "control"
            control.mkdir(parents=True)
            way = self.place.way("root", control, 0)
            self.members.append(Member(number, control.parent, way, LEASE_SECONDS, random, shifts=(0,)))
            self.members[-1].start()
        until(lambda: all(member.is_ready for member in self.members), 60)
        self.database: Database = nyala.connect(",".join(each.location for each in self.members))

    def holder(self) -> Member:
        """Wait until somebody has the store; return it."""
        until(lambda: any(map(has_store, self.members)), 60)
        return next(filter(has_store, self.members))

    def at_point(self, point: str, act: str) -> Member:
        """Let something happen to the holder where it reaches a point next; return it."""
        member = self.holder()
        arm(member.way.control, point, act)
        return member

    def end(self) -> BucketHome:
        """Stop the servers; return what they leave."""
        self.database.close()
        while self.members:
            self.members.pop().end()
        return BucketHome(bucket_at(self.place, "root"), "a", self.place.url)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.end()


def test_nothing_that_is_put_before_a_slot_is_lost_or_left(pair: Pair) -> None:
    table = pair.database.create_table("t", SCHEMA, ["id"])
    table.upsert([{"id": each, "text": LONG} for each in range(10)])
    dead = pair.at_point("after chunk", "kill")
    table.upsert([{"id": each, "text": LONG} for each in range(10, 20)])
    assert table.scan().count() == 20
    dead.keep()

    until(lambda: dead.is_ready, 60)
    stopped = pair.at_point("before part", "stop")
    transaction = pair.database.transaction("x")
    staging = threading.Thread(target=lambda: transaction.upsert("t", [{"id": 20, "text": "staged"}]))
    staging.start()
    until((stopped.way.control / REACHED).exists, 60)
    (other,) = [each for each in pair.members if each is not stopped]
    until(lambda: has_store(other), 60)
    stopped.go_on()
    staging.join(60)
    transaction.commit()
    assert table.get(20) == {"id": 20, "text": "staged"}
    home = pair.end()
    assert verify_bucket(home).is_sound
    sweep(home)
    assert not leftovers(home)

"""Servers whose stores are in one bucket, under two names: checked and balanced like others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nyala
from nyala.engine.home.opening import home_at
from nyala.jobs import apply_balance, check_cluster, plan_balance
from nyala.schemas.store.placement import Placement
from tests.clients.cluster import pair as pair_module
from tests.clients.cluster.pair import Pair
from tests.clients.cluster.rival import COUNT, SCHEMA, rows


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    names = iter("ab")
    monkeypatch.setattr(pair_module, "MemoryFileSystem", lambda: home_at(f"file://{tmp_path}", next(names)))
    made = Pair(placed_on="a")
    yield made
    made.close()


def test_names_in_a_bucket_are_checked_and_balanced(pair: Pair) -> None:
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert(rows(0))
    table.maintain("flush")
    found = check_cluster(pair.db, checksums=True, show="off")
    assert found.faults == [] and found.tables[0].servers == {"a": 4, "b": 0}
    assert found.checksums[0].rows == COUNT
    assert check_cluster(pair.db, compare=found, show="off").is_healthy
    pair.members.placement = Placement(servers=pair.placement.servers)
    plan = plan_balance(pair.db)
    assert len(plan.moves) == 2
    assert apply_balance(pair.db, plan, show="off") == []
    after = check_cluster(pair.db, compare=found, show="off")
    assert after.faults == [] and after.tables[0].servers == {"a": 2, "b": 2}
    assert plan_balance(pair.db).moves == []

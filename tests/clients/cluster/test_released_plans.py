"""What servers keep for a scan of all of them is released when it is not read, or planned again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.cluster import planning
from nyala.clients.cluster.store import PlacedStore
from nyala.schemas.errors import WrongServerError
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SCANS: dict[str, dict[str, Any]] = {
    "in any order": {},
    "ordered": {"ordered": True},
    "limited": {"limit": 3},
    "sorted": {"order_by": "v desc"},
    "without the first ones": {"offset": 3, "ordered": True},
}


@pytest.fixture(params=[4, 1], ids=["a table of both", "a table of one"])
def table(pair: Pair, request: pytest.FixtureRequest) -> nyala.Table:
    levels = [nyala.hash("id", buckets=request.param)] if request.param > 1 else []
    made = pair.db.create_table("t", SCHEMA, ["id"], levels)
    made.insert({"id": range(100), "v": range(100)})
    return made


def kept(pair: Pair) -> int:
    gc.collect()
    return sum(len(store._planned) for store in pair.stores.values())


@pytest.mark.parametrize("how", SCANS)
@pytest.mark.parametrize("end", ["read", "closed", "dropped"])
def test_nothing_is_kept_for_a_scan_that_is_over(pair: Pair, table: nyala.Table, how: str, end: str) -> None:
    found = pair.db._store.scan(table.scan(**SCANS[how])._spec)
    assert (how != "sorted") <= kept(pair) <= 2, "few rows are sorted at once"
    if end == "read":
        assert found.to_table().num_rows > 0
    elif end == "closed":
        found.close()
    del found
    assert kept(pair) == 0


def first(calls: int, error: Callable[[], Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Do something else for the first calls."""
    count = [0]

    def call(*given: Any) -> Any:
        count[0] += 1
        return error() if count[0] <= calls else real(*given)

    return call


def moved() -> Any:
    raise WrongServerError("the tablet has moved")


@pytest.mark.parametrize("how", ["ordered", "sorted"])
def test_what_was_planned_again_is_released(
    pair: Pair, table: nyala.Table, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(PlacedStore, "_parts", first(2, moved, PlacedStore._parts))
    assert table.scan(**SCANS[how]).to_arrow().num_rows == 100
    assert kept(pair) == 0


def test_an_aggregate_that_fails_keeps_nothing(pair: Pair, table: nyala.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacedStore, "_parts", first(100, moved, PlacedStore._parts))
    with pytest.raises(nyala.UnavailableError, match="keep moving"):
        table.scan().aggregate({"n": ("v", "sum")})
    monkeypatch.undo()
    assert kept(pair) == 0
    assert table.scan().aggregate({"n": ("v", "sum")})["n"].to_pylist() == [4950]
    assert kept(pair) == 0


def test_plans_without_all_tablets_are_released(
    pair: Pair, table: nyala.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(planning, "is_whole", first(2, lambda: False, planning.is_whole))
    assert pair.db._store.scan(ScanSpec(table="t")).to_table().num_rows == 100
    assert kept(pair) == 0
    monkeypatch.setattr(planning, "is_whole", lambda plans: False)
    with pytest.raises(nyala.UnavailableError):
        pair.db._store.scan(ScanSpec(table="t"))
    assert kept(pair) == 0


def test_a_plan_of_a_table_that_is_altered_meanwhile_is_released(
    pair: Pair, table: nyala.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in pair.stores.values():
        real = store.describe_table
        stale = real("t").model_copy(update={"schema_version": 7})
        monkeypatch.setattr(store, "describe_table", first(2, lambda stale=stale: stale, real))
    assert pair.db._store.scan(ScanSpec(table="t")).to_table().num_rows == 100
    assert kept(pair) == 0

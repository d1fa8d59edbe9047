"""Each read takes the first way that holds, as `choose` lists them, and the next one where that cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan import choose
from nyala.engine.scan.plan.by_chunks import ChunkStreams
from nyala.engine.scan.plan.choose import Ways
from nyala.engine.scan.plan.point_scan import PointScans
from nyala.engine.scan.plan.range_scan import RangeScans
from nyala.engine.scan.plan.resolve import Resolver
from nyala.engine.store import Store
from nyala.engine.table.point_plan import PointPlan
from nyala.engine.tablet.point_read import UndecidedError
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.scan import ScanSpec

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])
V7 = [{"id": 7, "v": 7}]
SCANS: list[tuple[dict[str, Any], list[str], list[dict[str, Any]]]] = [
    ({"where": "id = 7"}, ["one row"], V7),
    ({"where": "id = 99"}, ["one row"], []),
    ({"where": "id = 7", "limit": 1}, ["few rows"], V7),
    ({"where": "id = 7 AND v = 7"}, ["chunks"], V7),
    ({"where": "id IN (7, 99)"}, ["few rows"], V7),
    ({"where": "v = 7"}, ["chunks"], V7),
    ({"where": "id >= 7", "ordered": True, "limit": 1}, ["short range by plan"], V7),
    ({"where": "id > 6 AND id < 8", "ordered": True}, ["short range by plan"], V7),
    ({"where": "NOT id < 7", "ordered": True, "limit": 1}, ["short range"], V7),
    ({"ordered": True, "limit": 1, "offset": 7}, ["short range"], V7),
    ({"where": "id IN (7, 8)", "order_by": [{"column": "v"}], "limit": 1}, ["sorted", "few rows"], V7),
    ({"where": "v >= 7", "order_by": [{"column": "v"}], "limit": 1}, ["sorted", "chunks"], V7),
    ({"where": "id = 7", "aggregate": {"top": ("v", "max")}}, ["chunks"], [{"top": 7}]),
]


@pytest.fixture
def table() -> Iterator[Table]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert({"id": range(50), "v": range(50)})
        table.maintain("flush")
        yield table


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that have given an answer, in their order."""
    ways: list[str] = []

    def noting(owner: Any, name: str, way: str) -> None:
        method = getattr(owner, name)

        def noted(*given: Any, **named: Any) -> Any:
            place = len(ways)
            answer = method(*given, **named)
            if answer is not None:
                ways.insert(place, way)
            return answer

        monkeypatch.setattr(owner, name, noted)

    noting(PointScans, "scan", "one row")
    noting(RangeScans, "scan", "short range by plan")
    noting(choose, "sorted_stream", "sorted")
    noting(Resolver, "planned", "planned part")
    noting(choose, "rows_of_few_keys", "few rows")
    noting(choose, "rows_of_short_range", "short range")
    noting(ChunkStreams, "stream", "chunks")
    noting(Ways, "look_up", "batch lane")
    return ways


def rows_of(store: Any, **how: Any) -> list[dict[str, Any]]:
    return store.scan(ScanSpec.model_validate({"table": "t", **how})).to_table().to_pylist()


@pytest.mark.parametrize(("how", "ways", "rows"), SCANS, ids=[str(how) for how, _, _ in SCANS])
def test_a_scan_takes_the_first_way_that_holds(
    table: Table, taken: list[str], how: dict[str, Any], ways: list[str], rows: list[dict[str, Any]]
) -> None:
    assert rows_of(table._store, **how) == rows
    assert taken == ways


def test_a_scan_of_a_user_that_names_a_key_is_of_one_row(table: Table, taken: list[str]) -> None:
    """It went another way: the options that a table passes on count even if they are not given."""
    assert table.scan(where="id = 7").to_arrow().to_pylist() == V7
    assert table.scan(["v"], where="id = 8", ordered=True).to_arrow().to_pylist() == [{"v": 8}]
    assert taken == ["one row", "one row"]
    taken.clear()
    assert table.scan(where="id = 7", limit=3).to_arrow().to_pylist() == V7
    assert taken == ["few rows"]


def test_a_ticket_is_read_by_its_plan_while_that_is_kept(table: Table, taken: list[str]) -> None:
    store: Any = table._store
    spec = ScanSpec(table="t", where="id IN (7, 8)", columns=["v"], pin=True)
    plan = store.plan(spec)
    ticket = spec.pinned(plan.snapshot).model_copy(update={"lease": plan.lease, "tablet": plan.splits[0].tablet})
    assert store.scan(ticket).to_table().to_pylist() == [{"v": 7}, {"v": 8}]
    assert taken == ["planned part", "chunks"]
    taken.clear()
    assert store.scan(ticket).to_table().to_pylist() == [{"v": 7}, {"v": 8}]
    assert taken == ["few rows"], "the plan has ended with its last part"


def undecided(*_: Any) -> Any:
    raise UndecidedError


def test_what_the_plan_lane_leaves_goes_the_next_way(
    table: Table, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.get(7) == V7[0]
    assert table.get(99) is None
    assert taken == []
    monkeypatch.setattr(PointPlan, "raw_cells", undecided)
    assert table.get(7) == V7[0]
    assert table.get(99) is None
    assert taken == ["batch lane", "batch lane"]
    taken.clear()
    assert rows_of(table._store, where="id = 7") == V7
    assert taken == ["few rows"]


def test_a_wrong_key_is_told_by_the_batch_lane(table: Table) -> None:
    store: Any = table._store
    with pytest.raises(InvalidArgumentError, match="key column 'id' is NULL"):
        store.get_row(table._description, [None])

"""Scans of a few keys are read like gets: the same rows as those of a scan that goes through the rowsets."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan import choose
from nyala.engine.scan.plan.point_scan import PointScans
from nyala.engine.scan.plan.range_scan import RangeScans
from nyala.engine.store import Store
from nyala.partition import hash as by_hash
from nyala.partition import range as by_range

SCHEMA = pa.schema([
    pa.field("a", pa.int32(), False),
    pa.field("b", pa.string(), False),
    pa.field("v", pa.int64()),
    pa.field("s", pa.string()),
])  # fmt: skip
FEW = (
    "a = 5 AND b = 'x'",
    "a IN (3, 4, 5, 99) AND b IN ('x', 'y')",
    "a BETWEEN 2 AND 9 AND b = 'y'",
    "a > 2 AND a < 9 AND a <> 5 AND b IN ('x', 'zz')",
    "a = 3 AND a < 4 AND b = 'y' AND b > 'a'",
    "a IN (3, 4, 5) AND NOT a IN (4, 6) AND b = 'x'",
)
MANY = (
    "a = 5",
    "a = 5 AND b = 'x' AND v = 1",
    "a = 5 OR b = 'x'",
    "a > 5 AND b = 'x'",
    "a BETWEEN 1 AND 100000 AND b = 'x'",
    "a > 9 AND a < 2 AND b = 'x'",
    "a = 5 AND b LIKE 'x%'",
    "v = 5",
)
PARTITIONS = {
    "one tablet": [],
    "by hash": [by_hash("b", buckets=3)],
    "by range": [by_range("a", bounds=[(0, 4), (4, 40)])],
}


@pytest.fixture(params=PARTITIONS.values(), ids=list(PARTITIONS))
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        yield Database(store).create_table("t", SCHEMA, ["a", "b"], request.param)


def both(table: Table, where: str, **how: Any) -> tuple[bool, list[Any], list[Any]]:
    """Return whether a scan was read like gets, its rows, and those that it has when it is not."""
    found: list[object] = []
    read = choose.rows_of_few_keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PointScans, "scan", lambda *_: None)  # which would read some of the rows
        patch.setattr(RangeScans, "scan", lambda *_: None)
        patch.setattr(choose, "rows_of_few_keys", lambda *args: found.append(read(*args)) or found[-1])
        rows = table.scan(where=where, **how).to_arrow()
        patch.setattr(choose, "rows_of_few_keys", lambda *_: None)
        expected = table.scan(where=where, **how).to_arrow()
    rows.validate(full=True)
    assert rows.schema == expected.schema
    return bool(found) and found[0] is not None, rows.to_pylist(), expected.to_pylist()


def test_the_rows_are_those_of_a_scan(table: Table) -> None:
    random = Random(3)
    moments = []
    for step in ("", "flush", "", "flush_deltas", "", "flush_deltas", "minor_compact", "", "major_compact", "compact"):
        keys = [(a, b) for a in range(12) for b in ("x", "y", "zz") if random.random() < 0.5]
        rows = [{"a": a, "b": b, "v": random.choice([None, 1, 2]), "s": f"{a}{step}"} for a, b in keys]
        table.upsert(rows)
        table.delete_ignore([{"a": a, "b": b} for a, b in keys[::3]])
        moments.append(table._store.now())
        if step:
            table.maintain(step)
        for where in FEW:
            for as_of in (None, *moments[-4:]):
                is_few, rows, expected = both(table, where, as_of=as_of, ordered=True)
                assert is_few
                assert rows == expected
        for where in MANY:
            is_few, rows, expected = both(table, where, ordered=True)
            assert rows == expected
            assert not is_few


def test_columns_limits_and_offsets(table: Table) -> None:
    table.upsert([{"a": a, "b": "x", "v": a, "s": str(a)} for a in range(30)])
    table.maintain("flush")
    where = "a BETWEEN 3 AND 20 AND b = 'x'"
    for how in ({"limit": 0}, {"limit": 4}, {"limit": 99}, {"limit": 3, "offset": 2}, {"offset": 99}, {"limit": 1}):
        is_few, rows, expected = both(table, where, ordered=True, **how)
        assert rows == expected
        assert is_few
    for columns in (["s"], ["v", "a"], ["b", "s", "a"]):
        is_few, rows, expected = both(table, where, columns=columns, ordered=True)
        assert rows == expected
        assert list(rows[0]) == columns
        assert is_few
    assert table.scan(where=where).count() == 18
    assert both(table, where, columns=["s"], order_by="v DESC", limit=3)[1] == [{"s": "20"}, {"s": "19"}, {"s": "18"}]


def test_pages_of_other_columns_are_not_read(table: Table) -> None:
    table.upsert([{"a": a, "b": "x", "v": a, "s": str(a)} for a in range(30)])
    table.maintain("flush")
    table.scan(where="a = 3 AND b = 'x'", columns=["v"]).to_arrow()
    (tablet, *_) = [tablet for tablet in table._store._catalog.table("t").tablets if tablet.version.on_disk]  # pyright: ignore
    pages = [page for rowset in tablet.version.on_disk for page in rowset._page_rows]
    assert all("s" not in [column.name for column in columns.columns] for columns in pages)

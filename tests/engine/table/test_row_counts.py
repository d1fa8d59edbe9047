"""The statistics of a tablet tell about how many rows were read and written in it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.store import Store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


def test_rows_are_counted_by_tablet() -> None:
    db = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.range("id", splits=[(1_000,)])])

    def counted() -> list[tuple[int, int]]:
        found = sorted(table.stats()["tablets"], key=lambda each: each["partition"]["lower"])
        return [(each["rows_written"], each["rows_read"]) for each in found]

    table.insert({"id": range(2_000), "n": [0] * 2_000})
    table.upsert({"id": [1], "n": [1]})
    assert counted() == [(1_001, 0), (1_000, 0)]
    assert table.get(1) == {"id": 1, "n": 1}
    assert table.get_many([1_001, 1_002]).num_rows == 2
    assert counted() == [(1_001, 1), (1_000, 2)]
    assert table.scan(where="id >= 1500 and n = 0").to_arrow().num_rows == 500
    (_, low), (_, high) = counted()
    assert low == 1 and high >= 502
    assert table.scan().to_arrow().num_rows == 2_000
    assert counted() == [(1_001, 1_001), (1_000, high + 1_000)]
    db.close()


def test_the_size_of_a_tablet_is_only_asked_for_to_divide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    db = Database(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")))
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.range("id", splits=[(1_000,)])])
    for first in range(0, 100, 10):
        table.insert({"id": range(first, first + 10), "n": [0] * 10})
        table.maintain("flush")
    asked: list[DiskRowSet] = []
    size = DiskRowSet.__len__

    def counted(rowset: DiskRowSet) -> int:
        asked.append(rowset)
        return size(rowset)

    monkeypatch.setattr(DiskRowSet, "__len__", counted)
    assert table.scan(where="n = 1").to_arrow().num_rows == 0, "of two tablets no row is read"
    assert table.scan(where="id = 15 or id = 17").to_arrow().num_rows == 2, "all rows are those of one tablet"
    assert not asked
    assert sum(each["rows_read"] for each in table.stats()["tablets"]) == 10
    db.close()

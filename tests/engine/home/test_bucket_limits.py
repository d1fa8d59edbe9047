"""What a table may hold, and what a disk has left, bounds writes to a store in a bucket as it does in a directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs.local import LocalFileSystem

MIB = 1 << 20
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.binary())])


def batch(first: int, count: int, size: int = 10) -> pa.Table:
    return pa.table([range(first, first + count), [bytes([each % 251]) * size for each in range(count)]], schema=SCHEMA)


def test_a_quota_holds_for_the_next_holder_too(tmp_path: Path) -> None:
    for machine in ("one", "two"):
        with nyala.open(
            "memory://quota", name="a", bucket_cache=str(tmp_path / machine), maintenance="off"
        ) as database:
            table = database.create_table("t", SCHEMA, ["k"], if_not_exists=True, max_rows=100)
            table.upsert(batch(0, 100))
            for rows in (batch(100, 1), batch(50, 5_000)):
                with pytest.raises(nyala.StorageFullError, match="max_rows"):
                    table.insert(rows)
            table.maintain("flush")
            with pytest.raises(nyala.StorageFullError, match="max_rows"):
                table.insert(batch(100, 1))
            table.delete([{"k": 7}])
            table.insert(batch(200, 1))
            table.delete([{"k": 200}])
            assert table.count() == 99


def test_writes_stop_while_the_disk_of_the_cache_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1024 * MIB]
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda self, path: free[0])
    options = {"bucket_cache": str(tmp_path / "cache"), "disk_low_bytes": 10 * MIB, "maintenance": "off"}
    with nyala.open("memory://low", name="a", **options) as database:
        table = database.create_table("t", SCHEMA, ["k"])
        table.insert(batch(0, 100))
        free[0] = 0
        with pytest.raises(nyala.StorageFullError, match="disk_low_bytes"):
            for first in range(1_000, 20_000, 100):  # the store looks at the disk now and then
                table.insert(batch(first, 100, 4_000))
        count = table.count()
        with pytest.raises(nyala.StorageFullError, match="bytes left, and writes stop at 10,485,760"):
            table.upsert(batch(1, 1))
        assert database.health().status == "degraded" and table.get(1)
        table.maintain("flush")
        free[0] = 1024 * MIB
        table.upsert(batch(50_000, 1))
        assert database.health().status == "ok" and table.count() == count + 1
    with nyala.open("memory://low", name="a", bucket_cache=str(tmp_path / "other"), disk_low_bytes=0) as database:
        assert database.table("t").count() == count + 1

"""Files that compactions have replaced are closed, and nothing of them is held on to."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala

COUNT = 100_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("s", pa.string())])


def opened() -> set[str]:
    """Return what this process has open or mapped."""
    mapped = Path("/proc/self/maps").read_text().splitlines()
    found = {fields[5] for line in mapped if len(fields := line.split(maxsplit=5)) > 5}
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it was that of the listing
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


def deleted(directory: Path) -> set[str]:
    """Return the files of a directory that were deleted, and that this process holds."""
    return {path for path in opened() if path.startswith(str(directory)) and path.endswith("(deleted)")}


def rows(ids: np.ndarray, n: int) -> pa.Table:
    return pa.table({"id": ids, "n": np.full(len(ids), n), "s": [f"{n} {i}" for i in ids]}, SCHEMA)


@pytest.mark.parametrize("kind", ["minor_compact", "major_compact", "compact", "gc"])
def test_a_scan_that_outlives_its_files_leaves_none_open(tmp_path: Path, kind: str) -> None:
    """It reads pages of files that were replaced while it ran, and puts them nowhere where they stay."""
    random = np.random.default_rng(0)
    with nyala.open(tmp_path, maintenance="off", scan_batch_bytes=1 << 16) as db:
        table = db.create_table("t", SCHEMA, ["id"], history_max_age_seconds=1)
        table.insert(rows(np.arange(COUNT), 0))
        table.maintain("flush")
        for n in range(1, 5):
            table.upsert(rows(np.unique(random.integers(0, COUNT, COUNT // 10)), n))
            table.maintain("flush_deltas")
            scan = iter(table.scan(["id", "n"], where="n >= 0"))
            count = next(scan).num_rows
            if n % 2 == 0:
                table.maintain(kind)
            assert count + sum(batch.num_rows for batch in scan) == COUNT
            del scan
            assert deleted(tmp_path) == set()
        in_use = {path for path in opened() if path.startswith(str(tmp_path / "tablets"))}
        assert len(in_use) <= len(list((tmp_path / "tablets").glob("*/*")))


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_table_that_is_dropped_leaves_no_file_open_and_no_page(tmp_path: Path, is_dropped: bool) -> None:
    with nyala.open(tmp_path, maintenance="off") as db:
        store: Any = db._store
        cache = store._environment.page_cache
        parts = nyala.range("id", bounds=[(0, COUNT)])
        table = db.create_table("t", SCHEMA, ["id"], partition_by=[parts])
        table.insert(rows(np.arange(COUNT), 0))
        table.maintain("flush")
        table.upsert(rows(np.arange(0, COUNT, 10), 1))
        table.maintain("flush_deltas")
        assert table.scan(where="n = 1").count() == COUNT // 10
        assert table.get(10) is not None
        scan = iter(table.scan())
        count = next(scan).num_rows
        assert cache.size_bytes
        if is_dropped:
            db.drop_table("t")
        else:
            table.alter().drop_range_partition(0, COUNT).apply()
        assert count + sum(batch.num_rows for batch in scan) == COUNT
        del scan, table
        gc.collect()
        assert cache.size_bytes == 0
        assert deleted(tmp_path) == set()

"""Gets of a table that is larger than the page cache: each reads little, and rows that are asked for again stay."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nyala
from nyala.engine.cfile.page import FileImage

ROWS, COLUMNS = 20_000, 6
SCHEMA = pa.schema([("id", pa.int64()), *((f"c{number}", pa.string()) for number in range(COLUMNS))])


class Reads:
    """Bytes that are read of files of columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = FileImage.read_to

        def read_to(image: FileImage, offset: int, data: Any, is_page: bool = False) -> None:
            self.count += len(data)
            real(image, offset, data, is_page)

        monkeypatch.setattr(FileImage, "read_to", read_to)

    def of(self, table: nyala.Table, key: int) -> tuple[dict[str, Any] | None, int]:
        """Return a row, and the bytes that reading it took."""
        before = self.count
        row = table.get(key)
        return row, self.count - before


def text(random: Random) -> str:
    return random.randbytes(60).hex()[: random.randint(40, 120)]


@pytest.fixture
def expected() -> dict[int, dict[str, Any]]:
    random = Random(5)
    return {key: {"id": key, **{f"c{i}": text(random) for i in range(COLUMNS)}} for key in range(ROWS)}


def opened(folder: Path) -> nyala.Database:
    return nyala.open(folder, maintenance="off", page_cache_bytes=4 << 20)


@pytest.mark.parametrize("row_column", [False, True])
def test_gets_read_little_and_are_right_through_writes_compactions_and_a_restart(
    tmp_path: Path, row_column: bool, expected: dict[int, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    random, reads = Random(6), Reads(monkeypatch)
    with opened(tmp_path) as database:
        table = database.create_table("t", SCHEMA, primary_key="id", row_column=row_column)
        table.insert(pa.Table.from_pylist(list(expected.values()), SCHEMA))
        table.maintain("flush")
    rows: dict[int, dict[str, Any] | None] = {**expected}
    for work in ("", "flush_deltas", "major_compact", "compact"):
        with opened(tmp_path) as database:
            table = database.table("t")
            if work:
                table.maintain(work)
            for key in range(0, ROWS, 100):  # each page once, as a whole
                assert table.get(key) == rows[key]
            small = kept = 0
            for key in random.sample(range(ROWS), 300):
                row, size = reads.of(table, key)
                assert row == rows[key]
                small += 0 < size <= (COLUMNS + 1) * (16 << 10)
                again, size = reads.of(table, key)
                assert again == row
                kept += size == 0
            assert small > 100 and kept > 250, (work, small, kept)
            keys = random.sample(range(ROWS), 50)
            found = {row["id"]: row for row in table.get_many(keys).to_pylist()}
            assert found == {key: rows[key] for key in keys if rows[key]}
            for key in random.sample(range(ROWS), 400):
                if (row := rows[key]) is None:
                    continue
                if key % 4:
                    rows[key] = changed = {**row, "c1": text(random)}
                    table.update([{"id": key, "c1": changed["c1"]}])
                else:
                    rows[key] = None
                    table.delete([{"id": key}])
                assert table.get(key) == rows[key], "a row that is kept has its deltas"


def test_numbers_are_kept_exactly(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(12, 60_000))
    columns = {"id": np.arange(60_000), **{f"d{place}": cells for place, cells in enumerate(values)}}
    with nyala.open(tmp_path, maintenance="off", page_cache_bytes=1 << 20) as database:
        table = database.create_table("t", pa.table(columns).schema, primary_key="id")
        table.insert(pa.table(columns))
        table.maintain("flush")
        for key in [0, *Random(2).sample(range(60_000), 200)] * 2:
            assert table.get(key) == {"id": key, **{f"d{place}": cells[key] for place, cells in enumerate(values)}}

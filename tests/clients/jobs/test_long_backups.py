"""Cells of up to 1 MiB in backups, their increments, exports and copies."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import LocalExecutor, backup, export, load, restore
from tests.clients.test_long_cells import JSON, MOST, SCHEMA, USUAL, row, rows_of

ONE = LocalExecutor(1)


@pytest.fixture
def table(embedded: Database) -> Table:
    made = embedded.create_table("t", SCHEMA, "k", column_options=JSON, cell_bytes_max=MOST)
    made.insert(pa.Table.from_pylist([row(1, MOST), row(2, 10), row(3, 3 * USUAL)], SCHEMA))
    return made


def test_increments_have_long_cells(embedded: Database, table: Table, tmp_path: Path) -> None:
    """The option was raised, fell and rose again: each backup has the cells of its moment."""
    expected = []
    for number, (size, most) in enumerate([(MOST, MOST), (USUAL, None), (MOST - 1, MOST), (150_000, 150_000)]):
        table.alter().set_option("cell_bytes_max", most).apply()
        table.upsert([row(2, size, number), row(10 + number, size, number)])
        table.delete({"k": [3]}) if number == 2 else None
        table.maintain("flush") if number % 2 else None
        backup(embedded, "t", tmp_path, executor=ONE, show="off")
        expected.append((embedded.now(), rows_of(table), most))
    for number, (moment, rows, most) in enumerate(expected):
        restore(embedded, tmp_path, "t", name=f"r{number}", at=moment, executor=ONE, show="off")
        there = embedded.table(f"r{number}")
        assert rows_of(there) == rows and there.describe()["options"].get("cell_bytes_max") == most


def test_exports_have_long_cells(embedded: Database, table: Table, tmp_path: Path) -> None:
    export(embedded, "t", tmp_path / "rows", executor=ONE, show="off")
    there = embedded.create_table("there", SCHEMA, "k", column_options=JSON, cell_bytes_max=MOST)
    load(embedded, "there", str(tmp_path / "rows"), executor=ONE, show="off")
    assert rows_of(there) == rows_of(table)

"""Filters on columns that were added after rows were written: rowsets that lack them are left out unread."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table

ROWS = 5_000
CASES = [
    ("d = 7", True),
    ("d <> 7", False),
    ("d > 7", False),
    ("d BETWEEN 5 AND 9", True),
    ("d IS NULL", False),
    ("d IN (1, 2, 3)", False),
    ("n IS NULL", True),
    ("n IS NOT NULL", False),
    ("n = 1", False),
    ("n = 1 OR d = 7", True),
    ("t = 'oslo'", True),
    ("t LIKE 'osl%'", True),
    ("t LIKE 'b%'", False),
    ("NOT (d = 7)", False),
]


@pytest.fixture
def table(db: Database) -> Table:
    made = db.create_table("t", pa.schema([("id", pa.int64())]), ["id"])
    made.insert({"id": range(ROWS)})
    made.maintain("flush")
    made.alter().add_column("d", "int32", read_default=7).add_column("n", "int64").add_column(
        "t", "string", read_default="oslo"
    ).apply()
    return made


@pytest.mark.parametrize(("where", "matches"), CASES, ids=[case[0] for case in CASES])
def test_a_rowset_without_the_column_is_pruned_by_its_read_default(table: Table, where: str, matches: bool) -> None:
    scan = table.scan(where=where)
    assert scan.count() == (ROWS if matches else 0)
    assert (scan.explain()["rows_to_read"] == 0) is not matches


def test_rows_that_were_updated_are_found_in_a_rowset_without_the_column(table: Table) -> None:
    table.update({"id": [3, 4_999], "d": [9, 9], "n": [1, None]})
    for _ in range(2):
        assert table.scan(where="d = 9", ordered=True).to_arrow()["id"].to_pylist() == [3, 4_999]
        assert table.scan(where="n = 1").to_arrow()["id"].to_pylist() == [3]
        assert table.scan(where="n IS NULL").count() == ROWS - 1
        assert table.scan(where="d = 7").count() == ROWS - 2
        table.maintain("flush_deltas")

"""A load tells how many of its rows replaced another: of several rows with one key one remains."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import LoadResult, load
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture(params=[1, 3], ids=["a tablet", "three tablets"])
def table(target: Database, request: pytest.FixtureRequest) -> Table:
    levels = [nyala.hash("id", buckets=3)] if request.param == 3 else []
    made = target.create_table("homes", SCHEMA, ["id"], levels)
    made.insert({"id": [1, 2, 3], "city": ["a", "b", "c"]})
    return made


def lines(path: Path, *keys: int) -> Path:
    path.write_text("id,city\n" + "".join(f"{key},new {place}\n" for place, key in enumerate(keys)))
    return path


def counts(result: LoadResult) -> tuple[int, int | None]:
    return result.applied, result.replaced


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("many", [0, 1_000])
def test_rows_that_met_another_are_counted(
    target: Database, table: Table, tmp_path: Path, atomic: bool, many: int
) -> None:
    """Those that the table had, and those that come again in the file; a second run counts nothing."""
    file = lines(tmp_path / "a.csv", 2, 3, 4, 4, *range(100, 100 + many))
    assert counts(load(target, "homes", file, atomic=atomic)) == (4 + many, 3)
    assert counts(load(target, "homes", file, atomic=atomic)) == (0, 0)
    assert counts(load(target, "homes", file, atomic=atomic, run="again")) == (4 + many, 4 + many)
    assert table.count() == 4 + many


def test_other_operations_replace_nothing(target: Database, table: Table, tmp_path: Path) -> None:
    file = lines(tmp_path / "a.csv", 3, 4, 5)
    assert counts(load(target, "homes", file, op="insert_ignore")) == (2, 0)
    assert counts(load(target, "homes", file, op="update")) == (3, 0)
    (tmp_path / "b.csv").write_text("id\n3\n9\n")
    assert counts(load(target, "homes", tmp_path / "b.csv", op="delete_ignore")) == (1, 0)


def test_rows_that_go_straight_to_disk_are_new(target: Database, table: Table, tmp_path: Path) -> None:
    rows = 300_000
    cities = pa.array([f"city {row:012}" for row in range(rows)])
    pq.write_table(pa.table({"id": range(1_000, 1_000 + rows), "city": cities}), tmp_path / "a.parquet")
    assert counts(load(target, "homes", tmp_path / "a.parquet")) == (rows, 0)


def test_a_repeated_number_gets_the_first_count_again(target: Database, table: Table) -> None:
    service: StoreService = target._store
    command = WriteCommand(table="homes", writer="w", count_replaced=True)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "city": "x"}, {"id": 7, "city": "y"}], SCHEMA)
    first = service.write(command, batch, 0)
    assert (first.applied, first.replaced) == (2, 1) and service.write(command, batch, 0) == first
    silent = WriteCommand(table="homes", op=Operation.UPSERT, writer="w")
    assert service.write(silent, batch, 1).replaced == 0


def test_a_rejected_row_is_not_counted(target: Database, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int8(), nullable=False)])
    target.create_table("few", schema, ["id"]).insert({"id": [1, 2], "n": [1, 1]})
    (tmp_path / "a.csv").write_text("id,n\n1,5\n2,\n3,7\n1,9\n")
    result = load(target, "few", tmp_path / "a.csv")
    assert (result.applied, result.replaced, result.error_count) == (3, 2, 1)

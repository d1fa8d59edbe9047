"""Jobs whose tasks Spark runs: the same results as by threads, and the same errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.jobs import SparkExecutor, backup, copy_table, load, restore, verify
from nyala.schemas.errors import CorruptionError, InvalidArgumentError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])


@pytest.fixture
def homes(db: Database) -> Table:
    table = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    table.insert({"id": range(900), "city": [f"c{n % 7}" for n in range(900)]})
    return table


def test_jobs_on_spark(spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path) -> None:
    executor = SparkExecutor(spark)
    assert executor.map(len, ["a", "bc", ""]) == [1, 2, 0]
    full = backup(uri, "homes", tmp_path / "backups", executor=executor)
    assert (full.kind, full.rows, full.files) == ("full", 900, 3)
    pq.write_table(pa.table({"id": range(900, 1_000), "city": ["new"] * 100}), tmp_path / "more.parquet")
    assert load(uri, "homes", tmp_path / "more.parquet", op="insert", executor=executor).applied == 100
    homes.delete({"id": [5]})
    assert backup(uri, "homes", tmp_path / "backups", executor=executor).rows == 101
    made = restore(uri, tmp_path / "backups", "homes", name="restored", executor=executor)
    assert made.backups == 2
    assert copy_table(uri, uri, "homes", name="copied", executor=executor).rows == 999
    assert verify(uri, uri, "homes", right_table="restored", executor=executor).equal
    db.table("copied").update({"id": [7], "city": ["moved"]})
    found = verify(uri, uri, "homes", right_table="copied", executor=executor)
    assert [each.key for each in found.differences] == [{"id": 7}]


@pytest.mark.night
def test_a_frame_of_spark_is_loaded(spark: SparkSession, db: Database, uri: str, homes: Table) -> None:
    frame = spark.createDataFrame(pa.table({"id": [5_000, 5_001], "city": ["a", "b"]}, schema=SCHEMA))
    made = load(uri, "homes", frame, op="insert")
    assert (made.rows, made.error_count) == (2, 0)
    assert db.table("homes").scan(where="id >= 5000").count() == 2


def test_errors_are_those_of_the_tasks(
    spark: SparkSession, db: Database, uri: str, homes: Table, tmp_path: Path
) -> None:
    executor = SparkExecutor(spark)
    backup(uri, "homes", tmp_path)
    next(tmp_path.rglob("*.parquet")).write_bytes(b"not what was written")
    with pytest.raises(CorruptionError, match="it has 20 bytes, not"):
        restore(uri, tmp_path, "homes", name="restored", executor=executor)
    with pytest.raises(InvalidArgumentError, match="cannot be used by other processes"):
        verify(db, uri, "homes", executor=executor)

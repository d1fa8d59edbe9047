"""Files of a table that Spark's tasks build and read: rows pass neither through the JVM nor through the server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import nyala
from nyala.jobs import SparkExecutor

pytestmark = pytest.mark.spark


@pytest.mark.night
def test_tasks_build_and_read_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([n * 38 % 999 for n in range(999)], pa.int64()), "city": ["somewhere"] * 999})
    pq.write_table(rows.slice(0, 500), tmp_path / "a.parquet")
    pq.write_table(rows.slice(500), tmp_path / "b.parquet")
    executor = SparkExecutor(spark)
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", rows.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        home, files = tmp_path / "store", [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        assert table.bulk_import(files, directory=home, executor=executor).applied == 999
        assert table.scan(ordered=True).to_arrow().equals(rows.sort_by("id").cast(table.schema))
        with table.direct_scan(where="id < 100", directory=home) as scan:
            assert scan.to_arrow(executor).num_rows == 100
        table.upsert({"id": range(0, 1_100, 50), "city": ["moved"] * 22})
        made = table.bulk_compact(directory=home, executor=executor)
        assert (made.rowsets, made.rows, made.conflicts) == (2, 1_001, [])
        assert table.scan(where="city = 'moved'").to_arrow().num_rows == 22
        with pytest.raises(nyala.AlreadyPresentError, match="already in the table"):
            table.bulk_import(files[0], directory=home, executor=executor)


def test_tasks_read_a_bucket_past_the_server(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(999), pa.int64()), "city": ["somewhere"] * 999})
    with nyala.open(f"file://{tmp_path / 'bucket'}", name="a", bucket_cache=str(tmp_path / "cache")) as db:
        table = db.create_table("t", rows.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        table.insert(rows)
        with table.direct_scan(where="id < 500", split_bytes=5_000) as scan:
            table.delete({"id": list(range(100))})
            table.maintain("compact")
            assert scan.to_arrow(SparkExecutor(spark)).num_rows == 500

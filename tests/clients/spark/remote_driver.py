"""A driver of its own, through Spark Connect: ``python remote_driver.py URI FOLDER``.

It reads and writes ``homes``, and then stages rows that it never commits: the test kills it meanwhile.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.clients.spark.batch_write import BatchWriter
from nyala.clients.spark.options import WriteOptions, parse
from nyala.clients.spark.source import NyalaDataSource
from nyala.spark import configure, merge_changes, read_table, write_table
from tests.clients.spark.sessions import SETTINGS


def open_remote(folder: Path) -> SparkSession:
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    builder = SparkSession.builder.remote("local[2]")
    for name, value in settings.items():
        builder.config(name, value)
    return configure(builder, shim=False).getOrCreate()


def use(spark: SparkSession, uri: str) -> None:
    """Do what a session does, and compare."""
    write_table(spark.range(100).withColumn("city", f.lit("c")), "homes", uri, "insert", repartition=True)
    frame = read_table(spark, "homes", uri, where="id >= 40", columns=["id"])
    assert frame.count() == 60 and frame.columns == ["id"]
    with nyala.connect(uri) as db:
        now = db.now()
    assert read_table(spark, "homes", uri, since=now).count() == 0
    changes = spark.sql("SELECT 'delete' AS _op, 1L AS _timestamp, 7L AS id, '' AS city")
    merge_changes(changes, "homes", uri)
    merge_changes(changes, "homes", uri)
    assert read_table(spark, "homes", uri).count() == 99


def hanging(folder: Path) -> type[NyalaDataSource]:
    """Return a sink whose driver never comes to its commit."""

    class Writer(BatchWriter):
        def commit(self, messages: Any) -> None:
            (folder / "staged").touch()
            time.sleep(600)

    class Hanging(NyalaDataSource):
        @classmethod
        def name(cls) -> str:
            return "hanging"

        def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
            return Writer(schema, overwrite, parse(WriteOptions, self.options, "write"))

    return Hanging


def main() -> None:
    uri, folder = sys.argv[1], Path(sys.argv[2])
    spark = open_remote(folder)
    use(spark, uri)
    spark.dataSource.register(hanging(folder))
    rows = spark.range(100, 200).withColumn("city", f.lit("never"))
    rows.write.format("hanging").option("uri", uri).mode("append").save("homes")


if __name__ == "__main__":
    main()

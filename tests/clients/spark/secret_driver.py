"""A driver that shows a token to a server with TLS: ``python secret_driver.py URI TOKEN_FILE ROOTS FOLDER [SHIM]``.

It reads and writes in every way with the token as an option, prints all that Spark shows of it, and logs events. The
test searches all of that for the token, which is in no argument and not in the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.__main__ import make_app
from nyala.clients.spark.server import ServerKeywords
from nyala.jobs import SparkExecutor, backup, load, restore, verify
from nyala.spark import by_tablet, configure, merge_changes, read_table, write_table
from tests.clients.spark.sessions import SETTINGS
from tests.dose import IS_NIGHT, dose

URI, TOKEN_FILE, ROOTS = sys.argv[1:4]
FOLDER = Path(sys.argv[4])
SHIM = sys.argv[5] if len(sys.argv) > 5 else False
TOKEN = Path(TOKEN_FILE).read_text().strip()
SHOWN: ServerKeywords = {"token": TOKEN, "tlsRoots": ROOTS}
OPTIONS = {"uri": URI, "token": TOKEN, "tlsRoots": ROOTS}
MODES = dose(("formatted",), ("simple", "extended", "codegen", "cost", "formatted"))


def open_session() -> SparkSession:
    (FOLDER / "events").mkdir()
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(FOLDER / "warehouse"),
        "spark.local.dir": str(FOLDER / "local"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{FOLDER}/events",
        "spark.log.level": "INFO",
        "spark.logConf": "true",
        "spark.sql.maxToStringFields": "1000",
        **{f"spark.sql.catalog.nyala.{name}": value for name, value in OPTIONS.items()},
    }
    builder = SparkSession.builder.master("local[2]").appName("secrets")
    for name, value in settings.items():
        builder.config(name, value)
    return configure(builder, URI, SHIM).getOrCreate()


def executed(frame: DataFrame) -> str:
    return cast(Any, frame)._jdf.queryExecution().toString()


def show(frame: DataFrame) -> int:
    """Print all that Spark shows of a frame; return its number of rows."""
    for mode in MODES:
        frame.explain(mode=mode)
    rows = frame.collect()
    print(frame, frame.schema.json(), executed(frame))
    return len(rows)


def in_batches(spark: SparkSession) -> None:
    rows = spark.range(100).withColumn("city", f.lit("c"))
    write_table(rows, "homes", URI, "insert", repartition=True, **SHOWN)
    frame = read_table(spark, "homes", URI, where="id >= 40", **SHOWN)
    assert show(frame.where("city = 'c'")) == 60
    assert by_tablet(rows, "homes", URI, **SHOWN).rdd.getNumPartitions() == 2
    with nyala.connect(URI, token=TOKEN, tls_roots=ROOTS) as db:
        now = db.now()
    assert show(read_table(spark, "homes", URI, since=now, **SHOWN)) == 0
    changes = spark.sql("SELECT 'delete' AS _op, 1L AS _timestamp, 7L AS id, '' AS city")
    merge_changes(changes, "homes", URI, **SHOWN)
    assert spark.read.format("nyala").options(**OPTIONS).load("homes").count() == 99


def in_sql(spark: SparkSession) -> None:
    options = ", ".join(f"{name} '{value}'" for name, value in {"table": "homes", **OPTIONS}.items())
    view = f"CREATE OR REPLACE TEMPORARY VIEW homes USING nyala OPTIONS ({options}, operation 'upsert')"
    print(executed(spark.sql(view)))
    assert show(spark.sql("SELECT * FROM homes WHERE id < 7")) == 7
    for statement in ("INSERT INTO homes VALUES (0, 'zero')", "SET", "SET -v", "DESCRIBE EXTENDED homes"):
        done = spark.sql(statement)
        done.show(1000, truncate=False)
        print(executed(done))
    if SHIM:
        joined = "SELECT * FROM nyala.default.homes a JOIN nyala.default.homes b USING (id) WHERE a.id < 5"
        assert show(spark.sql(joined)) == 5
        spark.sql("INSERT INTO nyala.default.homes VALUES (1000, 'new')")
        by_catalog(spark)


def by_catalog(spark: SparkSession) -> None:
    """Statements that the catalog carries out, with their plans, and the errors of others."""
    made, rows = "nyala.default.made", "SELECT id, city FROM nyala.default.homes WHERE id < 9"
    for statement in (
        "SHOW TABLES IN nyala.default", "DESCRIBE EXTENDED nyala.default.homes",
        f"CREATE TABLE {made} TBLPROPERTIES (primary_key = 'id') AS {rows}",
        f"ALTER TABLE {made} ADD COLUMN note STRING", f"DESCRIBE EXTENDED {made}",
        f"SHOW CREATE TABLE {made}", f"SHOW TBLPROPERTIES {made}",
        f"UPDATE {made} SET note = 'n' WHERE id = 1", f"DELETE FROM {made} WHERE id = 2",
        f"MERGE INTO {made} m USING nyala.default.homes h ON m.id = h.id WHEN MATCHED THEN UPDATE SET note = h.city",
        f"INSERT OVERWRITE {made} SELECT id, city, 'o' FROM nyala.default.homes WHERE id < 4",
        f"SELECT city, count(*) FROM {made} GROUP BY city",
        f"SELECT * FROM {made}.tablets", f"SELECT * FROM {made}.history",
        "CALL nyala.system.compact('made')", f"TRUNCATE TABLE {made}",
        f"REPLACE TABLE {made} (town STRING) TBLPROPERTIES (primary_key = 'town')", f"DROP TABLE {made}",
    ):  # fmt: skip
        if IS_NIGHT:
            spark.sql(f"EXPLAIN EXTENDED {statement}").show(truncate=False)
        done = spark.sql(statement)
        done.show(1000, truncate=False)
        print(executed(done))
    for statement in (
        "SELECT nothing FROM nyala.default.homes", "CREATE TABLE nyala.default.homes (id BIGINT)",
        "REPLACE TABLE nyala.default.nowhere (id BIGINT) TBLPROPERTIES (primary_key = 'id')",
        "CALL nyala.system.nothing()", "INSERT INTO nyala.default.homes VALUES (1, 2, 3)",
    ):  # fmt: skip
        try:
            spark.sql(statement)
        except PySparkException as error:
            print(error)
        else:
            raise AssertionError(f"{statement} is not refused")


def as_stream(spark: SparkSession) -> None:
    feed = spark.readStream.format("nyala").options(readChangeFeed="true", maxRowsPerTrigger="40", **OPTIONS)
    sink = feed.load("homes").drop("_timestamp").writeStream.format("nyala").trigger(availableNow=True)
    into = {"table": "copy", "operationColumn": "_op", "checkpointLocation": f"{FOLDER}/cp"}
    query = sink.options(**OPTIONS, **into).start()
    query.awaitTermination()
    query.explain(True)
    print([progress.json for progress in query.recentProgress], query.status)


def in_jobs(spark: SparkSession) -> None:
    executor = SparkExecutor(spark)
    with nyala.connect(URI, token=TOKEN, tls_roots=ROOTS) as db:
        print(backup(db, "homes", FOLDER / "backups", executor=executor))
        print(restore(db, FOLDER / "backups", "homes", name="restored", executor=executor))
        made = verify(db, db, "homes", right_table="restored", executor=executor)
        assert made.equal
        pq.write_table(pa.table({"id": [5_000], "city": ["a"]}), FOLDER / "more.parquet")
        print(load(db, "homes", FOLDER / "more.parquet", op="insert", executor=executor))
        print(load(db, "homes", spark.createDataFrame([(5_001, "b")], "id long, city string"), op="insert"), db)
    shown = ["--token-file", TOKEN_FILE, "--tls-roots", ROOTS]
    asked = ["job", "verify", "homes", "--url", URI, "--other-url", URI, "--executor", "spark"]
    told = CliRunner().invoke(make_app(), [*shown, *asked], obj=nyala.open)
    print(told.output)
    assert told.exit_code == 0, told.exception


def failing(spark: SparkSession) -> None:
    """Errors, with what Spark and Python add to them."""
    for options in ({"filter": "nothing = 1"}, {"token": TOKEN[:-1] + "!"}, {"tokenFile": TOKEN_FILE}, {"tokn": TOKEN}):
        try:
            spark.read.format("nyala").options(**{**OPTIONS, **options}).load("homes").collect()
        except PySparkException as error:
            print(error)
        else:
            raise AssertionError(f"{list(options)} are not refused")


if __name__ == "__main__":
    session = open_session()
    for use in (in_batches, in_sql, as_stream, *dose((), (in_jobs,)), failing):
        use(session)
    session.stop()

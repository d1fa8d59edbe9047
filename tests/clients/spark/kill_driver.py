"""A driver with executors in processes of their own, made to be killed: ``python kill_driver.py SETTINGS``.

It carries out what its input says, a line of JSON for each step, and answers each with a line of JSON. Two workers
with different addresses share its Java machine. In ``local-cluster`` they have the same, and Spark runs a task a second
time, by speculation, on another machine only. Its tasks nap, and some fail: ``shaky`` is in each statement.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.jobs import backup, copy_table, export, load, restore
from nyala.spark import configure
from tests.clients.spark.kill_faults import ShakyExecutor, shaky, source_in
from tests.clients.spark.sessions import SETTINGS
from tests.clients.spark.streaming import to_write

HOSTS = ("127.0.0.1", "127.0.0.2")
_EXECUTOR_MB = 512
_SETTINGS = SETTINGS | {
    "spark.executor.memory": f"{_EXECUTOR_MB}m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.executor.heartbeatInterval": "1s",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.task.maxFailures": "30",
    "spark.stage.maxConsecutiveAttempts": "30",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "200ms",
    "spark.sql.shuffle.partitions": "3",
    "spark.master.rest.enabled": "false",
}


def start_cluster(folder: Path) -> str:
    """Start a master and two workers in the Java machine of this process, as ``local-cluster`` does; return the URL."""
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    conf = jvm.org.apache.spark.SparkConf()
    for name, value in _SETTINGS.items():
        conf.set(name, value)
    deploy, none = jvm.org.apache.spark.deploy, jvm.scala.Option.empty()
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)._1().address()
    url = f"spark://{master.host()}:{master.port()}"
    gateway: Any = SparkContext._gateway
    urls = gateway.new_array(jvm.String, 1)
    urls[0] = url
    for number, host in enumerate(HOSTS, 1):
        place, some = str(folder / "work"), jvm.scala.Option.apply(number)
        deploy.worker.Worker.startRpcEnvAndEndpoint(host, 0, 0, 1, 2 * _EXECUTOR_MB, urls, place, some, conf, none)
    return url


def open_session(folder: Path, jar: str | None, uri: str) -> SparkSession:
    """Return a session on two executors that load the shim as those of any cluster do."""
    settings = _SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    builder = SparkSession.builder.appName("killed")
    for name, value in settings.items():
        builder.config(name, value)
    configure(builder, uri, jar or False)
    conf = SparkConf(loadDefaults=False)
    for name, value in builder._options.items():  # type: ignore[attr-defined]
        conf.set(name, str(value))
    SparkContext._ensure_initialized(conf=conf)  # jars of the driver are on the command line of its Java machine
    session = builder.master(start_cluster(folder)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


class Driver:
    """The steps, by name; each returns what JSON can say."""

    def __init__(self, spark: SparkSession, folder: Path, store: str | None, uri: str) -> None:
        self._spark = spark
        self._folder = folder
        self._store = store
        self._uri = uri
        self._speculated = 0
        self._executor = ShakyExecutor(spark, tasks_at_once=3)
        spark.udf.register("shaky", shaky(), LongType())
        self.plant(None)

    def plant(self, mistake: str | None) -> None:
        """Let the data source without the shim make a mistake from now on; None for none."""
        self._spark.dataSource.register(source_in(self._folder, mistake))

    def speculated(self) -> int:
        """Return how many tasks Spark has started a second time since this was last asked."""
        session: Any = self._spark._jsparkSession
        store = session.sparkContext().statusStore()
        stages = store.stageList(None, False, False, getattr(store, "stageList$default$4")(), None)
        found = [stages.apply(place) for place in range(stages.size())]
        summaries = [store.speculationSummary(stage.stageId(), stage.attemptId()) for stage in found]
        count = sum(summary.get().numTasks() for summary in summaries if summary.isDefined())
        self._speculated, before = count, self._speculated
        return max(count - before, 0)

    def sql(self, text: str, source: list[int] | None = None) -> None:
        """Run a statement; ``source`` are first, step, count and version of the rows of the view ``source``."""
        if source:
            self._rows(*source).createOrReplaceTempView("source")
        self._spark.sql(text).collect()

    def _rows(self, first: int, step: int, count: int, version: int) -> Any:
        return self._spark.range(0, count, 1, 3).selectExpr(
            f"shaky({first} + id * {step}) AS id", f"({first} + id * {step}) * 7 + {version} AS v")  # fmt: skip

    def write(self, source: list[int], table: str = "t", operation: str = "upsert") -> None:
        rows = self._rows(*source)
        rows.write.format("nyala_plain").options(uri=self._uri, operation=operation).mode("append").save(table)

    def read(self, form: str) -> list[tuple[int, int]]:
        if form == "direct":
            with nyala.connect(self._uri) as db, db.table("t").direct_scan(directory=self._store) as scan:
                return [(row["id"], row["v"]) for row in scan.to_arrow(self._executor).to_pylist()]
        rows = self._spark.read.format(form).option("uri", self._uri).load("t")
        return [tuple(row) for row in rows.selectExpr("shaky(id)", "v").collect()]

    def load(self, path: str) -> None:
        load(self._uri, "t", path, op="upsert", atomic=True, executor=self._executor)

    def bulk_import(self, path: str) -> None:
        with nyala.connect(self._uri) as db:
            db.table("t").bulk_import(path, directory=self._store, executor=self._executor)

    def bulk_compact(self) -> None:
        with nyala.connect(self._uri) as db:
            db.table("t").bulk_compact(directory=self._store, executor=self._executor)

    def restore(self, name: str) -> None:
        """Take a backup, and restore it as another table."""
        backup(self._uri, "t", self._folder / "backups", executor=self._executor)
        restore(self._uri, self._folder / "backups", "t", name=name, executor=self._executor)

    def copy(self, name: str) -> None:
        copy_table(self._uri, self._uri, "t", name=name, executor=self._executor)

    def export(self, name: str) -> None:
        export(self._uri, "t", self._folder / name, executor=self._executor)

    def stream(self, name: str, form: str, since: int) -> None:
        """Bring ``copy`` or ``journal`` up to date, in several micro-batches."""
        options = {"readChangeFeed": "true", "startingTimestamp": str(since), "maxRowsPerTrigger": "300"}
        changes = self._spark.readStream.format(form).options(uri=self._uri, **options).load("t")
        rows, given = to_write(name, changes.selectExpr("shaky(id) AS id", "v", "_op", "_timestamp"))
        sink = rows.writeStream.format(form).options(uri=self._uri, table=name, **given).outputMode("append")
        query = sink.option("checkpointLocation", str(self._folder / name)).trigger(availableNow=True).start()
        query.awaitTermination()


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no reply
    spark = open_session(Path(given["scratch"]), given["jar"], given["uri"])
    driver = Driver(spark, Path(given["folder"]), given["store"], given["uri"])
    gateway: Any = SparkContext._gateway
    print(json.dumps({"java": gateway.proc.pid}), file=replies, flush=True)
    for line in sys.stdin:
        step = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": getattr(driver, step.pop("do"))(**step)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer | {"speculated": driver.speculated()}), file=replies, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

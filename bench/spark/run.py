"""The suite ``spark``: read, count, add up, filter, join, write and load the same rows, in tables and Parquet files."""

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from rich.console import Console

import nyala
from bench.measure import take_turns
from bench.report import Result, Suite

from .pair import from_parquet, pair, past_server, through_server
from .processes import cost, wait_until_idle
from .rows import SCHEMA, TABLETS, generated
from .session import PLAIN_FORMAT, Server, session

PLAIN, NAMED, SHIM = "Nyala", "Nyala, columns and filter named", "Nyala with the shim"
SHUFFLED = "Nyala with the shim, shuffled"
PAST, PARQUET = "Nyala, past the server", "Parquet"
SUBJECTS = [PLAIN, NAMED, SHIM, SHUFFLED, PAST, PARQUET]
REHEARSAL_ROWS = 200_000
TINY_ROWS = 10
TABLES = ("rows", "half", "tiny")
BUCKETING = "spark.sql.sources.v2.bucketing.enabled"
AFTER_A_LOAD = 2.5
"""So many seconds of rest: within them the server looks for work, and compactions of what was loaded before show."""
Action = Callable[[int], Any]


class Comparison:
    """One table and one directory of Parquet files with the same rows, and what was measured so far."""

    def __init__(
        self, spark: SparkSession, server: Server, database: nyala.Database, pool: ProcessPoolExecutor, work: Path
    ) -> None:
        self.spark, self.server, self.database = spark, server, database
        self.pool, self.work = pool, work

    def run(self, rows: int, rounds: int, console: Console) -> list[Result]:
        """Measure all cases."""
        self.rows, self.rounds, self.console = rows, rounds, console
        self.results: list[Result] = []
        self._write_once()
        self._reads()
        self._pairs()
        self._writes()
        return self.results

    def _write_once(self) -> None:
        """Make what is read: written before anything is measured, and in files."""
        for name, rows in zip(TABLES, (self.rows, self.rows // 2, TINY_ROWS), strict=True):
            frame = generated(self.spark, rows)
            frame.write.mode("overwrite").parquet(self._files(name))
            if name in self.database.tables():
                self.database.drop_table(name)
            self._table(name)
            nyala.spark.write_table(frame, name, self.server.url)
            self.database.table(name).maintain("flush")
        self.table = self.database.table("rows")

    def _files(self, name: str) -> str:
        return str(self.work / f"{name}.parquet")

    def _reads(self) -> None:
        first, key = self.rows - self.rows // 10, self.rows // 3
        where, point = f"id >= {first}", f"id = {key}"
        self._query("full read", _read_all)
        self._query("count of all", lambda frame: frame.count())
        self._query("sums of two columns", _sums, columns="k,v")
        self._query("sum by 1,000 groups", _groups, columns="k,v")
        self._query("the first three of each group, by a window", _windows)
        self._query("a tenth of the keys, by a range", lambda frame: _read_all(frame.where(where)), filter=where)
        self._query("one row by its key", lambda frame: frame.where(point).collect(), filter=point)
        self._query("10 rows, by LIMIT", lambda frame: frame.limit(10).collect())
        self._query(f"full read of a table of {TINY_ROWS} rows", _read_all, "tiny")
        self._joins()

    def _joins(self) -> None:
        """Measure a join of tables that are hashed alike, without the shuffle and with it."""
        self.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        try:
            loads = self._loads_of(("rows", "half"))
            if SHIM in loads:
                loads[SHUFFLED] = loads[SHIM]
            self._turns("join by the hashed key", {name: self._join(name, load) for name, load in loads.items()})
        finally:
            self.spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
            self.spark.conf.unset(BUCKETING)

    def _join(self, subject: str, load: Callable[[], list[DataFrame]]) -> Action:
        def joined(_: int) -> None:
            self.spark.conf.set(BUCKETING, str(subject != SHUFFLED).lower())
            left, right = load()
            found = left.join(right.select("id", f.col("v").alias("w")), "id")
            assert found.agg(f.count("*"), f.sum("w")).collect()[0][0] == self.rows // 2

        return joined

    def _query(self, case: str, query: Callable[[DataFrame], Any], table: str = "rows", **named: str) -> None:
        """Measure a query. A table is loaded anew for each, as it has to be, inside the measured time."""
        loads = self._loads_of((table,))
        if named:
            loads[NAMED] = lambda: [self._load(PLAIN_FORMAT, table, **named)]
        self._turns(case, {name: lambda _, load=load: query(*load()) for name, load in loads.items()})

    def _loads_of(self, tables: tuple[str, ...]) -> dict[str, Callable[[], list[DataFrame]]]:
        """Return what loads tables, by subject."""
        files = [self.spark.read.parquet(self._files(name)) for name in tables]
        loads = {PLAIN: lambda: [self._load(PLAIN_FORMAT, name) for name in tables], PARQUET: lambda: files}
        if self._has_shim:
            loads[SHIM] = lambda: [self._load("nyala", name) for name in tables]
        return loads

    @property
    def _has_shim(self) -> bool:
        return bool(self.spark.conf.get("spark.jars", ""))

    def _load(self, form: str, table: str, **options: str) -> DataFrame:
        return self.spark.read.format(form).options(uri=self.server.url, table=table, **options).load()

    def _pairs(self) -> None:
        actions: dict[str, Callable[[], int]] = {
            PLAIN: lambda: through_server(self.pool, self.server.url, "rows"),
            PAST: lambda: past_server(self.pool, self.table, self.server.folder),
            PARQUET: lambda: from_parquet(self.pool, Path(self._files("rows"))),
        }
        self._turns("full read by 2 processes of Python", {name: self._all_rows(act) for name, act in actions.items()})

    def _all_rows(self, action: Callable[[], int]) -> Action:
        def checked(_: int) -> None:
            found = action()
            assert found == self.rows, f"{found:,} rows"

        return checked

    def _writes(self) -> None:
        made = generated(self.spark, self.rows)
        read = self.spark.read.parquet(self._files("rows"))
        self._loads("write of generated rows", self._ways(made))
        self._loads("load of Parquet files", self._ways(read) | {PAST: self._import})

    def _ways(self, frame: DataFrame) -> dict[str, Callable[[str], None]]:
        """Return what writes a DataFrame, by subject."""
        ways = {PLAIN: self._into_table(frame), PARQUET: self._into_files(frame)}
        if self._has_shim:
            ways[SHIM] = self._through_catalog(frame)
        return ways

    def _loads(self, case: str, actions: Mapping[str, Callable[[str], None]]) -> None:
        """Measure what makes tables and directories, each under a name of its own; they are removed afterwards."""

        def of(what: str, action: Callable[[str], None]) -> Action:
            return lambda number: action(f"{what}{number}")

        names = {name: f"made{place}_" for place, name in enumerate(actions)}
        self._turns(case, {name: of(names[name], action) for name, action in actions.items()}, AFTER_A_LOAD)
        for name in self.database.tables():
            if name.startswith("made"):
                found = self.database.table(name).scan(columns=["id"]).count()
                assert found == self.rows, f"{found:,} rows in {name}"
                self.database.drop_table(name)
        for folder in self.work.glob("made*"):
            shutil.rmtree(folder)

    def _into_table(self, frame: DataFrame) -> Callable[[str], None]:
        def write(name: str) -> None:
            self._table(name)
            nyala.spark.write_table(frame, name, self.server.url)

        return write

    def _through_catalog(self, frame: DataFrame) -> Callable[[str], None]:
        def write(name: str) -> None:
            self._table(name)
            frame.writeTo(f"nyala.default.{name}").append()

        return write

    def _into_files(self, frame: DataFrame) -> Callable[[str], None]:
        return lambda name: frame.write.parquet(str(self.work / name))

    def _import(self, name: str) -> None:
        self._table(name).bulk_import(Path(self._files("rows")), directory=self.server.folder, executor=self.pool)

    def _table(self, name: str) -> nyala.Table:
        parts = [nyala.hash("id", buckets=TABLETS)]
        return self.database.create_table(name, SCHEMA, primary_key=["id"], partition_by=parts)

    def _turns(self, case: str, actions: Mapping[str, Action], rest_seconds: float = 0.5) -> None:
        """Measure actions in turns, by the clock and by the processor, each after some rest."""

        def rested(action: Callable[[], Any]) -> Any:
            wait_until_idle(self.server.process.pid, rest_seconds)
            return cost(action)

        samples = take_turns(actions, self.rounds, rested)
        for unit, place in (("", 0), (", processor time", 1)):
            for name, costs in samples.items():
                result = Result(case + unit, name, "s", [each[place] for each in costs])
                self.console.print(f"  {result.case}, {name}: {result.median:.2f} s")
                self.results.append(result)


def _read_all(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _sums(frame: DataFrame) -> list[Any]:
    return frame.agg(f.sum("k"), f.sum("v")).collect()


def _groups(frame: DataFrame) -> list[Any]:
    return frame.groupBy("k").agg(f.sum("v")).collect()


def _windows(frame: DataFrame) -> list[Any]:
    place = f.row_number().over(Window.partitionBy("k").orderBy("at"))
    return frame.withColumn("place", place).where("place <= 3").agg(f.sum("v")).collect()


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Compare on ``rows`` rows, after two rehearsals: Java compiles while it runs, what it runs often above all."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    server = Server(work / "store")
    try:
        with session(work, server.url) as spark, pair() as pool, nyala.connect(server.url) as database:
            comparison = Comparison(spark, server, database, pool, work)
            comparison.run(min(rows, REHEARSAL_ROWS), 2, Console(quiet=True))
            comparison.run(rows // 5, 1, Console(quiet=True))
            results = comparison.run(rows, rounds, console)
    finally:
        server.close()
        shutil.rmtree(work, ignore_errors=True)
    results.sort(key=lambda result: SUBJECTS.index(result.subject))
    return Suite("spark", {"rows": rows, "rounds": rounds}, results)

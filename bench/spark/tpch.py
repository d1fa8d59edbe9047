"""The suite ``tpch``: all 22 queries of TPC-H in one warm session of Spark, from tables and from Parquet files.

Tables are read through a server in a process of its own, with the shim; the files are snappy, written by the same Spark
from the same rows. Each answer is compared with DuckDB's before anything is measured.
"""

import shutil
from pathlib import Path

import duckdb
import numpy as np
from pyspark.sql import SparkSession
from rich.console import Console

import nyala
from bench.measure import take_turns
from bench.report import Result, Suite
from bench.tpch.answers import Rows, is_same
from bench.tpch.data import KEYS, ROWS_A_SCALE, generate, load, queries

from .session import Server, session

NYALA, PARQUET, RATIO = "Nyala", "Parquet", "ratio"
FILES = "spark_catalog.files"
PLACES = {NYALA: "nyala.default", PARQUET: FILES}
"""Where the tables of each are, in SQL."""


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure; a rehearsal of all queries comes first, and compares the answers."""
    scale = rows / ROWS_A_SCALE
    shutil.rmtree(work, ignore_errors=True)
    generated = work / "generated"
    generated.mkdir(parents=True)
    generate(scale, generated)
    server = Server(work / "store")
    try:
        with session(work, server.url) as spark:
            _load(spark, server.url, generated)
            results = _measure(spark, _answers(generated, scale), scale, rounds, console)
    finally:
        server.close()
        shutil.rmtree(work, ignore_errors=True)
    return Suite("tpch", {"scale": scale, "rounds": rounds}, results)


def _load(spark: SparkSession, url: str, generated: Path) -> None:
    """Fill the tables of the catalog ``nyala``, and those of Spark's own, which are files."""
    spark.sql(f"CREATE DATABASE {FILES}")
    with nyala.connect(url) as database:
        load(database, generated)
    for name in KEYS:
        frame = spark.read.parquet(str(generated / f"{name}.parquet"))
        frame.write.format("parquet").saveAsTable(f"{FILES}.{name}")


def _measure(
    spark: SparkSession, expected: dict[int, Rows], scale: float, rounds: int, console: Console
) -> list[Result]:
    def ask(text: str, place: str) -> Rows:
        spark.sql(f"USE {place}")
        return [tuple(row) for row in spark.sql(text).collect()]

    results: list[Result] = []
    medians: dict[str, list[float]] = {subject: [] for subject in PLACES}
    for number, text in queries(scale).items():
        for subject, place in PLACES.items():
            assert is_same(ask(text, place), expected[number]), f"query {number} of {subject} differs from DuckDB"
        actions = {subject: lambda _, text=text, place=place: ask(text, place) for subject, place in PLACES.items()}
        samples = take_turns(actions, rounds)
        for subject, seconds in samples.items():
            result = Result(f"query {number}", subject, "s", seconds)
            medians[subject].append(result.median)
            results.append(result)
            console.print(f"  {result.case}, {subject}: {result.median:.3f} s")
        results.append(Result(f"query {number}", RATIO, "x", [medians[NYALA][-1] / medians[PARQUET][-1]]))
    means = {subject: float(np.exp(np.mean(np.log(found)))) for subject, found in medians.items()}
    for subject, mean in means.items():
        results.append(Result("geometric mean", subject, "s", [mean]))
    results.append(Result("geometric mean", RATIO, "x", [means[NYALA] / means[PARQUET]]))
    console.print(f"  geometric mean: {means[NYALA] / means[PARQUET]:.2f} of Parquet")
    return results


def _answers(generated: Path, scale: float) -> dict[int, Rows]:
    with duckdb.connect() as duck:
        for name in KEYS:
            duck.execute(f"CREATE VIEW {name} AS SELECT * FROM '{generated / name}.parquet'")
        return {number: duck.execute(text).fetchall() for number, text in queries(scale).items()}

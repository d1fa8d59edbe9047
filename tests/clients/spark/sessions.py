"""A session of Spark, small and quick to start, where there is Java."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nyala.spark import configure

Sql = Callable[[str], list[tuple]]
"""Runs a statement of SQL; returns its rows."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    # The machine compiles little and collects garbage on one thread: what is short-lived starts sooner.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # How long Spark waits for a process of Python to start: 15 seconds are few on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}


def needs_java() -> None:
    """Skip where there is no Java; in continuous integration that is a failure."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        why = "Spark needs Java 17: .ci/java.sh installs it on Debian"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)


def open_session(
    folder: Path, master: str = "local[2,2]", shim: Path | None = None, uri: str | None = None
) -> SparkSession:
    """Return a session that keeps what it writes in ``folder``; a task may fail once. ``shim`` is a jar to use."""
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in settings.items():
        builder.config(name, value)
    session = configure(builder, uri, shim or False).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def refused(sql: Sql, statement: str) -> str:
    """Return the first line of the error of a statement."""
    with pytest.raises(Exception) as caught:
        sql(statement)
    return str(caught.value).split("\n")[0]


def held_bytes(spark: SparkSession) -> int:
    """Return the memory of Arrow that the part of Nyala in Java holds. What Spark's own tasks in Python hold, which a
    job that was cancelled may leave behind, is none of it."""
    root: Any = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # pyright: ignore
    children = root.getChildAllocators().toArray()
    [ours] = [child for child in children if child.getName() == "nyala"]
    return ours.getAllocatedMemory()

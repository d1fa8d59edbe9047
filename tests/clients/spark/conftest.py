"""One store, in this process and behind Flight: what Spark reads and writes is compared with what the store says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from nyala.clients.api.database import Database
from nyala.clients.spark.source import NyalaDataSource
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.spark import build_shim, read_table
from tests.clients.spark.sessions import Sql, needs_java, open_session


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    opened = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def uri(store: Store) -> Iterator[str]:
    server = FlightServer(store, "grpc://127.0.0.1:0")
    yield f"grpc://127.0.0.1:{server.port}"
    server.shutdown()


@pytest.fixture
def db(store: Store) -> Iterator[Database]:
    """The store itself, without tables."""
    database = Database(store)
    yield database
    for name in database.tables():
        database.drop_table(name)


@pytest.fixture
def source(uri: str) -> Callable[..., NyalaDataSource]:
    """Make a data source as Spark does, with option names in lower case and values as text."""

    def make(table: str | None = "homes", **options: object) -> NyalaDataSource:
        given = {"uri": uri} | ({"table": table} if table else {}) | options
        return NyalaDataSource({name.lower(): _text(value) for name, value in given.items()})

    return make


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The jar of the shim in Java, built anew; None where nothing compiles it."""
    needs_java()
    has_compiler = shutil.which("javac") or (Path(os.environ.get("JAVA_HOME", "/nowhere")) / "bin/javac").exists()
    if not has_compiler and os.environ.get("CI"):
        pytest.fail("the shim needs javac: `.ci/java.sh javac` installs it on Debian")
    return build_shim(tmp_path_factory.mktemp("shim")) if has_compiler else None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, shim: Path | None, uri: str) -> Iterator[SparkSession]:
    """A session of Spark, small and quick to start: one a run, about ten seconds.

    The shim is in it where it can be, so that all tests use it; ``plain`` reads without it, in the same session.
    """
    session = open_session(tmp_path_factory.mktemp("spark"), shim=shim, uri=uri)
    yield session
    session.stop()


@pytest.fixture
def needs_shim(shim: Path | None) -> None:
    """Skip where the shim cannot be compiled."""
    if shim is None:
        pytest.skip("the shim needs javac: `.ci/java.sh javac` installs it on Debian")


@pytest.fixture
def sql(needs_shim: None, spark: SparkSession, db: Database) -> Iterator[Sql]:
    """Run statements on the catalog of the store, which begins without tables."""
    spark.sql("USE nyala.default")
    yield lambda text: [tuple(row) for row in spark.sql(text).collect()]
    spark.sql("USE spark_catalog.default")


@pytest.fixture
def plain(spark: SparkSession, uri: str) -> Callable[..., DataFrame]:
    """Load a table anew, without the shim."""

    class PlainNyala(NyalaDataSource):  # made here, it is sent by its code: Python of Spark need not load this file
        @classmethod
        def name(cls) -> str:
            return "nyala_plain"

    spark.dataSource.register(PlainNyala)

    def load(table: str = "homes", where: str | None = None) -> DataFrame:
        reader = spark.read.format("nyala_plain").option("uri", uri)
        return (reader if where is None else reader.option("filter", where)).load(table)

    return load


@pytest.fixture
def load(spark: SparkSession, uri: str) -> Callable[..., DataFrame]:
    """Load a table anew."""
    return lambda table="homes", **options: read_table(spark, table, uri, **options)

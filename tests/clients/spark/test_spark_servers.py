"""A job of Spark over two servers that share a table: each is read and written by the tasks themselves."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import nyala
from nyala.clients.api.database import Database
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.types import table_schema
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.store.placement import Placement, ServerIdentity
from nyala.spark import read_table, write_table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
ROWS = 20_000


shared_servers: dict[str, FlightServer] = {}
"""Those of the fixture, by their names."""


@pytest.fixture
def shared() -> Iterator[tuple[str, Database, list[Store]]]:
    """The url of one of two servers, the database of both, and their stores."""
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement(servers={name: (f"grpc+unix://{Path(folder)}/{name}",) for name in "ab"})
        stores, servers = [], []
        for name, (location,) in placement.servers.items():
            options = StoreOptions(maintenance="off", placement=placement, server=name)
            stores.append(Store.open(MemoryFileSystem(), options))
            gateway = Gateway(stores[-1], ServerIdentity(placement, name))
            servers.append((gateway, FlightServer(gateway, location)))  # pyright: ignore[reportArgumentType]
            shared_servers[name] = servers[-1][1]
        url = placement.servers["a"][0]
        with nyala.connect(url) as db:
            yield url, db, stores
        for gateway, server in servers:
            server.shutdown()
            gateway.close()


@contextmanager
def moved_meanwhile(db: Database) -> Iterator[list[int]]:
    """Move the tablets of the table to and fro, and count how often."""
    moves: list[int] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def move() -> None:
        try:
            while not done.wait(0.1):
                place = db.table("t").tablets()[len(moves) // 2 % 4]
                with suppress(nyala.UnavailableError):  # while rows are staged
                    db.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", server=place.server)
                    moves.append(place.tablet)
        except BaseException as error:
            failed.append(error)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        yield moves
    finally:
        done.set()
        mover.join()
    assert not failed


def test_a_task_finds_a_tablet_that_was_moved_since_the_plan(shared: tuple[str, Database, list[Store]]) -> None:
    url, db, _ = shared
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert({"id": range(100), "n": [1] * 100})
    reader = NyalaDataSource({"uri": url, "table": "t"}).reader(table_schema(db._store.describe_table("t").columns))
    parts = reader.partitions()
    table.update({"id": range(100), "n": [2] * 100})
    for place in table.tablets():
        if place.server == "b":
            db.move_tablet("t", place.tablet, "a", server="b")
    found = pa.Table.from_batches(batch for part in parts for batch in reader.read(part))  # pyright: ignore[reportArgumentType]
    assert sorted(found["id"].to_pylist()) == list(range(100))
    assert set(found["n"].to_pylist()) == {1}


@pytest.mark.night
def test_a_server_that_is_not_needed_may_be_away(
    spark: SparkSession, shim: Path | None, shared: tuple[str, Database, list[Store]]
) -> None:
    """One that is needed is named by the task that cannot read it."""
    url, db, _ = shared
    for name in ("t", "both"):
        table = db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        table.insert({"id": range(100), "n": [1] * 100})
    for place in db.table("t").tablets():
        if place.server == "b":
            db.move_tablet("t", place.tablet, "a", server="b")
    frame = read_table(spark, "both", uri=url)
    source = NyalaDataSource({"uri": url, "table": "both"})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    shared_servers["b"].shutdown()
    assert read_table(spark, "t", uri=url).groupBy("n").count().first()[:] == (1, 100)  # type: ignore[index]
    if shim:
        spark.conf.set("spark.sql.catalog.two", "io.nyala.spark.NyalaCatalog")
        spark.conf.set("spark.sql.catalog.two.uri", url)
        assert [row["tableName"] for row in spark.sql("SHOW TABLES IN two.default").collect()] == ["both", "t"]
        joined = "SELECT count(*) FROM two.default.t a JOIN two.default.t b USING (id)"
        assert spark.sql(joined).first()[0] == 100  # type: ignore[index]
    with pytest.raises(PySparkException, match="the server 'b'"):
        frame.where("n = 1").collect()
    with pytest.raises(nyala.UnavailableError, match=r"the server at .*/b"):
        [batch for part in parts for batch in reader.read(part)]


def test_tables_of_both_that_are_hashed_alike_are_joined_without_a_shuffle(
    spark: SparkSession, needs_shim: None, shared: tuple[str, Database, list[Store]]
) -> None:
    url, db, _ = shared
    for name in ("s", "t"):
        table = db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        table.insert({"id": range(1000), "n": [1] * 1000})
    place = db.table("t").tablets()[0]
    db.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", server=place.server)
    frames = [read_table(spark, name, uri=url, splitSizeBytes=size) for name, size in (("s", 500), ("t", 2000))]
    joined = frames[0].hint("merge").join(frames[1].withColumnRenamed("n", "m"), "id")
    assert "Exchange" not in joined._jdf.queryExecution().executedPlan().toString()  # pyright: ignore
    assert sorted(row["id"] for row in joined.collect()) == list(range(1000))


def test_groups_over_both_are_combined_by_spark(
    spark: SparkSession, needs_shim: None, shared: tuple[str, Database, list[Store]]
) -> None:
    """Few as they are: each server has some rows of each."""
    url, db, _ = shared
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert({"id": range(1000), "n": [number % 3 for number in range(1000)]})
    assert len({place.server for place in table.tablets()}) == 2
    counted = read_table(spark, "t", uri=url).groupBy("n").count()
    plan = counted._jdf.queryExecution().executedPlan().toString()  # pyright: ignore
    assert "aggregate: " in plan and "Exchange" in plan
    assert sorted(map(tuple, counted.collect())) == [(0, 334), (1, 333), (2, 333)]


def test_a_job_over_both(spark: SparkSession, shared: tuple[str, Database, list[Store]]) -> None:
    """Tablets are moved while it reads."""
    url, db, stores = shared
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert({"id": range(ROWS), "n": [1] * ROWS})
    assert min(store.table_stats("t").live_rows for store in stores) > ROWS // 4
    frame = read_table(spark, "t", uri=url)
    with moved_meanwhile(db) as moves:
        assert frame.selectExpr("count(*)", "sum(id)", "sum(n)").first()[:] == (ROWS, ROWS * (ROWS - 1) // 2, ROWS)  # type: ignore[index]
    assert moves
    write_table(frame.selectExpr("id + 5000 as id", "n + 1 as n"), "t", uri=url)
    assert table.scan().aggregate({"n": ("*", "count"), "sum": ("n", "sum")}).to_pylist() == [
        {"n": ROWS + 5000, "sum": 2 * ROWS + 5000}
    ]
    assert read_table(spark, "t", uri=url).count() == ROWS + 5000


def test_tables_of_both_are_created_and_altered_in_sql(
    needs_shim: None, spark: SparkSession, shared: tuple[str, Database, list[Store]]
) -> None:
    """Each server has some of the tablets, and all agree on the columns."""
    url, db, stores = shared
    spark.conf.set("spark.sql.catalog.both", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.both.uri", url)
    properties = "PARTITIONED BY (bucket(4, id)) TBLPROPERTIES (primary_key = 'id')"
    spark.sql(f"CREATE TABLE both.default.t {properties} AS SELECT id, id AS n FROM range(100)")
    assert sum(store.table_stats("t").live_rows for store in stores) == 100
    assert min(store.table_stats("t").live_rows for store in stores) > 0
    spark.sql("ALTER TABLE both.default.t ADD COLUMN x INT DEFAULT 2")
    spark.sql("ALTER TABLE both.default.t RENAME TO u")
    assert spark.sql("SELECT sum(x) FROM both.default.u").first()[0] == 200  # type: ignore[index]
    assert [store.describe_table("u").columns[-1].name for store in stores] == ["x", "x"]
    tablets = spark.sql("SELECT server, sum(live_rows) FROM both.default.u.tablets GROUP BY server ORDER BY server")
    assert [tuple(row) for row in tablets.collect()] == [
        (name, store.table_stats("u").live_rows) for name, store in zip("ab", stores, strict=True)
    ]
    assert spark.sql("SELECT sum(inserted) FROM both.default.u.history").first()[0] == 100  # type: ignore[index]
    assert spark.sql("CALL both.system.compact('u', 'flush')").first()[:2] == ("flush", 100)  # type: ignore[index]
    with pytest.raises(PySparkException, match=r"several servers share the table.*use Table\.restore"):
        spark.sql("CALL both.system.restore('u', '1')")
    same = "CREATE OR REPLACE TABLE both.default.v PARTITIONED BY (bucket(4, id)) TBLPROPERTIES (primary_key = 'id') "
    spark.sql(same + "AS SELECT id FROM range(50)")
    spark.sql(same + "AS SELECT id + 1 AS id FROM both.default.v")
    assert db.table("v").scan().aggregate({"n": ("*", "count"), "sum": ("id", "sum")}).to_pylist() == [
        {"n": 50, "sum": 25 * 51}
    ]
    spark.sql(
        "REPLACE TABLE both.default.v (id BIGINT) PARTITIONED BY (bucket(4, id)) TBLPROPERTIES (primary_key = 'id')"
    )
    assert db.table("v").count() == 0
    with pytest.raises(PySparkException, match="several servers or processes cannot exchange tables in one step"):
        spark.sql("REPLACE TABLE both.default.v (other BIGINT) TBLPROPERTIES (primary_key = 'other')")
    assert db.tables() == ["u", "v"]
    with pytest.raises(PySparkException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        spark.sql("CREATE TABLE both.default.u (id BIGINT PRIMARY KEY)")
    stores[1].drop_table("u")  # an attempt that did not reach all
    with pytest.raises(PySparkException, match="'u' is not on b, which may get a tablet of the new range"):
        spark.sql("CALL both.system.add_range_partition('u', '1', '2')")
    spark.sql("DROP TABLE both.default.u")
    spark.sql("DROP TABLE both.default.v")
    assert [store.tables() for store in stores] == [[], []] and db.tables() == []


def test_rows_of_several_servers_do_not_change_in_one_commit(
    needs_shim: None, spark: SparkSession, shared: tuple[str, Database, list[Store]]
) -> None:
    """Each server would commit by itself, so it is refused; a table is truncated on one after the other."""
    url, db, stores = shared
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert({"id": range(100), "n": [1] * 100})
    spark.conf.set("spark.sql.catalog.together", "io.nyala.spark.NyalaCatalog")
    spark.conf.set("spark.sql.catalog.together.uri", url)
    for sql in (
        "DELETE FROM together.default.t WHERE id < 50",
        "UPDATE together.default.t SET n = 2",
        "MERGE INTO together.default.t USING (SELECT 200L i) ON id = i WHEN NOT MATCHED THEN INSERT (id) VALUES (i)",
        "INSERT INTO together.default.t REPLACE WHERE id < 50 VALUES (1, 1)",
    ):
        with pytest.raises(PySparkException, match="may be on several servers or processes"):
            spark.sql(sql)
    assert all(store.table_stats("t").live_rows for store in stores)
    assert table.scan().aggregate({"n": ("*", "count"), "sum": ("n", "sum")}).to_pylist() == [{"n": 100, "sum": 100}]
    spark.sql("TRUNCATE TABLE together.default.t")
    assert table.scan().aggregate({"n": ("*", "count")}).to_pylist() == [{"n": 0}]

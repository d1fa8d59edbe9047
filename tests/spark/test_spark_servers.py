"""A job of Spark over two servers that share a table: each is read and written by the tasks themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import nyala
from nyala.clients.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.gateway import Gateway
from nyala.flight_server.server import FlightServer
from nyala.schemas.placement import Here, Placement
from nyala.spark import read_table, write_table

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
ROWS = 20_000


@pytest.fixture
def shared() -> Iterator[tuple[str, Database, list[Store]]]:
    """The url of one of two servers, the database of both, and their stores."""
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement(servers={name: (f"grpc+unix://{Path(folder)}/{name}",) for name in "ab"})
        stores, servers = [], []
        for name, (location,) in placement.servers.items():
            options = StoreOptions(maintenance="off", placement=placement, server=name)
            stores.append(Store.open(MemoryFileSystem(), options))
            gateway = Gateway(stores[-1], Here(placement, name))
            servers.append((gateway, FlightServer(gateway, location)))  # pyright: ignore[reportArgumentType]
        url = placement.servers["a"][0]
        with nyala.connect(url) as db:
            yield url, db, stores
        for gateway, server in servers:
            server.shutdown()
            gateway.close()


def test_a_job_over_both(spark: SparkSession, shared: tuple[str, Database, list[Store]]) -> None:
    url, db, stores = shared
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    table.insert({"id": range(ROWS), "n": [1] * ROWS})
    assert min(store.table_stats("t").live_rows for store in stores) > ROWS // 4
    frame = read_table(spark, "t", uri=url)
    assert frame.selectExpr("count(*)", "sum(id)", "sum(n)").first()[:] == (ROWS, ROWS * (ROWS - 1) // 2, ROWS)  # type: ignore[index]
    write_table(frame.selectExpr("id + 5000 as id", "n + 1 as n"), "t", uri=url)
    assert table.scan().aggregate({"n": ("*", "count"), "sum": ("n", "sum")}).to_pylist() == [
        {"n": ROWS + 5000, "sum": 2 * ROWS + 5000}
    ]
    assert read_table(spark, "t", uri=url).count() == ROWS + 5000

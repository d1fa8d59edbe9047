"""Reading, by calling what Spark calls: no Java needed."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.per_process import server_at
from nyala.clients.api.table import Table
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.types import arrow_schema
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, SnapshotTooOldError, StoreError, UnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.timestamp("us")), ("small", pa.int8())])
AT = pa.array(range(100), pa.timestamp("us"))
Source = Callable[..., NyalaDataSource]


@pytest.fixture
def homes(db: Database) -> Table:
    table = db.create_table("homes", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
    table.insert({"id": range(100), "city": [f"c{n}" for n in range(100)], "at": AT, "small": [None, 1] * 50})
    return table


def rows(source: NyalaDataSource, schema: StructType | None = None) -> pa.Table:
    """Read all, as Spark would, and check each batch as Spark does."""
    schema = source.schema() if schema is None else schema
    reader = source.reader(schema=schema)
    wanted = arrow_schema(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert all(batch.schema.equals(wanted) for batch in batches)
    return pa.Table.from_batches(batches, wanted)


def ids(source: NyalaDataSource) -> list[int]:
    return sorted(rows(source)["id"].to_pylist())


def test_a_table_is_read_in_parts(homes: Table, source: Source) -> None:
    found = source()
    reader = found.reader(schema=found.schema())
    assert len(reader.partitions()) == 3
    expected = homes.scan(ordered=True).to_arrow()
    assert rows(found).sort_by("id")["at"].cast(pa.timestamp("us")).to_pylist() == expected["at"].to_pylist()
    assert ids(found) == list(range(100))


def test_filters_are_not_pushed_by_spark(homes: Table, source: Source) -> None:
    """What Spark 4.3.0 would make of it: rows of one query in the answer to another."""
    reader = source().reader(schema=source().schema())
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_columns_and_filter(homes: Table, source: Source) -> None:
    found = rows(source(columns="city,id", filter="id < 5 AND city <> 'c3'"))
    assert found.column_names == ["city", "id"] and sorted(found["id"].to_pylist()) == [0, 1, 2, 4]


def test_splits(homes: Table, source: Source) -> None:
    found = source(splitSizeBytes=200)
    assert len(found.reader(schema=found.schema()).partitions()) > 5
    assert ids(found) == list(range(100))


def test_a_snapshot_stays_what_it_was(homes: Table, source: Source) -> None:
    before = homes.insert({"id": [1000]}).timestamp
    found = source()
    reader = found.reader(schema=found.schema())
    parts = reader.partitions()
    homes.delete({"id": [0, 1000]})
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 101
    assert len(ids(source())) == 99
    for name in ("snapshotTimestamp", "timestampAsOf", "versionAsOf"):
        assert len(ids(source(**{name: before}))) == 101


def test_changes(homes: Table, source: Source) -> None:
    start = homes.insert({"id": [1000]}).timestamp
    homes.upsert({"id": [1], "city": ["x"]})
    middle = homes.upsert({"id": [1], "city": ["y"]}).timestamp
    homes.delete({"id": [2]})
    net = rows(source(startTimestamp=start)).sort_by("id")
    assert net.column_names == ["_op", "_timestamp", "id", "city", "at", "small"]
    assert net.select(["_op", "id", "city"]).to_pylist() == [
        {"_op": "update", "id": 1, "city": "y"},
        {"_op": "delete", "id": 2, "city": "c2"},
    ]
    options = {"startTimestamp": start, "endTimestamp": middle, "readChangeFeed": True, "beforeValues": True}
    every = rows(source(**options, columns="id"))
    assert every.column_names == ["_op", "_timestamp", "id", "_before_id"]
    assert every["id"].to_pylist() == [1, 1]


def test_nothing_to_read(db: Database, source: Source) -> None:
    db.create_table("empty", SCHEMA, ["id"])
    assert rows(source("empty")).num_rows == 0
    reader = source("empty").reader(schema=source("empty").schema())
    assert list(reader.read(InputPartition(None))) == [] and list(reader.read(None)) == []


def test_a_schema_is_a_projection(homes: Table, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """In names of any case; times without a zone are those of a clock in the session's."""
    monkeypatch.setattr("nyala.clients.spark.types.session_zone", lambda: "Asia/Kathmandu")
    wanted = StructType().add("City", "string").add("AT", "timestamp_ntz").add("id", "long")
    found = rows(source(), wanted).sort_by("id")
    assert found.schema.names == ["City", "AT", "id"] and found.schema.field("AT").type == pa.timestamp("us")
    at = homes.scan(["at"], ordered=True).to_arrow()["at"].to_pylist()
    assert found["AT"].to_pylist() == [moment + dt.timedelta(hours=5.5) for moment in at], "as it was until 1985"


def test_names_in_another_case(db: Database, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_table("twins", pa.schema([("id", pa.int64()), ("city", pa.string()), ("City", pa.string())]), ["id"])
    assert source("twins", columns="ID,City").schema().fieldNames() == ["id", "City"]
    with pytest.raises(InvalidArgumentError, match="'CITY' is ambiguous: write 'city' or 'City'"):
        source("twins", columns="CITY").schema()
    reader = source("twins").reader(schema=StructType().add("ID", "long"))
    monkeypatch.setattr("nyala.clients.spark.types.TaskContext", CaseSensitive)
    with pytest.raises(InvalidArgumentError, match="no column 'ID'; did you mean 'id'"):
        list(reader.read(reader.partitions()[0]))


class CaseSensitive:
    """The context of a task whose session tells upper and lower case apart."""

    @classmethod
    def get(cls) -> CaseSensitive:
        return cls()

    def getLocalProperty(self, name: str) -> str | None:
        return "true" if name == "spark.sql.caseSensitive" else None


WRONG_SCHEMAS = {
    "no such column": (StructType().add("town", "string"), "no column 'town'"),
    "misspelt": (StructType().add("citty", "string"), "did you mean 'city'"),
    "other type": (StructType().add("id", "string"), "'id' is bigint, not string"),
    "wider type": (StructType().add("small", "integer"), "'small' is tinyint, not int"),
    "not null": (StructType().add("city", "string", False), "may be NULL"),
    "no columns": (StructType(), "at least one column"),
}


@pytest.mark.parametrize("case", WRONG_SCHEMAS)
def test_a_schema_that_does_not_fit_is_refused(homes: Table, source: Source, case: str) -> None:
    schema, why = WRONG_SCHEMAS[case]
    with pytest.raises(InvalidArgumentError, match=why):
        source().reader(schema=schema)


def test_an_altered_table_is_not_read_by_an_old_schema(homes: Table, source: Source) -> None:
    old = source().schema()
    homes.alter().widen_column("small", "int32").apply()
    with pytest.raises(InvalidArgumentError, match="load the table again"):
        source().reader(schema=old)


WRONG: dict[str, tuple[dict[str, object], type[StoreError], str]] = {
    "no table": ({"table": "barns"}, NotFoundError, "barns"),
    "no column": ({"columns": "id,town"}, InvalidArgumentError, "town"),
    "column twice": ({"columns": "id,id"}, InvalidArgumentError, "duplicate column"),
    "wrong filter": ({"filter": "id <"}, InvalidArgumentError, "invalid filter"),
    "too old": ({"startTimestamp": "1"}, SnapshotTooOldError, "history"),
    "wrong option": ({"filters": "id > 1"}, InvalidArgumentError, "did you mean filter"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_reads_are_refused_when_they_are_planned(homes: Table, source: Source, case: str) -> None:
    options, kind, why = WRONG[case]
    with pytest.raises(kind, match=why):
        found = source(**{"table": "homes"} | options)
        found.reader(schema=found.schema()).partitions()


def test_a_task_waits_for_a_server_that_starts_again(store: Store) -> None:
    gone = FlightServer(store, "grpc://127.0.0.1:0")
    url = f"grpc://127.0.0.1:{gone.port}"
    gone.shutdown()
    with pytest.raises(UnavailableError):
        server_at(url, patient=False)
    started: list[FlightServer] = []
    starting = threading.Timer(1.0, lambda: started.append(FlightServer(store, url)))
    starting.start()
    try:
        assert server_at(url).health().status == "ok"
        assert started, "it has waited"
    finally:
        starting.join()
        for server in started:
            server.shutdown()

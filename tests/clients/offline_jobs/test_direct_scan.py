"""Direct read through the front door: embedded and over Flight, with threads and with processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.engine.home.opening import home_at
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import InvalidArgumentError, NotFoundError

ROWS = pa.table({"id": pa.array(range(3_000), pa.int64()), "city": [f"city {n % 9}" for n in range(3_000)]})


def filled(store: Store, way: str) -> Iterator[nyala.Table]:
    """A table of 2,999 rows in two tablets, here or behind a server."""
    made = Database(store).create_table("t", ROWS.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    made.insert(ROWS)
    made.delete({"id": [5]})
    if way == "embedded":
        yield made
        return
    server = FlightServer(store, "grpc://127.0.0.1:0")
    with connect(f"grpc://127.0.0.1:{server.port}") as database:
        yield database.table("t")
    server.shutdown()


@pytest.fixture(params=["embedded", "remote"])
def table(request: pytest.FixtureRequest, home: Path) -> Iterator[nyala.Table]:
    with Store.open(home, StoreOptions(maintenance="off")) as store:
        yield from filled(store, request.param)


def test_rows_are_those_of_a_scan(table: nyala.Table, home: Path) -> None:
    with table.direct_scan(directory=home, split_bytes=10_000) as scan:
        table.delete_ignore({"id": list(range(1_000))})
        table.maintain("compact")
        wanted = table.scan(as_of=scan.snapshot, ordered=True).to_arrow()
        assert len(scan.splits) > 2 and wanted.num_rows == 2_999
        assert scan.to_arrow().sort_by("id").equals(wanted)
        assert sum(batch.num_rows for batch in scan) == 2_999
        scan.renew()
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
            assert scan.to_arrow(executor).sort_by("id").equals(wanted)
    assert not list((home / "pins").iterdir())
    with pytest.raises(NotFoundError, match="pin the table again"):
        scan.to_arrow()
    with table.direct_scan(["city"], "id < 1010", directory=home) as few:
        assert few.to_arrow().equals(table.scan(["city"], "id < 1010").to_arrow()) and few.schema.names == ["city"]
    with table.direct_scan(where="id < 0", directory=home) as none:
        assert none.to_arrow().num_rows == 0
    with table.direct_scan(as_of=scan.snapshot, directory=home) as past:
        assert past.to_arrow().num_rows == 2_999


def test_what_cannot_be_is_said(table: nyala.Table, home: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="it belongs to another store"):
        table.direct_scan(directory=tmp_path)
    with pytest.raises(InvalidArgumentError, match="no column 'x'"):
        table.direct_scan(["x"], directory=home)
    assert not list((home / "pins").iterdir())


@pytest.fixture(params=["embedded", "remote"])
def in_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[nyala.Table]:
    home, options = home_at(f"file://{tmp_path / 'bucket'}", "a"), StoreOptions(maintenance="off")
    with Store.open(home, options.model_copy(update={"bucket_cache": str(tmp_path / "cache")})) as store:
        yield from filled(store, request.param)


def test_processes_read_a_bucket_past_the_server(in_bucket: nyala.Table, tmp_path: Path) -> None:
    with in_bucket.direct_scan(split_bytes=10_000) as scan:
        in_bucket.delete_ignore({"id": list(range(1_000))})
        in_bucket.maintain("compact")
        wanted = in_bucket.scan(as_of=scan.snapshot, ordered=True).to_arrow()
        assert len(scan.splits) > 2 and wanted.num_rows == 2_999
        scan.renew()
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
            assert scan.to_arrow(executor).sort_by("id").equals(wanted)
    with pytest.raises(NotFoundError, match="it ended"):
        scan.renew()
    with in_bucket.direct_scan(["city"], "id < 1010", directory=f"file://{tmp_path / 'bucket'}") as few:
        assert few.to_arrow().equals(in_bucket.scan(["city"], "id < 1010").to_arrow())
    with pytest.raises(NotFoundError, match="are not in this bucket: it belongs to another store"):
        in_bucket.direct_scan(directory=f"file://{tmp_path / 'other'}")
    with pytest.raises(InvalidArgumentError, match="is not a bucket"):
        in_bucket.direct_scan(directory=tmp_path)

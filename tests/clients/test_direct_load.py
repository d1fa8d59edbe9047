"""A large stream of new rows goes to disk at once, whichever way it comes, and is there after a restart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.clients.api.connect import connect
from nyala.clients.api.database import Database
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
OPTIONS = StoreOptions(maintenance="off", direct_load_bytes=100_000)


@pytest.mark.parametrize("remote", [False, True], ids=["embedded", "remote"])
def test_a_stream_is_one_rowset_and_one_commit(remote: bool) -> None:
    fs = MemoryFileSystem()
    rows = {"k": list(range(20_000)), "v": ["text"] * 20_000}
    with Store.open(fs, OPTIONS) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0") if remote else None
        database = connect(f"grpc://127.0.0.1:{server.port}") if server else Database(store)
        table = database.create_table("t", SCHEMA, ["k"])
        before = database.now()
        table.write(rows, "insert", commit="stream")
        assert (table.stats()["tablets"][0]["rowsets"], table.scan().count()) == (1, 20_000)
        assert table.scan(as_of=before).count() == 0
        assert set(table.changes(since=before, columns=["k"]).to_arrow()["_op"].to_pylist()) == {"insert"}
        table.update({"k": [7], "v": ["other"]})
        if server:
            database.close()
            server.shutdown()
    with Store.open(fs, OPTIONS) as store:
        table = Database(store).table("t")
        assert table.get((7,)) == {"k": 7, "v": "other"} and table.scan().count() == 20_000

"""Point reads over Flight: streams are kept for a moment, shared by threads, replaced when they break."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import nyala
from nyala.clients.flight import idle_streams
from nyala.clients.flight.store import FlightStore
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.admission.admission import Kind
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.config import ServerConfig
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string())])


class Served:
    def __init__(self, store: Store, server: FlightServer) -> None:
        self.server = server
        self.database = nyala.connect(f"grpc://127.0.0.1:{server.port}")
        self.store: FlightStore = self.database._store  # pyright: ignore[reportAttributeAccessIssue]
        self.table = self.database.create_table("t", SCHEMA, primary_key=["k"])
        self.table.insert(pa.table({"k": range(100), "s": [str(key) for key in range(100)]}, SCHEMA))

    @property
    def open_streams(self) -> int:
        return self.server.admission._running[Kind.EXCHANGE]

    def wait_until_none_is_open(self) -> None:
        until(lambda: not self.open_streams)


@pytest.fixture
def served(tmp_path) -> Iterator[Served]:
    with Store.open(tmp_path, StoreOptions(maintenance="off")) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0", ServerConfig(sent_bytes_target=2000, sent_bytes_max=3000))
        found = Served(store, server)
        yield found
        found.database.close()
        server.shutdown()


def test_one_stream_serves_call_after_call_and_is_closed_when_idle(served: Served) -> None:
    for key in range(20):
        assert served.table.get(key) == {"k": key, "s": str(key)}
        assert served.table.get(key + 1000) is None
        assert served.open_streams == 1
    assert served.server.admission.running == 0, "an idle stream is nothing that a stopping server waits for"
    served.wait_until_none_is_open()
    assert served.table.get(7) == {"k": 7, "s": "7"}


def test_threads_have_streams_of_their_own(served: Served) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda key: served.table.get(key % 100), range(300)))
    assert found == [{"k": key % 100, "s": str(key % 100)} for key in range(300)]
    assert 1 <= served.open_streams <= idle_streams.IDLE_COUNT_MAX
    served.wait_until_none_is_open()


def test_long_answers_come_in_pieces(served: Served) -> None:
    keys = pa.record_batch({"k": pa.array([*range(100), *range(100)] * 50, pa.int64())})
    for _ in range(2):
        found = served.store.get("t", keys)
        assert found.column("k").to_pylist() == keys.column("k").to_pylist()
        assert len(found.column("k").chunks) > 5


def test_a_table_that_was_made_anew_is_read_anew(served: Served) -> None:
    assert served.table.get(1) == {"k": 1, "s": "1"}
    served.database.drop_table("t")
    table = served.database.create_table("t", SCHEMA.append(pa.field("v", pa.int32())), primary_key=["k"])
    table.insert(pa.table({"k": [1], "s": ["one"], "v": [5]}, table.schema))
    assert table.get(1) == {"k": 1, "s": "one", "v": 5}


def test_errors_are_the_stores_and_leave_the_client_whole(served: Served) -> None:
    served.table.get(1)
    with pytest.raises(nyala.NotFoundError):
        served.store.get("nothing", pa.record_batch({"k": pa.array([1])}))
    with pytest.raises(nyala.InvalidArgumentError):
        served.store.get("t", pa.record_batch({"x": pa.array([1])}))
    assert served.table.get(2) == {"k": 2, "s": "2"}
    served.wait_until_none_is_open()

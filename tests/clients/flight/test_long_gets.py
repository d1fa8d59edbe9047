"""Rows by key that are far more bytes than their keys: they stream, and the server reads as they are taken."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight.store import FlightStore
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table.key_reads import KeyReads
from nyala.flight_server.server import FlightServer
from nyala.schemas.errors import UnavailableError
from tests.doubles.waiting import until

KIB, MIB = 1 << 10, 1 << 20
LONG = 60 * KIB
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("text", pa.string())])
REPEATED = [1] * 5_000


@pytest.fixture(scope="module")
def server() -> Iterator[FlightServer]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", wal_segment_bytes=1 << 20)) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert({"id": [1, 2, 3], "text": ["a" * LONG, "b" * LONG, "short"]})
        server = FlightServer(store, "grpc://127.0.0.1:0")
        yield server
        server.shutdown()


@pytest.fixture
def table(server: FlightServer) -> Iterator[Table]:
    with nyala.connect(f"grpc://127.0.0.1:{server.port}") as database:
        yield database.table("t")


def test_an_answer_of_many_bytes_comes_in_messages_of_some(table: Table) -> None:
    numbers = [3, 1, 9, 2, 1, 3] * 100
    expected = [number for number in numbers if number != 9]
    batches = list(table.get_batches(numbers))
    assert [number for batch in batches for number in batch["id"].to_pylist()] == expected
    assert len(batches) > 5 and max(batch.nbytes for batch in batches) <= 7 * MIB // 2
    assert table.get_many(numbers)["id"].to_pylist() == expected
    assert [batch.num_rows for batch in table.get_batches([9])] == [0]


def test_the_server_reads_no_further_than_its_client_takes(
    server: FlightServer, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = count_pieces(monkeypatch)
    batches = table.get_batches(REPEATED)
    taken = next(batches).num_rows
    until(lambda: server.calls.running() and all(is_waiting for _, _, is_waiting in server.calls.running()))
    assert len(pieces) * 2 * MIB < len(REPEATED) * LONG / 3, "most of it has not been read"
    assert taken + sum(batch.num_rows for batch in batches) == len(REPEATED)


def test_a_client_that_has_enough_ends_the_read(
    server: FlightServer, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = count_pieces(monkeypatch)
    held = server.store._snapshots._held  # pyright: ignore[reportAttributeAccessIssue]
    batches = table.get_batches(REPEATED)
    next(batches)
    assert held
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]
    until(lambda: not held)
    assert sum(pieces) < len(REPEATED)
    assert table.get_many([1, 3])["id"].to_pylist() == [1, 3]


def test_a_stream_that_breaks_between_batches_says_so_and_get_many_begins_again(
    server: FlightServer, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = table.get_batches(REPEATED)
    next(batches)
    until(lambda: server.calls.running() and all(is_waiting for _, _, is_waiting in server.calls.running()))
    for call, _, _ in server.calls.running():
        call.end("UNAVAILABLE: gone")
    with pytest.raises(UnavailableError):
        list(batches)
    read, broken = KeyReads._read, []

    def breaking(self: KeyReads, *arguments: object) -> object:
        if len(broken) < 3 and self._next > 100:
            broken.append(self._next)
            raise UnavailableError("gone", 0.01)
        return read(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(KeyReads, "_read", breaking)
    assert table.get_many([1] * 300).num_rows == 300
    assert len(broken) == 3


def count_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of each piece that the store reads."""
    counts: list[int] = []
    read = KeyReads._read

    def counted(*arguments: object) -> pa.RecordBatch | None:
        rows = read(*arguments)  # pyright: ignore[reportArgumentType]
        if rows is not None:
            counts.append(rows.num_rows)
        return rows

    monkeypatch.setattr(KeyReads, "_read", counted)
    return counts


def test_a_session_gives_a_long_answer_up_after_its_first_piece(
    server: FlightServer, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = count_pieces(monkeypatch)
    store = table._store
    assert isinstance(store, FlightStore)
    keys = pa.record_batch([pa.array(REPEATED)], names=["id"])
    assert store._small.rows("t", keys) is None
    assert sum(pieces) * LONG < 4 * MIB

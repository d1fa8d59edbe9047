"""Reads over Flight wait for a server that is restarted, as writes do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.flight import scan_reader, server_wait
from nyala.clients.flight.scan_reader import ScanReader
from nyala.clients.flight.server_wait import ServerWait
from nyala.clients.flight.store import FlightStore
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.command import ScanMark
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.flight.test_retries import SCHEMA, serve
from tests.doubles.ports import free_port
from tests.doubles.waiting import PATIENT


class Restarting:
    """A server that is killed, and comes back on its port a moment later."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.url = f"grpc://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self._process = serve(self._directory, self.port)
        assert self._process.stdout and self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def kill_for_a_moment(self) -> threading.Thread:
        """Kill it, and start it again while the caller goes on."""
        self.kill()
        starting = threading.Thread(target=self.start)
        starting.start()
        return starting


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Restarting]:
    monkeypatch.setattr(server_wait, "_PAUSES", PATIENT)
    server = Restarting(tmp_path)
    yield server
    server.kill()


def test_a_client_tries_to_reconnect_while_nobody_calls(server: Restarting) -> None:
    """Else a try times out before the next call, which fails at once, and so on for ever on a busy machine."""
    with nyala.connect(server.url, retries=False) as database:
        assert database.tables() == []
        server.kill()
        for _ in range(2):  # the first finds the connection closed, the second nobody there
            with pytest.raises(UnavailableError):
                database.tables()
        moments: list[float] = []
        """When the client greeted whoever listens."""
        with socket.create_server(("127.0.0.1", server.port)) as listening:
            listening.settimeout(0.1)
            until = time.monotonic() + 30
            while time.monotonic() < until and len(moments) < 3:
                with suppress(TimeoutError):
                    connection, _ = listening.accept()
                    connection.settimeout(1)
                    with connection, suppress(TimeoutError):  # the client waits for an answer, and gives up
                        if connection.recv(3) == b"PRI":
                            moments.append(time.monotonic())
    server.start()
    assert len(moments) == 3 and moments[2] - moments[0] < 8, "gRPC by itself tries every five seconds"


def test_every_read_waits_for_a_server_that_is_restarted(server: Restarting) -> None:
    with nyala.connect(server.url) as database:
        table = database.create_table("rows", SCHEMA, ["id"])
        before = database.now()
        table.insert({"id": range(10), "v": range(10)})
        store = database._store
        reads = {
            "get": lambda: table.get(3) == {"id": 3, "v": 3},
            "get_many": lambda: table.get_many([7, 3])["v"].to_pylist() == [7, 3],
            "commits": lambda: database.commits("rows", since=before)["inserted"].to_pylist() == [10],
            "count": lambda: table.scan().count() == 10,
            "scan": lambda: table.scan(ordered=True).to_arrow()["id"].to_pylist() == list(range(10)),
            "changes": lambda: table.changes(since=before, every=True).to_arrow().num_rows == 10,
            "describe": lambda: table.describe()["name"] == "rows",
            "table": lambda: database.table("rows").name == "rows",
            "tables": lambda: database.tables() == ["rows"],
            "stats": lambda: table.stats()["live_rows"] == 10,
            "explain": lambda: "snapshot" in table.scan().explain(),
            "now": lambda: database.now() > 0,
            "last_change": lambda: table.last_change() > 0,
            "tablets": lambda: len(store.tablets("rows").tablets) == 1,
        }
        wrong: list[str] = []

        def ask(name: str) -> None:
            try:
                if not reads[name]():
                    wrong.append(name)
            except nyala.StoreError as error:
                wrong.append(f"{name}: {error}")

        starting = server.kill_for_a_moment()
        threads = [threading.Thread(target=ask, args=(name,)) for name in reads]
        for thread in threads:
            thread.start()
        for thread in [*threads, starting]:
            thread.join(60)
        assert not wrong and not any(thread.is_alive() for thread in threads)


def test_a_sorted_scan_that_is_cut_begins_again(server: Restarting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in another order than that of the keys wait in the client until all are there, so none comes twice."""
    messages, cuts = ScanReader._messages, 0
    starting = []

    def cut_once(reader: ScanReader) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
        nonlocal cuts
        for message in messages(reader):
            if not starting:
                table.delete({"id": np.arange(0, count, 3)})  # later than the scan's snapshot
                starting.append(server.kill_for_a_moment())
            yield message
        cuts += 1

    count, limit, offset = 1_000_000, 900_000, 1_000
    values = np.random.default_rng(1).permutation(count)
    with nyala.connect(server.url) as database:
        table = database.create_table("rows", SCHEMA, ["id"])
        table.insert(pa.table({"id": np.arange(count), "v": values}, schema=SCHEMA))
        monkeypatch.setattr(ScanReader, "_messages", cut_once)
        found = table.scan(order_by="v desc", limit=limit, offset=offset).to_arrow()
        starting[0].join(60)
    assert cuts == 1, "the first stream did not come to its end"
    last = count - 1 - offset
    assert np.array_equal(found["v"].to_numpy(), np.arange(last, last - limit, -1))
    assert np.array_equal(values[found["id"].to_numpy()], found["v"].to_numpy())


def test_rows_yielded_before_their_mark_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little room to hold rows; the stream breaks behind the first mark."""
    monkeypatch.setattr(scan_reader, "_HELD_BYTES_MAX", 0)
    opened: list[ScanSpec] = []

    class Stream:
        """Keys from the ticket's on, two a batch; each second batch has a mark."""

        schema = pa.schema([("id", pa.int64())])

        def __init__(self, ticket: ScanSpec) -> None:
            opened.append(ticket)
            self._is_first = len(opened) == 1
            self._next = int(ticket.key_lower or 0)
            assert ticket.limit is not None
            self._end = self._next + ticket.limit

        def read_chunk(self) -> Any:
            if self._is_first and self._next >= 4:
                raise fl.FlightUnavailableError("planted")
            if self._next >= self._end:
                raise StopIteration
            ids = list(range(self._next, min(self._next + 2, self._end)))
            self._next = ids[-1] + 1
            mark = ScanMark(below=str(self._next), snapshot=7).model_dump_json() if self._next % 4 == 0 else None
            batch = pa.record_batch({"id": ids}, schema=self.schema)
            return SimpleNamespace(data=batch, app_metadata=mark and pa.py_buffer(mark.encode()))

        def cancel(self) -> None:
            pass

    wait = ServerWait(lambda: True, True)
    reader = ScanReader(lambda ticket: cast(Any, Stream(ticket)), wait, ScanSpec(table="rows", limit=9))
    assert [row for batch in reader.batches() for row in batch["id"].to_pylist()] == list(range(9))
    assert [ticket.limit for ticket in opened] == [9, 5]


def test_a_connection_may_wait_too(server: Restarting) -> None:
    server.kill()
    with pytest.raises(UnavailableError):
        FlightStore(server.url)
    starting = threading.Thread(target=server.start)
    starting.start()
    FlightStore(server.url, patient=True).close()
    starting.join()


def test_the_error_names_the_server_and_the_time(server: Restarting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "_PAUSES", (0.1, 0.2))
    with nyala.connect(server.url) as database:
        table = database.create_table("rows", SCHEMA, ["id"])
        server.kill()
        for read in (database.tables, lambda: table.get(1), table.scan().count, table.scan().to_arrow):
            with pytest.raises(UnavailableError, match=rf"gave up on the server at {server.url} after \d+\.\d s: "):
                read()
        with pytest.raises(UnavailableError, match=rf"gave up on the server at {server.url} after \d+\.\d s: "):
            table.insert({"id": [1], "v": [1]})


def test_without_retries_a_read_fails_at_once(server: Restarting, monkeypatch: pytest.MonkeyPatch) -> None:
    with nyala.connect(server.url, retries=False) as database:
        server.kill()
        monkeypatch.setattr(server_wait.time, "sleep", lambda _: pytest.fail("it waits"))
        for read in (database.tables, database.now):
            with pytest.raises(UnavailableError, match="cannot be reached"):
                read()


def test_a_read_comes_again_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch, url: str, store: object) -> None:
    with nyala.connect(url) as database:
        database.create_table("rows", pa.schema([("id", pa.int64())]), ["id"])
        refused: list[str] = []

        def busy(name: str) -> list[str]:
            refused.append(name)
            if len(refused) < 6:
                raise UnavailableError("64 requests run already", 0.01)
            return ["rows"]

        monkeypatch.setattr(store, "tables", lambda: busy("tables"))
        assert database.tables() == ["rows"] and len(refused) == 6

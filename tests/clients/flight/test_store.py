"""The client's side of Flight: errors come back as what they were, streams are read whole, connections may break."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight.errors import store_error
from nyala.clients.flight.store import FlightStore
from nyala.flight_server.errors.errors import Translator
from nyala.schemas.errors import StoreError, error_of
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand

CODES = [
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_PRESENT",
    "CONFLICT",
    "SNAPSHOT_TOO_OLD",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "UNAVAILABLE",
    "STORAGE_FULL",
    "INTERNAL",
]


@pytest.mark.parametrize("code", CODES)
def test_error_comes_back_as_what_it_was(code: str) -> None:
    sent = error_of(code, "table 'a: B' is: not there")
    came = store_error(Translator().flight(sent, "test"))
    if code == "INTERNAL":
        assert type(came) is type(sent)
        return
    assert (type(came), came.message) == (type(sent), sent.message)
    if code != "UNAVAILABLE":
        came = store_error(Translator().for_get_schema(sent, "test"))
        assert (type(came), came.message) == (type(sent), sent.message)


def test_corruption_comes_back_with_the_file_as_the_store_knows_it() -> None:
    """Never with the store's own place on the server's disks."""
    translator = Translator(("/srv/data",))
    for path in ("tablets/1/cells", "/srv/data/tablets/1/cells"):
        came = store_error(translator.flight(nyala.CorruptionError(path, 5, "the checksum is wrong"), "test"))
        assert isinstance(came, nyala.CorruptionError) and "the checksum is wrong" in came.message
        assert "tablets/1/cells" in came.message and "at byte 5" in came.message and "/srv/data" not in came.message


def test_time_to_try_again_comes_along_where_the_text_was_changed() -> None:
    translator = Translator(("/srv/data",))
    for text in ("/srv/data is busy", "busy " * 10_000):
        came = store_error(translator.flight(nyala.UnavailableError(text, 2.5), "test"))
        assert isinstance(came, nyala.UnavailableError)
        assert (came.message != text, came.retry_after_seconds) == (True, 2.5)


def test_locations_come_along() -> None:
    translator = Translator(("/srv/data",))
    for text, locations in (("/srv/data is elsewhere", ["grpc://m1:8815"]), ("nobody has it", []), ("busy", None)):
        came = store_error(translator.flight(nyala.UnavailableError(text, 0.5, locations), "test"))
        assert isinstance(came, nyala.UnavailableError)
        assert (came.locations, came.retry_after_seconds) == (locations, 0.5)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (fl.FlightUnavailableError("failed to connect. Detail: x"), nyala.UnavailableError),
        (fl.FlightTimedOutError("late"), nyala.UnavailableError),
        (fl.FlightInternalError("what"), nyala.InternalError),
        (fl.FlightServerError("odd", b"not json"), nyala.InternalError),
        (fl.FlightServerError("odd", b'{"code":7}'), nyala.InternalError),
        (OSError("broken pipe"), nyala.UnavailableError),
        (pa.ArrowInvalid("no such thing"), nyala.InvalidArgumentError),
    ],
)
def test_error_that_no_store_sent(error: Exception, expected: type[StoreError]) -> None:
    came = store_error(error)
    assert type(came) is expected and "Detail" not in came.message


@pytest.mark.parametrize("url", ["nowhere", "http://127.0.0.1:1", "grpc://", ""])
def test_what_is_no_location(url: str) -> None:
    with pytest.raises((nyala.InvalidArgumentError, nyala.UnavailableError)):
        nyala.connect(url)


def test_nobody_answers() -> None:
    with pytest.raises(nyala.UnavailableError, match="cannot be reached"):
        nyala.connect("grpc://127.0.0.1:1")


class Split(fl.FlightServerBase):
    """A server whose scans have three endpoints, the second of them empty, the last broken if asked to."""

    schema = pa.schema({"n": pa.int64()})
    broken = False

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[fl.Result]:
        return [fl.Result(b'{"status":"ok"}')]

    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        ends = [fl.FlightEndpoint(json.dumps({"table": "t", "tablet": part}), []) for part in range(3)]
        about = {"snapshot": 77, "schema_version": 1}
        return fl.FlightInfo(self.schema, descriptor, ends, -1, -1, app_metadata=json.dumps(about))

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        return fl.GeneratorStream(self.schema, self.batches(json.loads(ticket.ticket)["tablet"]))

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        for number in range(0 if part == 1 else 3):
            yield pa.record_batch({"n": [part * 10 + number]})
        if part == 2 and self.broken:
            raise fl.FlightUnavailableError("UNAVAILABLE: bye", b'{"code":"UNAVAILABLE","message":"bye"}')


@pytest.fixture
def split() -> Iterator[Split]:
    server = Split("grpc://127.0.0.1:0")
    yield server
    server.shutdown()


def test_all_endpoints_are_read_in_order(split: Split) -> None:
    store = FlightStore(f"grpc://127.0.0.1:{split.port}")
    stream = store.scan(ScanSpec(table="t"))
    assert stream.snapshot == 77
    assert stream.to_reader().read_all()["n"].to_pylist() == [0, 1, 2, 20, 21, 22]
    store.close()


def test_error_in_the_middle_of_a_scan_keeps_its_type(split: Split) -> None:
    split.broken = True
    store = FlightStore(f"grpc://127.0.0.1:{split.port}")
    for read in (lambda stream: list(stream.batches), lambda stream: stream.to_reader().read_all()):
        with pytest.raises(nyala.UnavailableError, match="bye"):
            read(store.scan(ScanSpec(table="t")))
    store.close()


def numbered(count: int, rows: int = 10) -> Iterator[pa.RecordBatch]:
    for start in range(0, count * rows, rows):
        yield pa.record_batch({"id": pa.array(range(start, start + rows), pa.int64())})


def test_many_batches_are_answered_in_order(remote: Database, make_table: Callable[[Database], Table]) -> None:
    make_table(remote)
    store = remote._store
    results = list(store.write_all(WriteCommand(table="homes"), numbered(200)))
    assert len(results) == 200
    moments = [result.timestamp for result in results]
    assert moments == sorted(set(moments))


def test_writes_that_are_left_early_are_whole(remote: Database, make_table: Callable[[Database], Table]) -> None:
    table = make_table(remote)
    writing = remote._store.write_all(WriteCommand(table="homes"), numbered(200))
    next(iter(writing))
    del writing
    count = table.scan().count()
    assert count >= 10 and count % 10 == 0


def test_refusal_of_a_batch_ends_the_load(remote: Database, make_table: Callable[[Database], Table]) -> None:
    table = make_table(remote)
    results = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbered(20)
        yield pa.record_batch({"id": pa.array([-1], pa.int64())}).slice(0, 0)
        remote.drop_table("homes")
        yield from numbered(20)

    with pytest.raises(nyala.NotFoundError):
        results.extend(remote._store.write_all(WriteCommand(table=table.name), batches()))
    assert remote.tables() == []


def test_server_that_dies_during_a_load(
    make_dying_server: Callable[[], tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.clients.flight.server_wait._PAUSES", (0.05, 0.1, 0.2))  # it does not come back
    url, kill = make_dying_server()
    database = nyala.connect(url)
    table = database.create_table("homes", pa.schema({"id": pa.int64()}), ["id"])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbered(100, 1000)
        kill()
        yield from numbered(100_000, 1000)

    reader = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches())
    with pytest.raises(nyala.UnavailableError):
        table.upsert(reader)
    with pytest.raises(nyala.UnavailableError):
        database.tables()
    database.close()


@pytest.fixture
def make_dying_server(tmp_path: Any) -> Iterator[Callable[[], tuple[str, Any]]]:
    running: list[subprocess.Popen[str]] = []

    def start() -> tuple[str, Any]:
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(tmp_path), "--listen", "grpc://127.0.0.1:0"]
        process = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout
        return json.loads(process.stdout.readline())["location"], process.kill

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_connecting_loads_no_engine(url: str) -> None:
    code = (
        "import sys, nyala\n"
        f"with nyala.connect({url!r}) as db: print(db.tables(), db.now() > 0)\n"
        "print([name for name in ('numba', 'pandas', 'nyala.engine', 'typer') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] True", "[]"]


def test_the_face_names_what_it_has() -> None:
    for name in ("open", "connect", "ColumnOptions", "RowErrors", "StoreError", "WriteResult", "hash", "range"):
        assert name in dir(nyala) and getattr(nyala, name)
    assert not hasattr(nyala, "shuffle")
    with pytest.raises(nyala.InvalidArgumentError):
        nyala.open("unused", flush_byte=1)  # pyright: ignore[reportCallIssue]

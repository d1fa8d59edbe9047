"""Whatever breaks inside the server, a client sees a code and an id, and the log has the rest."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.errors import ConflictError, CorruptionError, SnapshotTooOldError, StorageFullError, UnavailableError
from nyala.schemas.protocol.service import PendingResult, ScanStream
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served, code_of

SECRET = "password=hunter2 in /etc/nyala/secret.py line 7"
PATH = fl.FlightDescriptor.for_path("homes")


class Broken(FakeStore):
    """A store in which ``method`` raises ``error``; "batches" is the middle of a scan, "result" the end of a write."""

    def __init__(self) -> None:
        super().__init__(batch_rows=2)
        self.method = ""
        self.error: BaseException = RuntimeError(SECRET)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name == object.__getattribute__(self, "__dict__").get("method"):
            raise self.error
        return super().__getattribute__(name)

    def _batches(self, schema: pa.Schema, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        breaks = self.method in ("batches", "schema")
        yield from super()._batches(schema, rows[:2] if breaks else rows)
        if self.method == "batches":
            raise self.error
        if self.method == "schema":
            yield pa.record_batch({"other": [SECRET] * 50_000})  # too much for a short result: the transport meets it

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        begun = super().begin_write(command, batch)
        return BrokenResult(self.error) if self.method == "result" else begun


class BrokenResult:
    """See PendingResult."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def result(self) -> Any:
        raise self.error


@pytest.fixture
def broken(serve: Callable[..., Served]) -> Served:
    store = Broken()
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    served = serve(store, ServerConfig(private_paths=("/srv/private",)))
    served.put("homes", served.rows(6))
    return served


def exchange(served: Served) -> None:
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
    try:
        writer.begin(pa.schema([("id", pa.int64())]))
        writer.write_batch(pa.record_batch({"id": [1]}))
        writer.done_writing()
        reader.read_all()
    finally:
        writer.close()


VERBS: dict[str, tuple[str, Callable[[Served], Any]]] = {
    "list_flights": ("tables", lambda served: list(served.client.list_flights())),
    "get_flight_info": ("plan", lambda served: served.client.get_flight_info(PATH)),
    "do_get": ("scan", lambda served: served.get({"table": "homes"})),
    "do_get in the middle": ("batches", lambda served: served.get({"table": "homes"})),
    "do_put": ("begin_write", lambda served: served.put("homes", served.rows(1))),
    "do_put, nothing": ("describe_table", lambda served: served.put("homes")),
    "do_put, durable": ("result", lambda served: served.put("homes", served.rows(1))),
    "do_exchange": ("look_up", exchange),
    "create_table": ("create_table", lambda served: served.action("create_table", BODY)),
    "drop_table": ("drop_table", lambda served: served.action("drop_table", {"table": "homes"})),
    "recall_table": ("recall_table", lambda served: served.action("recall_table", {"table": "homes"})),
    "dropped_tables": ("dropped_tables", lambda served: served.action("dropped_tables")),
    "describe_table": ("describe_table", lambda served: served.action("describe_table", {"table": "homes"})),
    "tablets": ("tablets", lambda served: served.action("tablets", {"table": "homes"})),
    "table_stats": ("table_stats", lambda served: served.action("table_stats", {"table": "homes"})),
    "last_change": ("last_change", lambda served: served.action("last_change", {"table": "homes"})),
    "maintain": ("maintain", lambda served: served.action("maintain", {"table": "homes", "op": "flush"})),
    "explain": ("plan", lambda served: served.action("explain", {"table": "homes"})),
    "now": ("now", lambda served: served.action("now")),
    "health": ("health", lambda served: served.action("health")),
}
BODY = {"name": "t", "columns": [{"name": "k", "type": "int32", "nullable": False}], "primary_key": ["k"]}
BUGS = [RuntimeError(SECRET), KeyError(SECRET), ValueError(SECRET), pa.ArrowInvalid(SECRET), OSError(5, SECRET)]


def plant(served: Served, method: str, error: BaseException) -> None:
    store = served.store
    assert isinstance(store, Broken)
    store.error = error
    store.method = method


def error_from(act: Callable[[Served], Any], served: Served) -> fl.FlightError:
    with pytest.raises(fl.FlightError) as caught:
        act(served)
    return caught.value


@pytest.mark.parametrize("verb", VERBS)
def test_bug_shows_only_an_id(broken: Served, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    method, act = VERBS[verb]
    for bug in BUGS:
        caplog.clear()
        plant(broken, method, bug)
        with caplog.at_level(logging.ERROR, "nyala.flight_server"):
            error = error_from(act, broken)
        assert code_of(error) == "INTERNAL"
        assert "hunter2" not in str(error) and b"hunter2" not in error.extra_info
        (identifier,) = set(re.findall(r"id=([0-9a-f]{12})", str(error)))
        assert identifier in caplog.text and "hunter2" in caplog.text and "Traceback" in caplog.text
    plant(broken, "", bug)
    assert len(broken.ids()) == 6


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("known", [ConflictError, SnapshotTooOldError, StorageFullError, UnavailableError])
def test_known_error_keeps_its_code(broken: Served, verb: str, known: type) -> None:
    method, act = VERBS[verb]
    plant(broken, method, known("as it is, in /srv/private/x"))
    error = error_from(act, broken)
    assert code_of(error) == known.code
    assert "as it is" in str(error) and "/srv/private" not in str(error)
    assert isinstance(error, fl.FlightUnavailableError) == (known is UnavailableError)


@pytest.mark.parametrize("verb", VERBS)
def test_corruption_names_the_file_in_the_store(broken: Served, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    method, act = VERBS[verb]
    plant(broken, method, CorruptionError("tablets/7/3.base", 4096, "the checksum is wrong"))
    error = error_from(act, broken)
    assert code_of(error) == "CORRUPTION" and "tablets/7/3.base at byte 4096: the checksum is wrong" in str(error)
    assert "Traceback" not in caplog.text, "many may ask for it"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)
def test_get_schema_shows_only_an_id(broken: Served, bug: BaseException) -> None:
    plant(broken, "plan", bug)
    with pytest.raises(pa.ArrowInvalid) as caught:
        broken.client.get_schema(PATH)
    text = str(caught.value)
    assert text.startswith("INTERNAL: internal error, id=")
    assert "hunter2" not in text and "Traceback" not in text and ".py" not in text


def test_errors_of_the_transport_itself_have_no_traceback(broken: Served) -> None:
    plant(broken, "schema", RuntimeError())
    with pytest.raises(pa.ArrowInvalid, match="schema does not match") as caught:
        broken.get({"table": "homes"})
    assert "Traceback" not in str(caught.value) and ".py" not in str(caught.value)


def test_earlier_batches_are_answered_before_the_error(broken: Served) -> None:
    writer, reader = broken.client.do_put(PATH, SCHEMA)
    writer.write_with_metadata(broken.rows(2, start=10), b'{"seq":1}')
    assert json.loads(reader.read().to_pybytes())["seq"] == 1
    plant(broken, "begin_write", StorageFullError("the disk is full"))
    writer.write_with_metadata(broken.rows(2, start=20), b'{"seq":2}')
    assert reader.read() is None
    with pytest.raises(fl.FlightError) as caught:
        writer.close()
    assert code_of(caught.value) == "STORAGE_FULL"
    plant(broken, "", RuntimeError())
    assert broken.ids() == [*range(6), 10, 11]


def test_client_that_waits_for_an_answer_that_failed_gets_it(broken: Served) -> None:
    plant(broken, "result", UnavailableError("the log has failed"))
    writer, reader = broken.client.do_put(PATH, SCHEMA)
    writer.write_with_metadata(broken.rows(2, start=10), b'{"seq":1}')
    answer = json.loads(reader.read().to_pybytes())
    assert (answer["seq"], answer["applied"], answer["error_count"]) == (1, 0, 2)
    assert answer["errors"][0]["code"] == "UNAVAILABLE"
    with pytest.raises(fl.FlightUnavailableError) as caught:
        writer.close()
    assert code_of(caught.value) == "UNAVAILABLE"


def test_scan_is_closed_and_its_slot_free_however_it_ends(serve: Callable[..., Served]) -> None:
    store = FakeStore(batch_rows=10)
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    served = serve(store, ServerConfig(scans_max=1, sent_bytes_min=1))
    served.put("homes", served.rows(5000))
    ticket = fl.Ticket(b'{"table":"homes"}')
    for _ in range(3):
        reader = served.client.do_get(ticket)
        reader.read_chunk()
        reader.cancel()
        until(lambda: store.open_scans == 0)
    assert served.get({"table": "homes"}).num_rows == 5000
    assert store.open_scans == 0


def test_scan_of_a_client_that_never_reads_is_released(broken: Served) -> None:
    stream: ScanStream = broken.store.scan(ScanSpec(table="homes"))
    assert stream.snapshot == broken.store.now()
    reader = broken.client.do_get(fl.Ticket(b'{"table":"homes"}'))
    del reader
    store = broken.store
    assert isinstance(store, FakeStore)
    until(lambda: store.open_scans == 0)

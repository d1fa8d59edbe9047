"""Sessions as any client may speak them: each kind of request, errors, order, and clients that do wrong."""

from __future__ import annotations

import base64
import gc
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nyala.flight_server.handlers import session as sessions
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import OneBatch, StoreService
from nyala.schemas.protocol.session import parts_of, request
from nyala.schemas.protocol.verb import Kind
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.raw_session import Session, as_base64, error_code, row_line, short_scan, write_line
from tests.flight_server.serve_fake import SlowStore
from tests.flight_server.served import SCHEMA, Served, code_of

KEYS = pa.schema([SCHEMA.field("id")])


pytestmark = pytest.mark.usefixtures("ended")


# What is asked, and answered


def test_rows_are_written_and_read(served: Served, session: Session) -> None:
    session.write(served.rows(5))
    said, _ = session.answer()
    assert (said["rows"], said["applied"]) == (5, 5) and said["timestamp"] > 0
    row = session.ask({"get": "homes"}, {"key": [3]})
    about = served.action("describe_table", {"table": "homes"})
    assert row["row"] == {"id": 3, "city": "city 3", "price": 3.0}
    assert (row["table_id"], row["schema_version"]) == (about["table_id"], about["schema_version"])
    assert session.ask({"get": "homes"}, {"key": [99]})["row"] is None
    keys = served.rows(3, 3).select(["id"])
    session.send({"get_many": "homes", "arrow_schema": as_base64(keys.schema)}, None, keys.serialize().to_pybytes())
    said, rows = session.answer()
    assert said == {"rows": 2} and rows is not None and rows.column("id").to_pylist() == [3, 4]
    said, rows = short_scan(session, {"table": "homes", "ordered": True, "limit": 2})
    assert said["rows"] == 2 and rows.column("id").to_pylist() == [0, 1]
    assert rows.schema.equals(SCHEMA)


@pytest.mark.parametrize("store", ["engine"], indirect=True)
def test_a_short_range_is_sent_as_the_store_wrote_it(
    served: Served, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = served.rows(9).set_column(
        1, SCHEMA.field("city"), pa.array(["x" * i if i % 3 else None for i in range(9)])
    )
    session.write(written)
    session.answer()
    scans = [
        {"where": "id > 1 AND id <= 6"},
        {"where": "id >= 7", "ordered": True, "limit": 5},
        {"where": "id > 90 AND id < 99"},
        {"where": "id > 1 AND id <= 6", "columns": ["price", "id"]},
    ]
    expected = [[row for row in written.to_pylist() if 1 < row["id"] <= 6], written.slice(7).to_pylist(), []]
    for scan, rows in zip(scans, expected, strict=False):
        with monkeypatch.context() as patch:
            patch.setattr(OneBatch, "__next__", None)  # nobody decodes it
            said, found = short_scan(session, {"table": "homes", **scan})
        assert found.to_pylist() == rows and said["rows"] == len(rows), scan
        found.validate(full=True)
        assert found.schema.equals(SCHEMA)
    _, found = short_scan(session, {"table": "homes", **scans[-1]})
    assert found.to_pylist() == [{"price": row["price"], "id": row["id"]} for row in expected[0]]


def test_row_errors_are_those_of_any_write(served: Served, session: Session) -> None:
    session.write(served.rows(2), op="insert")
    session.answer()
    session.write(served.rows(3), op="insert")
    said, _ = session.answer()
    (answer,) = served.put({"table": "homes", "op": "insert"}, served.rows(3))
    assert (said["applied"], said["error_count"]) == (1, 2)
    assert said["errors"] == answer["errors"][:2]


@pytest.mark.parametrize("store", ["engine"], indirect=True)
def test_a_numbered_write_is_applied_once(served: Served, session: Session) -> None:
    session.write(served.rows(1), 7, writer="w", op="insert")
    first, _ = session.answer()
    session.write(served.rows(1), 7, writer="w", op="insert")
    again = Session(served.client)
    again.write(served.rows(1), 7, writer="w", op="insert")
    assert first["applied"] == 1
    assert session.answer()[0] == again.answer()[0] == first


def test_a_large_scan_is_left_to_do_get(served: Served, session: Session) -> None:
    served.put("homes", served.rows(20_000))
    assert session.ask({"scan": {"table": "homes"}}) == {"large": True}
    assert session.ask({"get": "homes"}, {"key": [19_999]})["row"]["price"] == 19_999.0


def test_few_bytes_that_stand_for_many_keys_are_left_to_point_reads(served: Served, session: Session) -> None:
    run = pa.RunEndEncodedArray.from_arrays(pa.array([30_000_000], pa.int32()), pa.array([1], pa.int64()))
    keys = pa.record_batch([run], names=["id"])
    asked = {"get_many": "homes", "arrow_schema": as_base64(keys.schema)}
    assert session.ask(asked, None, keys.serialize().to_pybytes()) == {"large": True}
    few = keys.slice(0, 3)
    assert session.ask(asked, None, few.serialize().to_pybytes()) == {"rows": 0}


def test_without_a_second_thread_writes_are_answered_by_the_first(
    served: Served, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = ["once", "twice"]
    start = threading.Thread.start

    def may_fail(thread: threading.Thread) -> None:
        if thread.name == "nyala-session" and failures:
            failures.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", may_fail)
    for number in range(3):
        session.write(served.rows(1, number), number, more=True, writer="w")
        assert session.answer()[0]["applied"] == 1
    assert session.ask({"get": "homes"}, {"key": [2]})["row"]["id"] == 2
    assert not failures


def test_requests_in_flight_are_answered_in_order_and_take_effect_in_order(served: Served, session: Session) -> None:
    for number in range(50):
        session.write(served.rows(1, number), number, more=True, writer="w")
        session.send({"get": "homes"}, {"key": [number]})
        session.send({"get": "homes"}, {"key": [number + 1]})
    for number in range(50):
        assert session.answer()[0]["applied"] == 1
        assert session.answer()[0]["row"]["id"] == number
        assert session.answer()[0]["row"] is None


def test_writes_in_flight_are_answered_though_nothing_follows(served: Served, session: Session) -> None:
    for number in range(100):
        session.write(served.rows(1, number), number, more=True, writer="w")
    assert [session.answer()[0]["applied"] for _ in range(100)] == [1] * 100
    assert served.ids() == list(range(100))


# What is wrong

NO_TEXT = pa.schema([pa.field(b"\xc0", pa.int64())])  # pyright: ignore[reportArgumentType]
WRONG = {
    "no JSON": (b"gaga", None, b""),
    "nothing": (b"", None, b""),
    "no kind": ({}, None, b""),
    "two kinds": ({"get": "homes", "get_many": "homes"}, None, b""),
    "unknown part": ({"get": "homes", "x": 1}, None, b""),
    "no key": ({"get": "homes"}, None, b""),
    "unknown detail": ({"get": "homes"}, {"key": [1], "x": 1}, b""),
    "short key": ({"get": "homes"}, {"key": []}, b""),
    "long key": ({"get": "homes"}, {"key": [1, 2]}, b""),
    "NULL key": ({"get": "homes"}, {"key": [None]}, b""),
    "strange key": ({"get": "homes"}, {"key": ["x"]}, b""),
    "huge key": ({"get": "homes"}, {"key": [1 << 80]}, b""),
    "deep key": ({"get": "homes"}, b'{"key":[' + b"[" * 5000 + b"]" * 5000 + b"]}", b""),
    "no schema": ({"write": {"table": "homes"}}, None, b"x"),
    "no Base64": ({"write": {"table": "homes"}, "arrow_schema": "%"}, None, b"x"),
    "no Arrow schema": ({"write": {"table": "homes"}, "arrow_schema": "AAAA"}, None, b"x"),
    "a name that is no text": (write_line(NO_TEXT), None, pa.record_batch({"id": [1]}).serialize().to_pybytes()),
    "no batch": (write_line(SCHEMA), None, b""),
    "no Arrow batch": (write_line(SCHEMA), None, b"\xff\xff\xff\xff" + b"\x10\0\0\0" + b"\x99" * 64),
    "a schema as batch": (write_line(SCHEMA), None, SCHEMA.serialize().to_pybytes()),
    "staged": (write_line(SCHEMA, stage={"transaction": "t", "part": "p"}), None, b""),
    "a stream": (write_line(SCHEMA, commit="stream"), None, b""),
    "no row": (row_line(), {"seq": 1}, b""),
    "short row": (row_line(), {"row": [1, "Oslo"]}, b""),
    "a column twice": (row_line(["id", "id"]), {"row": [1, 1]}, b""),
    "an object as cell": (row_line(), {"row": [1, {}, 1.5]}, b""),
    "no date": (row_line(), {"row": [1, {"date": "2014-13-01"}, 1.5]}, b""),
    "a deep cell": (row_line(), {"row": [1, {"decimal": {"decimal": "1"}}, 1.5]}, b""),
    "staged row": (row_line(stage={"transaction": "t", "part": "p"}), {"row": [1, "Oslo", 1.5]}, b""),
    "bad filter": ({"scan": {"table": "homes", "where": 5}}, None, b""),
    "negative limit": ({"scan": {"table": "homes", "limit": -1}}, None, b""),
    "long line": ({"scan": {"table": "homes", "columns": ["x" * 70_000]}}, None, b""),
    "long details": ({"get": "homes"}, {"key": ["x" * 70_000]}, b""),
    "too large": (write_line(SCHEMA), None, bytes(2 << 20)),
}


@pytest.mark.parametrize(("first", "second", "rest"), WRONG.values(), ids=WRONG)
def test_a_wrong_request_is_answered_and_the_session_goes_on(
    served: Served, session: Session, first: Any, second: Any, rest: bytes
) -> None:
    served.put("homes", served.rows(1))
    assert error_code(session.ask(first, second, rest)) == "INVALID_ARGUMENT"
    assert session.ask({"get": "homes"}, {"key": [0]})["row"]["city"] == "city 0"
    assert error_code(session.ask({"get": "nothing"}, {"key": [0]})) == "NOT_FOUND"


def test_a_compressed_batch_is_refused_before_it_is_decompressed(served: Served, session: Session) -> None:
    zeros = pa.record_batch([pa.array([0] * 100_000, pa.int64())], schema=KEYS)
    said = session.ask(write_line(KEYS), None, _compressed(zeros))
    assert error_code(said) == "INVALID_ARGUMENT" and "compressed" in said["error"]["message"]


def _compressed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()
    return messages.read_next_message().serialize().to_pybytes()


def test_bytes_cut_off_anywhere_in_a_batch_are_refused(served: Served, session: Session) -> None:
    whole = served.rows(3).serialize().to_pybytes()
    for length in range(0, len(whole), 8):
        assert error_code(session.ask(write_line(SCHEMA), None, whole[:length])) == "INVALID_ARGUMENT"
    assert served.ids() == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_in_a_batch_hurt_nobody(served: Served, session: Session, data: st.DataObject) -> None:
    whole = bytearray(served.rows(3).serialize().to_pybytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[place] ^= data.draw(st.integers(1, 255))
    session.ask(write_line(SCHEMA), None, bytes(whole))
    assert "row" in session.ask({"get": "homes"}, {"key": [0]})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_in_a_schema_hurt_nobody(served: Served, session: Session, data: st.DataObject) -> None:
    batch = served.rows(3)
    whole = bytearray(batch.schema.serialize().to_pybytes())
    for place in data.draw(st.lists(st.integers(8, len(whole) - 1), min_size=1, max_size=3)):
        whole[place] ^= data.draw(st.integers(1, 255))
    first = {"write": {"table": "homes"}, "arrow_schema": base64.b64encode(whole).decode()}
    said = session.ask(first, None, batch.serialize().to_pybytes())
    assert "applied" in said or error_code(said) in ("INVALID_ARGUMENT", "NOT_FOUND")


def test_record_batches_end_a_session(served: Served) -> None:
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
    writer.begin(KEYS)
    writer.write_batch(served.rows(1).select(["id"]))
    with pytest.raises(fl.FlightServerError, match="without a record batch") as caught:
        reader.read_chunk()
    with suppress(fl.FlightServerError):
        writer.close()
    assert code_of(caught.value) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("command", [b'{"session":2}', b'{"session":1,"table":"homes"}', b'{"session":null}'])
def test_only_a_known_kind_of_session_begins(served: Served, command: bytes) -> None:
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(command))
    with pytest.raises(fl.FlightServerError, match="INVALID_ARGUMENT"):
        writer.begin(pa.schema([]))
        reader.read_chunk()
    with suppress(fl.FlightServerError):
        writer.close()


def test_many_first_lines_are_forgotten(served: Served, session: Session) -> None:
    for number in range(300):
        session.write(served.rows(3), writer=f"w{number}")
        assert session.answer()[0]["applied"] == 3


# Clients that do wrong, beside others


@pytest.fixture
def start(serve: Callable[..., Served]) -> Callable[..., Served]:
    """A server over the store of dicts, with its limits."""

    def run(**limits: float) -> Served:
        store = SlowStore()
        store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        return serve(store, ServerConfig(**limits))  # pyright: ignore[reportArgumentType]

    return run


def test_scans_do_not_push_out_first_lines_that_come_again(
    served: Served, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: list[bytes] = []
    learn = sessions._Session._learnt

    def noted(self: Any, first: bytes) -> Any:
        learnt.append(first)
        return learn(self, first)

    monkeypatch.setattr(sessions._Session, "_learnt", noted)
    served.put("homes", served.rows(3))
    for number in range(100):
        assert session.ask({"get": "homes"}, {"key": [2]})["row"]["id"] == 2
        assert short_scan(session, {"table": "homes", "limit": number + 1, "ordered": True})[1].num_rows
    assert [line for line in learnt if b"get" in line] == [b'{"get": "homes"}']


def test_an_idle_session_is_ended_and_nothing_waits_for_it(start: Callable[..., Served]) -> None:
    served = start(stalled_seconds_max=0.5)
    session = Session(served.client)
    assert session.ask({"get": "homes"}, {"key": [1]})["row"] is None
    assert served.server.admission.running == 0
    until(lambda: served.server.admission.count(Kind.EXCHANGE) == 0)
    with pytest.raises(fl.FlightUnavailableError, match="made no progress"):
        session.ask({"get": "homes"}, {"key": [1]})


def flooded(send: Callable[[], None]) -> str:
    """Send without reading until the server ends it; return its error."""
    errors: list[str] = []

    def flood() -> None:
        try:
            while True:
                send()
        except (fl.FlightError, pa.ArrowException) as error:
            errors.append(str(error))

    flooding = threading.Thread(target=flood)
    flooding.start()
    until(lambda: not flooding.is_alive(), 40)
    return errors[0]


def test_a_session_that_reads_no_answers_is_ended(start: Callable[..., Served]) -> None:
    served = start(stalled_seconds_max=1.0)
    row = served.rows(1)
    served.put("homes", pa.record_batch([row[0], pa.array(["x" * 30_000]), row[2]], schema=SCHEMA))
    session = Session(fl.connect(served.url))
    assert "made no progress" in flooded(lambda: session.send({"get": "homes"}, {"key": [0]}))
    assert Session(served.client).ask({"get": "homes"}, {"key": [0]})["row"]["id"] == 0


def test_a_session_that_reads_no_answers_to_writes_in_flight_is_ended(start: Callable[..., Served]) -> None:
    served = start(stalled_seconds_max=1.0, writes_ahead=2)
    # Each of the rows is refused, so that the answers are long.
    served.put({"table": "homes", "op": "insert"}, served.rows(200))
    session = Session(fl.connect(served.url))
    assert "made no progress" in flooded(lambda: session.write(served.rows(200), more=True, op="insert"))
    assert Session(served.client).ask({"get": "homes"}, {"key": [0]})["row"]["id"] == 0


def test_sessions_have_limits_of_their_own(start: Callable[..., Served]) -> None:
    served = start(scans_max=1, wait_seconds_max=0, peer_share=1, known_share=0, yielding_seconds=60)
    sessions = [Session(served.client) for _ in range(4)]
    for session in sessions:
        session.ask({"get": "homes"}, {"key": [1]})
    with pytest.raises(fl.FlightUnavailableError, match="UNAVAILABLE"):
        Session(served.client).ask({"get": "homes"}, {"key": [1]})
    sessions[0].writer.close()
    until(lambda: served.server.admission.count(Kind.EXCHANGE) == 3)
    assert Session(served.client).ask({"get": "homes"}, {"key": [1]})["row"] is None


@pytest.mark.parametrize(("kind", "limit"), [(Kind.PUT, "puts_max"), (Kind.READ, "point_reads_max")])
def test_requests_take_the_places_of_their_kind(start: Callable[..., Served], kind: Kind, limit: str) -> None:
    served = start(**{limit: 1, "wait_seconds_max": 0, "peer_share": 1, "known_share": 0})
    session = Session(served.client)
    with served.server.admission.admit(kind):
        if kind is Kind.PUT:
            session.write(served.rows(1))
            said = session.answer()[0]
        else:
            said = session.ask({"get": "homes"}, {"key": [1]})
        assert error_code(said) == "UNAVAILABLE" and said["error"]["retry_after_seconds"] == 1
    session.write(served.rows(1))
    assert session.answer()[0]["applied"] == 1
    assert session.ask({"get": "homes"}, {"key": [0]})["row"]["id"] == 0


def test_a_client_that_dies_leaves_what_it_sent_and_nothing_else(
    store: StoreService, serve: Callable[..., Served]
) -> None:
    served = serve(store)
    client = fl.connect(served.url)
    session = Session(client)
    for number in range(30):
        session.write(served.rows(1, number), number, more=True, writer="w")
    assert session.answer()[0]["applied"] == 1
    session.writer.close()
    client.close()
    until(lambda: not served.server.calls._running)
    assert 0 in served.ids()
    assert served.ids() == list(range(len(served.ids()))), "writes before one that is there are there"
    assert served.server.admission.running == 0


def test_a_stopping_server_refuses_requests_and_ends_sessions(served: Served, session: Session) -> None:
    session.write(served.rows(1))
    assert session.answer()[0]["applied"] == 1
    served.server.admission.drain()
    assert served.server.admission.wait_until_idle(1)
    assert error_code(session.ask({"get": "homes"}, {"key": [0]})) == "UNAVAILABLE"
    served.server.admission.expire()
    with pytest.raises(fl.FlightUnavailableError):
        for _ in range(2):
            session.ask({"get": "homes"}, {"key": [0]})


@given(st.binary(), st.binary(), st.binary())
def test_a_request_is_taken_apart_as_it_was_made(first: bytes, second: bytes, rest: bytes) -> None:
    first, second = first.replace(b"\n", b""), second.replace(b"\n", b"")
    assert parts_of(request(first, second, rest)) == [first, second, rest]
    assert parts_of(first) == [first, b"", b""]


def test_a_session_remembers_no_more_than_some_bytes(served: Served, session: Session) -> None:
    """64 long lines took 32 MiB, and a user may have 192 sessions."""
    for number in range(10):
        columns = [f"{number}{place}" for place in range(6_000)]
        assert error_code(session.ask(row_line(columns))) == "INVALID_ARGUMENT"
        session.ask(row_line(["id"], writer=f"w{number}"), {"row": [number], "seq": 1})
    known = [each._known for each in gc.get_objects() if type(each) is sessions._Session]
    assert known and all(sum(map(len, each)) <= sessions._KNOWN_BYTES_MAX for each in known)
    assert any(row_line(["id"], writer="w9") == json.loads(line) for each in known for line in each)
    assert served.ids() == list(range(10))

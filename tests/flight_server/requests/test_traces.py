"""Spans of requests: which there are, what they say, whose trace they continue, and a collector that is not there."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from opentelemetry import trace

import nyala
from nyala.flight_server.requests.traces import Traces
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import NotFoundError
from nyala.schemas.protocol.service import StoreService
from tests.doubles.collector import Collector, Seen, collecting
from tests.flight_server.http_client import Port
from tests.flight_server.raw_session import Session, as_base64, error_code, write_line
from tests.flight_server.served import SCHEMA, Served, code_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
pytestmark = pytest.mark.usefixtures("ended")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with collecting() as found:
        yield found


@pytest.fixture
def traced(store: StoreService, serve: Callable[..., Served], collector: Collector) -> Served:
    return serve(store, None, None, Traces(collector.url))


def one(collector: Collector, name: str) -> Seen:
    collector.wait(lambda: collector.named(name))
    (found,) = collector.named(name)
    return found


def said(span: Seen, *names: str) -> list[Any]:
    return [span.attributes[name] for name in names]


def current(number: int) -> Any:
    """Make a span of a caller current in the body."""
    context = trace.SpanContext(number, number, False, trace.TraceFlags(trace.TraceFlags.SAMPLED))
    return trace.use_span(trace.NonRecordingSpan(context))


def with_parent(parent: str) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(headers=[(b"traceparent", parent.encode())])


def test_each_call_has_a_span(traced: Served, collector: Collector) -> None:
    traced.put("homes", traced.rows(10))
    traced.action("tables")
    traced.get({"table": "homes"})
    traced.client.get_flight_info(fl.FlightDescriptor.for_path("homes"))
    put, got = one(collector, "do_put"), one(collector, "do_get")
    assert said(put, "db.collection.name", "nyala.rows") == ["homes", 10] and put.attributes["nyala.bytes"] > 100
    assert said(got, "db.collection.name", "nyala.rows") == ["homes", 10] and got.attributes["nyala.bytes"] > 100
    assert {"db.collection.name", "error.type"}.isdisjoint(one(collector, "tables").attributes)
    one(collector, "get_flight_info")
    for span in collector.spans:
        assert not span.is_error and not span.parent_id and span.resource["service.name"] == "nyala"
        assert said(span, "db.operation.name", "db.system.name") == [span.name, "nyala"]
        assert len(span.attributes["nyala.request_id"]) > 8
    assert len({span.trace_id for span in collector.spans}) == len(collector.spans)
    assert collector.paths == {"/v1/traces"}


def test_each_request_of_a_session_has_a_span(traced: Served, collector: Collector) -> None:
    session = Session(traced.client)
    session.write(traced.rows(3), more=True)
    session.write(traced.rows(4, start=3), more=True)
    session.write(traced.rows(5, start=7))
    assert [session.answer()[0]["applied"] for _ in range(3)] == [3, 4, 5]
    assert session.ask({"get": "homes"}, {"key": [1]})["row"]["id"] == 1
    assert session.ask({"get": "homes"}, {"key": [100]})["row"] is None
    session.ask({"scan": {"table": "homes", "limit": 2}}, {"traceparent": PARENT})
    keys = pa.record_batch([pa.array([1, 2, 100], pa.int64())], schema=pa.schema([SCHEMA.field("id")]))
    session.ask({"get_many": "homes", "arrow_schema": as_base64(keys.schema)}, None, keys.serialize().to_pybytes())
    collector.wait(lambda: len(collector.spans) == 7)
    assert sorted(span.attributes["nyala.rows"] for span in collector.named("session_write")) == [3, 4, 5]
    assert [span.attributes["nyala.rows"] for span in collector.named("session_get")] == [1, 0]
    assert one(collector, "session_get_many").attributes["nyala.rows"] == 2
    scan = one(collector, "session_scan")
    assert scan.attributes["nyala.rows"] == 2 and (scan.trace_id, scan.parent_id) == (TRACE, SPAN)
    assert {span.attributes["db.collection.name"] for span in collector.spans} == {"homes"}
    session.writer.close()
    time.sleep(0.1)
    assert not collector.named("do_exchange")  # it is as long as the client wants


@pytest.mark.parametrize("given", [PARENT, "00-" + 32 * "0" + f"-{SPAN}-01", "rubbish", "x" * 5000])
def test_a_call_continues_the_trace_of_its_header(traced: Served, collector: Collector, given: str) -> None:
    list(traced.client.do_action(fl.Action("tables", b""), with_parent(given)))
    span = one(collector, "tables")
    assert (span.trace_id, span.parent_id) == (TRACE, SPAN) if given == PARENT else not span.parent_id
    list(traced.client.do_action(fl.Action("health", b"")))  # by the same thread of the server, as it may be
    assert one(collector, "health").trace_id != TRACE


def test_a_caller_that_wants_no_trace_gets_none(traced: Served, collector: Collector) -> None:
    list(traced.client.do_action(fl.Action("tables", b""), with_parent(f"{PARENT[:-1]}0")))
    list(traced.client.do_action(fl.Action("health", b"")))
    one(collector, "health")
    assert not collector.named("tables")


def test_the_python_client_takes_its_trace_along(traced: Served, collector: Collector) -> None:
    with nyala.connect(traced.url, traces=True) as db, nyala.connect(traced.url) as other:
        homes = db.table("homes")
        with current(7):
            homes.insert([{"id": 1, "city": "x", "price": 1.0}])
            homes.get(1)
            homes.upsert(pa.Table.from_batches([traced.rows(20_000)]))
            db.tables()
            homes.stats()
        with current(8):
            homes.get(1)
        homes.get(1)
        with current(9):
            other.table("homes").get(1)
        collector.wait(lambda: len(collector.named("session_get")) == 4)
    of = {number: {span.name for span in collector.spans if span.trace_id == f"{number:032x}"} for number in (7, 8, 9)}
    assert of[7] >= {"session_get", "do_put", "tables", "table_stats"} and of[8] == {"session_get"} and not of[9]
    assert {span.parent_id for span in collector.spans if span.trace_id == f"{7:032x}"} == {f"{7:016x}"}


def test_spans_of_errors_have_the_code_and_the_id_that_the_client_gets(traced: Served, collector: Collector) -> None:
    with pytest.raises(fl.FlightServerError) as caught:
        traced.get({"table": "nowhere"})
    got = one(collector, "do_get")
    assert code_of(caught.value) == got.attributes["db.response.status_code"] == "NOT_FOUND" and got.is_error
    assert got.attributes["nyala.request_id"] == json.loads(caught.value.extra_info)["request_id"]
    session = Session(traced.client)
    answer = session.ask({"get": "nowhere"}, {"key": [1]})
    span = one(collector, "session_get")
    assert error_code(answer) == span.attributes["error.type"] == "NOT_FOUND" and span.is_error
    assert span.attributes["nyala.request_id"] == answer["error"]["request_id"]


def test_a_write_that_fails_behind_others_has_its_own_id(fake: Served, serve: Any, collector: Collector) -> None:
    class Failing:
        def result(self) -> Any:
            raise NotFoundError("there is no such thing")

    store: Any = fake.store
    traced = serve(store, None, None, Traces(collector.url))
    begin, store.begin_write = store.begin_write, lambda *_: Failing()
    session = Session(traced.client)
    first = write_line(SCHEMA)
    body = traced.rows(1).serialize().to_pybytes()
    for _ in range(3):
        session.send(first, {"more": True}, body)
    ids = {session.answer()[0]["error"]["request_id"] for _ in range(3)}
    store.begin_write = begin
    collector.wait(lambda: len(collector.named("session_write")) == 3)
    assert {span.attributes["nyala.request_id"] for span in collector.spans} == ids and len(ids) == 3
    assert {span.attributes["error.type"] for span in collector.spans} == {"NOT_FOUND"}


def test_a_call_that_is_not_admitted_has_a_span(fake: Served, serve: Any, collector: Collector) -> None:
    config = ServerConfig(waiting_max=1, wait_seconds_max=0.0)
    traced = serve(fake.store, config, None, Traces(collector.url))
    traced.server.admission.drain()
    with pytest.raises(fl.FlightUnavailableError) as caught:
        traced.get({"table": "homes"})
    span = one(collector, "do_get")
    assert span.is_error and span.attributes["error.type"] == "UNAVAILABLE"
    assert span.attributes["nyala.request_id"] == json.loads(caught.value.extra_info)["request_id"]


def test_a_call_that_is_refused_before_all_else_has_a_span(fake: Served, serve: Any, collector: Collector) -> None:
    traced = serve(fake.store, ServerConfig(request_bytes_max=1_000), None, Traces(collector.url))
    for name, body, code in (("fly", b"", "INVALID_ARGUMENT"), ("describe_table", bytes(2_000), "INVALID_ARGUMENT")):
        with pytest.raises(fl.FlightServerError) as caught:
            list(traced.client.do_action(fl.Action(name, body), with_parent(PARENT)))
        span = one(collector, name if name == "describe_table" else "do_action")
        assert code_of(caught.value) == span.attributes["error.type"] == code and span.is_error
        assert span.attributes["nyala.request_id"] == json.loads(caught.value.extra_info)["request_id"]
        assert (span.trace_id, span.parent_id) == (TRACE, SPAN)
    list(traced.client.do_action(fl.Action("health", b"")))
    assert one(collector, "health").trace_id != TRACE and len(collector.spans) == 3


def test_traces_and_tokens_stand_together(port: Callable[..., Port], tmp_path: Path, collector: Collector) -> None:
    token, _ = create_token(tmp_path / "tokens.json", "root", ("admin",))
    served = port(ServeOptions(tokens=tmp_path / "tokens.json"), traces=Traces(collector.url)).served
    with nyala.connect(served.url, token=token, traces=True) as db, current(5):
        db.table("homes").count()
        db.tables()
    assert one(collector, "tables").trace_id == f"{5:032x}"
    with pytest.raises(nyala.UnauthenticatedError):
        nyala.connect(served.url, token="no", traces=True).tables()
    with nyala.connect(served.url, token=token, traces=True) as db, current(6):
        db.now()
    one(collector, "now")
    assert not any(span.is_error for span in collector.spans), "a stranger got a span"


def test_a_collector_that_is_not_there_disturbs_nothing(
    fake: Served,
    serve: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
    traces = Traces("http://someone:hunter2@127.0.0.2:9")
    traced = serve(fake.store, None, None, traces)
    session = Session(traced.client)
    with caplog.at_level(logging.WARNING, "nyala"):
        for _ in range(200):
            assert session.ask({"get": "homes"}, {"key": [1]})["row"] is None
        until = time.monotonic() + 20
        while not _ours(caplog) and time.monotonic() < until:
            time.sleep(0.05)
        for _ in range(3):
            session.ask({"get": "homes"}, {"key": [1]})
            time.sleep(0.4)
    assert _ours(caplog) == ["the collector on 127.0.0.2 does not take traces; spans are lost until it does"]
    began = time.monotonic()
    traces.close()
    assert time.monotonic() - began < 10
    output = "".join(capfd.readouterr())
    assert "hunter2" not in caplog.text + output and "Failed to export" not in output


def _ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of this collector; threads of other tests may still send spans to theirs, which is gone."""
    return [record.getMessage() for record in caplog.records if "127.0.0.2" in record.getMessage()]


def test_a_server_is_named_by_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "homes of Oslo")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    traces = Traces(f"{collector.url}/my/path", "a")
    traces.of_request("one", None).end("one", "", 0, 0, "00")
    traces.close()
    about = one(collector, "one").resource
    assert (about["service.name"], about["deployment.environment.name"]) == ("homes of Oslo", "test")
    assert about["nyala.server"] == "a" and collector.paths == {"/my/path"}

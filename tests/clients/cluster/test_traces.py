"""A trace goes on from one server to the next: from a gateway to others, from the front to its processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from opentelemetry import trace

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight.credentials import Credentials
from nyala.clients.flight.store import FlightStore
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.processes_server import ProcessesServer
from tests.doubles.collector import Collector, Seen, collecting

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
TRACE, SPAN = 0xABC, 0xDEF
PARENT = b"00-%032x-%016x-01" % (TRACE, SPAN)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with collecting() as found:
        yield found


def fill(db: Database) -> None:
    table = db.create_table("t", SCHEMA, primary_key=["id"], partition_by=[nyala.partition.hash("id", buckets=4)])
    table.insert([{"id": number, "n": number} for number in range(100)])


def of_trace(collector: Collector) -> list[Seen]:
    return [span for span in collector.spans if span.trace_id == f"{TRACE:032x}"]


def chains(collector: Collector) -> dict[str, list[Seen]]:
    """The spans of the trace by the first of their trace that a server began, which all of them come from."""
    spans = {span.span_id: span for span in of_trace(collector)}

    def first(span: Seen) -> Seen:
        return span if span.parent_id == f"{SPAN:016x}" else first(spans[span.parent_id])

    found: dict[str, list[Seen]] = {}
    for span in spans.values():
        found.setdefault(first(span).name, []).append(span)
    return found


def current() -> Any:
    context = trace.SpanContext(TRACE, SPAN, False, trace.TraceFlags(trace.TraceFlags.SAMPLED))
    return trace.use_span(trace.NonRecordingSpan(context))


def test_a_gateway_passes_a_trace_on(collector: Collector) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), collector=collector.url)
        try:
            fill(cluster.connect())
            client = fl.connect(cluster.members["a"].location)
            options = fl.FlightCallOptions(headers=[(b"traceparent", PARENT)])
            assert client.do_get(fl.Ticket(b'{"table": "t"}'), options).read_all().num_rows == 100
            client.close()
        finally:
            cluster.close()
    (spans,) = chains(collector).values()
    assert {span.resource["nyala.server"] for span in spans} == {"a", "b"}
    assert any(span.attributes["nyala.rows"] for span in spans if span.resource["nyala.server"] == "b")


def test_the_front_passes_a_trace_on_to_its_processes(collector: Collector, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = ProcessesServer(Path(folder) / "s")
        server.start("--processes", "2", "--traces", collector.url)
        try:
            with nyala.connect(server.url) as db:
                fill(db)
            front = FlightStore(server.url, credentials=Credentials(traces=True))
            with Database(front) as db, current():
                table = db.table("t")
                assert [table.get(number) for number in (1, 2)] == [{"id": number, "n": number} for number in (1, 2)]
                table.upsert([{"id": 1, "n": 7}])
                assert table.scan().to_arrow().num_rows == 100
            with nyala.connect(server.url, traces=True) as db, current():
                db.table("t").get_many([1, 2, 3])  # the processes are asked directly
        finally:
            server.stop()
    found = chains(collector)
    for verb in ("session_get", "session_write"):
        servers = {span.resource.get("nyala.server") for span in found[verb]}
        assert len(servers) > 1 and None in servers, (verb, servers)
    assert {span.resource.get("nyala.server") for span in found["session_get_many"]} == {"p0", "p1"}

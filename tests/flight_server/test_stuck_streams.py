"""Streams that wait for their clients: ended after a time, and sooner when others need their places."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.requests.calls import Call
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.verb import Kind
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.serve_fake import SlowStore
from tests.flight_server.served import SCHEMA, Served


@pytest.fixture
def start(serve: Callable[..., Served]) -> Callable[..., Served]:
    """A server over the store of dicts, with its limits."""

    def run(**limits: float) -> Served:
        store = SlowStore()
        for table in ("homes", "endless"):
            store.create_table(TableDefinition.from_arrow(table, SCHEMA, ["id"]))
        return serve(store, ServerConfig(**limits))  # pyright: ignore[reportArgumentType]

    return run


def idle_reader(client: fl.FlightClient) -> fl.FlightStreamReader:
    reader = client.do_get(fl.Ticket(b'{"table":"endless"}'))
    reader.read_chunk()
    return reader


def idle_writer(client: fl.FlightClient) -> fl.FlightStreamWriter:
    return client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)[0]


def idle_point_reader(client: fl.FlightClient) -> fl.FlightStreamWriter:
    writer, _ = client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
    writer.begin(SCHEMA.empty_table().select(["id"]).schema)
    return writer


IDLE = {
    "reader": (idle_reader, Kind.SCAN),
    "writer": (idle_writer, Kind.PUT),
    "points": (idle_point_reader, Kind.EXCHANGE),
}


@pytest.mark.parametrize(("begin", "kind"), IDLE.values(), ids=IDLE)
def test_a_stream_without_progress_is_ended(start: Callable[..., Served], begin: Callable, kind: Kind) -> None:
    served = start(stalled_seconds_max=0.5)
    stream = begin(served.client)
    until(lambda: served.server.admission.count(kind) == 1)
    until(lambda: served.server.admission.count(kind) == 0)
    with pytest.raises(fl.FlightUnavailableError, match="UNAVAILABLE: the stream made no progress"):
        if isinstance(stream, fl.FlightStreamReader):
            stream.read_all()
        else:
            stream.close()
    served.put("homes", served.rows(1))  # the connection lives on
    assert served.ids() == [0]


def test_a_slow_stream_that_makes_progress_is_not_ended(start: Callable[..., Served]) -> None:
    served = start(stalled_seconds_max=1.0)
    writer, reader = served.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)
    for number in range(6):
        writer.write_with_metadata(served.rows(1, number), json.dumps({"seq": number}).encode())
        reader.read()
        time.sleep(0.4)
    writer.close()
    assert served.ids() == list(range(6))


@pytest.mark.parametrize("begin", [idle_reader, idle_writer], ids=["reader", "writer"])
def test_a_stuck_stream_yields_its_place(start: Callable[..., Served], begin: Callable) -> None:
    served = start(scans_max=4, puts_max=4, yielding_seconds=0.3, wait_seconds_max=5, known_share=0)
    clients = [fl.connect(served.url) for _ in range(4)]
    streams = [begin(client) for client in clients]
    kind = Kind.SCAN if begin is idle_reader else Kind.PUT
    until(lambda: served.server.admission.count(kind) == 4)
    time.sleep(0.4)
    if kind is Kind.SCAN:
        assert served.ids() == []
    else:
        assert len(served.put("homes", served.rows(1))) == 1
    assert served.server.admission.count(kind) >= 2, "one place is given up, not all"
    for stream in streams:
        close = getattr(stream, "cancel", None) or stream.close
        try:
            close()
        except fl.FlightError:
            continue


@pytest.mark.parametrize(("spent", "displaced"), [(0.0, 2), (10.0, 1)])
def test_what_stuck_streams_cost_says_how_many_are_ended(
    start: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, spent: float, displaced: int
) -> None:
    """Each is sent much before it is stuck: if all that wait came in at once, the server would do nothing else."""
    monkeypatch.setattr(Call, "processor_seconds", spent)
    served = start(scans_max=2, yielding_seconds=0.2, wait_seconds_max=1, peer_share=1, known_share=0)
    clients = [fl.connect(served.url, generic_options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    readers = [idle_reader(client) for client in clients[:3]]
    if displaced == 2:
        readers.append(idle_reader(clients[3]))
    else:
        with pytest.raises(fl.FlightUnavailableError, match="2 scans are running already"):
            idle_reader(clients[3])
    assert served.server.calls.metrics.ended["displaced"] == displaced
    for reader in readers:
        reader.cancel()


def test_one_connection_has_no_more_than_its_share(start: Callable[..., Served]) -> None:
    served = start(puts_max=4, wait_seconds_max=0.2)
    greedy = fl.connect(served.url)
    streams = [idle_writer(greedy) for _ in range(2)]
    until(lambda: served.server.admission.count(Kind.PUT) == 2)
    refused = idle_writer(greedy)
    with pytest.raises(fl.FlightUnavailableError, match="2 write streams of this client are running already") as caught:
        time.sleep(0.4)
        refused.close()
    assert json.loads(caught.value.extra_info)["retry_after_seconds"] == 1
    assert len(served.put("homes", served.rows(1))) == 1
    for stream in streams:
        stream.close()


def test_nothing_is_left_of_streams_that_ended(start: Callable[..., Served]) -> None:
    served = start(stalled_seconds_max=5)
    for _ in range(3):
        reader = idle_reader(served.client)
        reader.cancel()
        del reader
        served.put("homes", served.rows(1))
        served.ids()
        idle_point_reader(served.client).close()
    until(lambda: not served.server.calls._running)
    assert pa.total_allocated_bytes() < 1 << 30


def test_who_was_pushed_out_pushes_nobody_out(start: Callable[..., Served]) -> None:
    served = start(scans_max=2, yielding_seconds=0.2, wait_seconds_max=1, peer_share=1)
    first, second = fl.connect(served.url), fl.connect(served.url)
    kept = [idle_reader(first), idle_reader(first)]
    until(lambda: served.server.admission.count(Kind.SCAN) == 2)
    time.sleep(0.3)
    also_kept = idle_reader(second)
    with pytest.raises(fl.FlightUnavailableError, match="2 scans are running already"):
        idle_reader(first)
    assert served.ids() == [], "a third one is let in"
    for reader in (*kept, also_kept):
        reader.cancel()


@pytest.mark.parametrize(("begin", "kind"), IDLE.values(), ids=IDLE)
def test_a_stream_ends_when_it_is_too_old(start: Callable[..., Served], begin: Callable, kind: Kind) -> None:
    served = start(stream_seconds_max=1.0, stalled_seconds_max=60)
    stream = begin(served.client)
    until(lambda: served.server.admission.count(kind) == 1)
    until(lambda: served.server.admission.count(kind) == 0)
    assert served.server.calls.metrics.ended == {"stalled": 0, "displaced": 0, "too_old": 1}
    with pytest.raises(fl.FlightUnavailableError, match=r"UNAVAILABLE: .* for 1 seconds, .* \(stream_seconds_max\)"):
        if isinstance(stream, fl.FlightStreamReader):
            stream.read_all()
        else:
            stream.close()


@pytest.mark.parametrize(("limits", "trust"), [({"stream_seconds_max": 1.0}, 1), ({"stalled_seconds_max": 1.0}, -1)])
def test_only_stuck_streams_speak_against_their_connection(
    start: Callable[..., Served], limits: dict[str, float], trust: int
) -> None:
    served = start(**limits)
    reader = idle_reader(served.client)
    until(lambda: served.server.admission.count(Kind.SCAN) == 0)
    assert list(served.server.admission._trust.values()) == [trust]
    del reader


def test_a_stream_that_makes_progress_ends_too_when_it_is_too_old(start: Callable[..., Served]) -> None:
    served = start(stream_seconds_max=1.0, stalled_seconds_max=60)
    reader = idle_reader(served.client)
    with pytest.raises(fl.FlightUnavailableError, match="stream_seconds_max"):
        while True:
            reader.read_chunk()
    assert served.ids() == []

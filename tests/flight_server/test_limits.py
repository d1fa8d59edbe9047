"""Admission: as many as may, no more, and none once the server stops."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pyarrow.flight as fl
import pytest
from served import SCHEMA, Served, code_of

from nyala.flight_server.config import ServerConfig
from nyala.flight_server.limits import Admission, Kind
from nyala.flight_server.location import bound_location, check_location
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.service import StoreService


def test_slots_are_counted_by_kind() -> None:
    admission = Admission(ServerConfig(scans_max=2, puts_max=1))
    slots = [admission.admit(Kind.SCAN), admission.admit(Kind.SCAN), admission.admit(Kind.PUT)]
    for kind in (Kind.SCAN, Kind.PUT):
        with pytest.raises(UnavailableError, match="run already"):
            admission.admit(kind)
    admission.admit(Kind.CALL).release()
    slots[0].release()
    slots[0].release()
    admission.admit(Kind.SCAN)
    assert admission.running == 2  # the last one was forgotten at once, and so released


def test_forgotten_slot_is_released() -> None:
    admission = Admission(ServerConfig(puts_max=1))
    admission.admit(Kind.PUT)
    gc.collect()
    admission.admit(Kind.PUT)


def test_draining_lets_nothing_in_and_waits() -> None:
    admission = Admission(ServerConfig())
    slot = admission.admit(Kind.SCAN)
    admission.drain()
    with pytest.raises(UnavailableError, match="stopping"):
        admission.admit(Kind.CALL)
    admission.check_time()
    assert not admission.wait_until_idle(0.05)
    slot.release()
    assert admission.wait_until_idle(0.05)
    admission.expire()
    with pytest.raises(UnavailableError):
        admission.check_time()


def test_scans_over_the_limit_are_told_to_come_again(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(scans_max=1))
    with served.server.admission.admit(Kind.SCAN):
        with pytest.raises(fl.FlightUnavailableError) as caught:
            served.ids()
        assert code_of(caught.value) == "UNAVAILABLE"
        with pytest.raises(fl.FlightUnavailableError):
            _read_points(served)
    assert served.ids() == []


def test_streams_of_point_reads_are_no_scans_while_idle_and_have_a_limit_of_their_own(
    store: StoreService, serve: Callable[..., Served]
) -> None:
    served = serve(store, ServerConfig(scans_max=1))
    streams = [_read_points(served) for _ in range(4)]
    assert served.ids() == []
    assert served.server.admission.running == 0
    with pytest.raises(fl.FlightUnavailableError):
        _read_points(served)
    streams[0].close()
    streams.append(_read_points(served))
    for writer in streams[1:]:
        writer.close()


def _read_points(served: Served) -> fl.FlightStreamWriter:
    """Open a stream of point reads, use it once and leave it open."""
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
    keys = served.rows(1).select(["id"])
    writer.begin(keys.schema)
    writer.write_batch(keys)
    reader.read_chunk()
    return writer


def test_write_streams_over_the_limit_are_told_to_come_again(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(puts_max=1))
    writer, reader = served.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)
    writer.write_with_metadata(served.rows(1), b'{"seq":1}')
    reader.read()
    with pytest.raises(fl.FlightUnavailableError):
        served.put("homes", served.rows(1))
    writer.close()
    assert len(served.put("homes", served.rows(2))) == 1


GOOD = ["grpc://127.0.0.1:0", "grpc+tcp://localhost:8815", "grpc://[::1]:1", "grpc+unix:///tmp/nyala.sock"]
BAD = [
    "",
    "127.0.0.1:8815",
    "http://127.0.0.1:1",
    "grpc://127.0.0.1",
    "grpc://127.0.0.1:x",
    "grpc://:1",
    "grpc+unix://",
]
OPEN = ["grpc://0.0.0.0:8815", "grpc://10.0.0.1:1", "grpc://example.org:1", "grpc://[::]:1"]


@pytest.mark.parametrize("location", GOOD)
def test_location_on_this_machine(location: str) -> None:
    check_location(location, insecure=False)


@pytest.mark.parametrize("location", BAD)
def test_no_location(location: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no location"):
        check_location(location, insecure=True)


@pytest.mark.parametrize("location", OPEN)
def test_location_that_others_reach_needs_a_word(location: str) -> None:
    with pytest.raises(InvalidArgumentError, match="--insecure"):
        check_location(location, insecure=False)
    check_location(location, insecure=True)


def test_bound_location_has_the_port() -> None:
    assert bound_location("grpc://127.0.0.1:0", 77) == "grpc://127.0.0.1:77"
    assert bound_location("grpc://[::1]:0", 77) == "grpc://[::1]:77"
    assert bound_location("grpc+unix:///a", 0) == "grpc+unix:///a"

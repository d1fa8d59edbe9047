"""Admission: as many as may, no more, and none once the server stops."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.admission.admission import Admission
from nyala.flight_server.admission.peers import Peer, peer_of
from nyala.flight_server.runtime.location import bound_location, check_location
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.protocol.request import check
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.protocol.verb import Kind
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.scan_plan import ScanPlan
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.serve_fake import SlowStore
from tests.flight_server.served import SCHEMA, Served, code_of


def test_slots_are_counted_by_kind() -> None:
    admission = Admission(ServerConfig(scans_max=2, puts_max=1, wait_seconds_max=0))
    slots = [admission.admit(Kind.SCAN), admission.admit(Kind.SCAN), admission.admit(Kind.PUT)]
    for kind in (Kind.SCAN, Kind.PUT):
        with pytest.raises(UnavailableError, match="are running already"):
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
    served = serve(store, ServerConfig(scans_max=1, wait_seconds_max=0))
    with served.server.admission.admit(Kind.SCAN):
        with pytest.raises(fl.FlightUnavailableError) as caught:
            served.ids()
        assert code_of(caught.value) == "UNAVAILABLE"
        assert json.loads(caught.value.extra_info)["retry_after_seconds"] == 1
        assert "try again in 1 s" in str(caught.value)
        _read_points(served).close()  # of another kind
    assert served.ids() == []


def test_streams_of_point_reads_are_no_scans_while_idle_and_have_a_limit_of_their_own(
    store: StoreService, serve: Callable[..., Served]
) -> None:
    served = serve(store, ServerConfig(scans_max=1, wait_seconds_max=0, peer_share=1, known_share=0))
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
    served = serve(store, ServerConfig(puts_max=1, wait_seconds_max=0))
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
    with pytest.raises(InvalidArgumentError, match="invalid location"):
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


def waiting(admission: Admission, kind: Kind, peer: Peer, order: list[str]) -> threading.Thread:
    """A thread that waits for a place, and gives it back at once."""

    def run() -> None:
        with suppress(UnavailableError), admission.admit(kind, peer):
            order.append(peer.connection)

    thread = threading.Thread(target=run)
    thread.start()
    before = len(admission._queues[kind])
    while thread.is_alive() and len(admission._queues[kind]) <= before - 1:
        time.sleep(0.001)
    time.sleep(0.02)
    return thread


def test_places_go_to_who_has_the_fewest() -> None:
    admission = Admission(ServerConfig(plans_max=2, wait_seconds_max=10))
    greedy, modest = Peer("greedy", ""), Peer("modest", "")
    taken = [admission.admit(Kind.PLAN, greedy) for _ in range(2)]
    order: list[str] = []
    threads = [waiting(admission, Kind.PLAN, peer, order) for peer in (greedy, greedy, modest)]
    taken[0].release()
    for thread in threads:
        thread.join(10)
    assert order[0] == "modest" and len(order) == 3
    taken[1].release()


def test_a_full_queue_lets_a_peer_in_that_waits_for_nothing_yet() -> None:
    admission = Admission(ServerConfig(plans_max=1, wait_seconds_max=10, waiting_max=3))
    greedy, modest = Peer("greedy", ""), Peer("modest", "")
    taken = admission.admit(Kind.PLAN, greedy)
    order: list[str] = []
    threads = [waiting(admission, Kind.PLAN, greedy, order) for _ in range(3)]
    with pytest.raises(UnavailableError, match="3 planning requests are already waiting"):
        admission.admit(Kind.PLAN, greedy)
    threads.append(waiting(admission, Kind.PLAN, modest, order))
    taken.release()
    for thread in threads:
        thread.join(10)
    assert sorted(order) == ["greedy", "greedy", "modest"], "one of the greedy was sent away"


def of_user(user: str, number: int) -> Peer:
    return Peer(f"10.0.0.{number}:1", f"10.0.0.{number}", user)


def test_a_user_over_its_share_that_fills_the_queue_shuts_nobody_out() -> None:
    admission = Admission(ServerConfig(scans_max=8, waiting_max=4, wait_seconds_max=10, known_share=0))
    slots = [admission.admit(Kind.SCAN, of_user("mallory", number)) for number in range(6)]
    order: list[str] = []
    threads = [waiting(admission, Kind.SCAN, of_user("mallory", number), order) for number in range(10, 14)]
    with pytest.raises(UnavailableError, match="4 scans are already waiting"):
        admission.admit(Kind.SCAN, of_user("mallory", 20))
    slots += [admission.admit(Kind.SCAN, of_user("alice", number)) for number in (30, 31)]
    assert admission.count(Kind.SCAN) == 8 and not order
    threads.append(waiting(admission, Kind.SCAN, of_user("alice", 32), order))
    assert len(admission._queues[Kind.SCAN]) == 4, "one of mallory's made room"
    for slot in slots:
        slot.release()
    for thread in threads:
        thread.join(10)
    assert sum("10.0.0.1" in name for name in order) == 3 and "10.0.0.32:1" in order


def test_a_place_that_somebody_waits_for_is_not_taken_by_who_comes_later() -> None:
    admission = Admission(ServerConfig(scans_max=4, waiting_max=1, wait_seconds_max=10, known_share=0.5))
    new, known = Peer("new", ""), Peer("known", "")
    admission.learn(known, True)
    slots = [admission.admit(Kind.SCAN, Peer(f"other {number}", "")) for number in range(2)]
    order: list[str] = []
    threads = [waiting(admission, Kind.SCAN, new, order)]
    admission.learn(new, True)  # a call of it has ended well: it may have a place now
    slots.append(admission.admit(Kind.SCAN, known))
    threads[0].join(10)
    assert order == ["new"]
    for slot in slots:
        slot.release()


def test_who_waits_gets_a_reserved_place_once_its_connection_is_known() -> None:
    admission = Admission(ServerConfig(scans_max=4, wait_seconds_max=10, known_share=0.5))
    slots = [admission.admit(Kind.SCAN, Peer(f"other {number}", "")) for number in range(2)]
    order: list[str] = []
    thread = waiting(admission, Kind.SCAN, Peer("new", ""), order)
    admission.learn(Peer("new", ""), True)  # nobody else comes or goes
    thread.join(5)
    assert order == ["new"]
    for slot in slots:
        slot.release()


def test_the_rejected_of_one_kind_do_not_keep_those_of_another_waiting() -> None:
    admission = Admission(ServerConfig(scans_max=1, plans_max=1, wait_seconds_max=0))
    slots = [admission.admit(kind) for kind in (Kind.SCAN, Kind.PLAN)]
    told: list[float | None] = []
    for kind in [Kind.SCAN] * 200 + [Kind.PLAN]:
        with pytest.raises(UnavailableError) as caught:
            admission.admit(kind)
        told.append(caught.value.retry_after_seconds)
    assert told[0] == 1.0 and (told[-2] or 0) > 5 and told[-1] == 1.0
    for slot in slots:
        slot.release()


def test_some_places_are_kept_for_connections_whose_last_call_ended_well() -> None:
    admission = Admission(ServerConfig(scans_max=4, wait_seconds_max=0))
    known, stuck = Peer("known", ""), Peer("stuck", "")
    admission.learn(known, True)
    admission.learn(stuck, False)
    slots = [admission.admit(Kind.SCAN, Peer(f"new {number}", "")) for number in range(3)]
    for peer in (Peer("another", ""), stuck):
        with pytest.raises(UnavailableError, match="3 scans are running already"):
            admission.admit(Kind.SCAN, peer)
    slots.append(admission.admit(Kind.SCAN, known))
    for slot in slots:
        slot.release()


def test_who_waits_sleeps_on_while_others_come_and_go() -> None:
    """One release wakes the one that gets the place: hundreds that wait cost those that work nothing."""
    admission = Admission(ServerConfig(plans_max=1, wait_seconds_max=10))
    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1

    taken = admission.admit(Kind.PLAN)

    def wait() -> None:
        admission.admit(Kind.PLAN, check=look).release()

    threads = [threading.Thread(target=wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    while len(admission._queues[Kind.PLAN]) < 20:
        time.sleep(0.001)
    time.sleep(0.3)
    before, began = looked, time.monotonic()
    for _ in range(100):
        admission.admit(Kind.CALL).release()
        time.sleep(0.001)
    seconds = time.monotonic() - began
    assert looked - before <= 20 * (seconds / 0.25 + 1), "they look for their clients now and then, and no oftener"
    taken.release()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_one_kind_does_not_wait_for_another() -> None:
    admission = Admission(ServerConfig(plans_max=1, large_requests_max=1, wait_seconds_max=0))
    admission_slots = [admission.admit(kind) for kind in (Kind.PLAN, Kind.LARGE)]
    for kind in Kind:
        if kind in (Kind.PLAN, Kind.LARGE):
            with pytest.raises(UnavailableError):
                admission.admit(kind)
        else:
            admission.admit(kind).release()
    for slot in admission_slots:
        slot.release()


PEERS = {
    "ipv4:127.0.0.1:5000": Peer("127.0.0.1:5000", ""),
    "ipv4:10.0.0.7:5000": Peer("10.0.0.7:5000", "10.0.0.7"),
    "ipv6:%5B::1%5D:5000": Peer("[::1]:5000", ""),
    "ipv6:%5Bfe80::1%25eth0%5D:7": Peer("[fe80::1%eth0]:7", "fe80::1"),
    "ipv6:%5B::ffff:10.0.0.7%5D:9": Peer("[::ffff:10.0.0.7]:9", "10.0.0.7"),
    "unix:": Peer("", ""),
    "": Peer("", ""),
}


@pytest.mark.parametrize(("text", "peer"), PEERS.items(), ids=PEERS)
def test_peers(text: str, peer: Peer) -> None:
    assert peer_of(text) == peer


def test_another_machine_has_its_share_over_all_of_its_connections() -> None:
    admission = Admission(ServerConfig(scans_max=4, wait_seconds_max=0))
    slots = [admission.admit(Kind.SCAN, Peer(f"10.0.0.7:{port}", "10.0.0.7")) for port in (1, 2)]
    with pytest.raises(UnavailableError, match="2 scans of this client"):
        admission.admit(Kind.SCAN, Peer("10.0.0.7:3", "10.0.0.7"))
    slots.append(admission.admit(Kind.SCAN, Peer("10.0.0.8:1", "10.0.0.8")))
    for slot in slots:
        slot.release()


def test_a_scan_ends_when_its_deadline_is_over(serve: Callable[..., Served]) -> None:
    """One that finds no row: it never gets to the point where the transport would notice."""
    chunks = 0

    class Barren(SlowStore):
        def _slow(self, schema: pa.Schema, table: str) -> Iterator[pa.RecordBatch]:
            nonlocal chunks
            while True:
                check()
                chunks += 1
                time.sleep(0.01)
            yield

    barren = Barren()
    barren.create_table(TableDefinition.from_arrow("endless", SCHEMA, ["id"]))
    served = serve(barren)
    with pytest.raises(fl.FlightTimedOutError):
        served.client.do_get(fl.Ticket(b'{"table":"endless"}'), fl.FlightCallOptions(timeout=0.3)).read_all()
    until(lambda: not served.server.admission.running)
    assert chunks


def test_a_plan_ends_when_its_deadline_is_over(serve: Callable[..., Served]) -> None:
    class Slow(SlowStore):
        def plan(self, spec: ScanSpec) -> ScanPlan:
            for _ in range(1000):
                check()
                time.sleep(0.01)
            raise AssertionError("nobody stopped it")

    slow = Slow()
    slow.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    served = serve(slow)
    with pytest.raises(fl.FlightTimedOutError):
        served.client.get_flight_info(fl.FlightDescriptor.for_path("homes"), fl.FlightCallOptions(timeout=0.3))
    until(lambda: not served.server.admission.running)


def test_clients_of_a_unix_socket_do_not_answer_for_each_other() -> None:
    admission = Admission(ServerConfig(scans_max=1, wait_seconds_max=0.2))
    unix, asked = Peer("", ""), []
    admission.make_room = lambda kind: asked.append(kind) is None
    admission.learn(unix, False)
    with admission.admit(Kind.SCAN, unix), pytest.raises(UnavailableError):
        admission.admit(Kind.SCAN, unix)
    assert asked


def test_a_user_has_a_share_over_all_connections_and_machines() -> None:
    admission = Admission(ServerConfig(scans_max=4, wait_seconds_max=0, peer_share=1, known_share=0, user_share=0.5))
    slots = [admission.admit(Kind.SCAN, peer_of(f"ipv4:10.0.0.{number}:5000", "alice")) for number in (1, 2)]
    with pytest.raises(UnavailableError, match="2 scans of the user 'alice' are running already"):
        admission.admit(Kind.SCAN, peer_of("ipv4:10.0.0.3:5000", "alice"))
    slots.append(admission.admit(Kind.SCAN, peer_of("ipv4:10.0.0.3:5000", "bob")))
    slots[0].release()
    slots.append(admission.admit(Kind.SCAN, peer_of("unix:", "alice")))
    for slot in slots:
        slot.release()
    assert admission.running == 0 and not admission._of_peers


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.CALL, Kind.PLAN, Kind.READ])
def test_a_user_leaves_places_of_each_kind_to_others(kind: Kind) -> None:
    """Long actions take minutes: all of them by one user would reject everybody else's commits for as long."""
    admission = Admission(ServerConfig(tasks_max=4, calls_max=4, plans_max=4, point_reads_max=4, wait_seconds_max=0))
    slots = [admission.admit(kind, of_user("mallory", number)) for number in range(3)]
    with pytest.raises(UnavailableError, match=f"3 {kind.value} of the user 'mallory' are running already"):
        admission.admit(kind, of_user("mallory", 3))
    slots.append(admission.admit(kind, of_user("alice", 9)))
    with pytest.raises(UnavailableError, match=f"4 {kind.value} are running already"):
        admission.admit(kind, of_user("bob", 10))
    for slot in slots:
        slot.release()
    assert not admission._of_peers


def test_a_server_without_users_has_no_share_for_them() -> None:
    admission = Admission(ServerConfig(scans_max=2, wait_seconds_max=0, peer_share=1, known_share=0, user_share=0.1))
    slots = [admission.admit(Kind.SCAN, peer_of(f"ipv4:127.0.0.1:{number}")) for number in (1, 2)]
    assert len(slots) == 2
    for slot in slots:
        slot.release()

"""Clients of a store that several processes can have find the one that has it, and follow it without a failed call."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster.placement_file import parse_placement
from nyala.clients.cluster.servers import Servers
from nyala.clients.cluster.store import PlacedStore
from nyala.clients.flight import heartbeat, holder_client, server_wait
from nyala.clients.flight.credentials import Credentials
from nyala.clients.flight.holder_client import HolderClient
from nyala.clients.flight.store import FlightStore
from nyala.clients.offline_jobs import noted
from nyala.clients.spark.part_batches import batches_of
from nyala.clients.spark.server import ServerOptions
from nyala.engine.bucket import PatientBucket, bucket_of
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.home.where import where_path, write_where
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.store.whereabouts import Holder, Whereabouts
from tests.doubles.pair import Member, Pair
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
COUNT = 1_000


@pytest.fixture
def pair(store: Store) -> Iterator[Pair]:
    pair = Pair(store)
    Database(store).create_table("rows", SCHEMA, ["id"]).insert({"id": range(COUNT), "v": range(COUNT)})
    yield pair
    pair.close()


def inserted(pair: Pair) -> list[int]:
    """The keys of all changes of the table but the first, each as often as it was made."""
    changes = Database(pair.store).table("rows").changes(since=pair.began, every=True)
    return [key for key in changes.to_arrow()["id"].to_pylist() if key >= COUNT]


CALLS: dict[str, Callable[[Database], Any]] = {
    "tables": lambda db: db.tables() == ["rows"],
    "table": lambda db: db.table("rows").name == "rows",
    "now": lambda db: db.now() > 0,
    "get": lambda db: db.table("rows").get(3) == {"id": 3, "v": 3},
    "get_many": lambda db: db.table("rows").get_many([7, 3])["v"].to_pylist() == [7, 3],
    "count": lambda db: db.table("rows").count("v >= 0") >= COUNT,
    "scan": lambda db: db.table("rows").scan(where="id < 1000").to_arrow().num_rows == COUNT,
    "short scan": lambda db: db.table("rows").scan(where="id = 5").to_arrow()["v"].to_pylist() == [5],
    "changes": lambda db: db.table("rows").changes(since=db.now() - (60_000_000 << 12)).to_arrow().num_rows >= COUNT,
    "stats": lambda db: db.table("rows").stats()["live_rows"] >= COUNT,
    "last_change": lambda db: db.table("rows").last_change() > 0,
    "explain": lambda db: "snapshot" in db.table("rows").scan().explain(),
    "insert": lambda db: db.table("rows").insert([{"id": 5_000, "v": 1}]).applied == 1,
    "insert of rows": lambda db: db.table("rows").insert({"id": [5_001, 5_002], "v": [1, 1]}).applied == 2,
    "load": lambda db: db.table("rows").insert(reader(6_000, 50)).applied == 500,
    "one commit": lambda db: db.table("rows").insert(reader(7_000, 50), atomic=True).applied == 500,
    "statement": lambda db: db.table("rows").update_where({"v": "v + 1"}, "id = 900").applied == 1,
    "transaction": lambda db: staged(db) == 10,
}
ONLY_REFUSED: dict[str, Callable[[Database], Any]] = {
    "create": lambda db: db.create_table("more", SCHEMA, ["id"]).name == "more",
    "alter": lambda db: db.table("rows").alter().add_column("w", pa.int64()).apply() is not None,
    "drop": lambda db: db.drop_table("rows") is None,
    "maintain": lambda db: db.table("rows").maintain("flush") is not None,
}
"""These are not repeated when their answer was lost, but a process that stands by has not done them."""


def reader(start: int, batches: int) -> pa.RecordBatchReader:
    made = [batch(start + 10 * number) for number in range(batches)]
    return pa.RecordBatchReader.from_batches(SCHEMA, made)


def batch(start: int) -> pa.RecordBatch:
    ids = pa.array(range(start, start + 10), pa.int64())
    return pa.record_batch([ids, ids], schema=SCHEMA)


def staged(db: Database) -> int:
    with db.transaction() as transaction:
        transaction.insert("rows", batch(8_000))
    return 10


@pytest.mark.parametrize("call", CALLS | ONLY_REFUSED)
def test_each_call_goes_to_the_next_holder_when_the_one_before_stands_by(pair: Pair, call: str) -> None:
    ask = (CALLS | ONLY_REFUSED)[call]
    with nyala.connect(pair.url) as db:
        db.table("rows").get(1)  # streams are open
        pair.give_to(pair.second)
        assert ask(db)
    assert len(inserted(pair) if call != "drop" else []) == len(set(inserted(pair) if call != "drop" else []))


@pytest.mark.parametrize("call", CALLS)
def test_each_call_goes_to_the_next_holder_when_the_one_before_is_gone(pair: Pair, call: str) -> None:
    with nyala.connect(pair.url) as db:
        db.table("rows").get(1)
        pair.first.die()
        pair.give_to(pair.second)
        assert CALLS[call](db)
    assert len(inserted(pair)) == len(set(inserted(pair)))


def test_a_process_that_stands_by_is_not_a_server_without_tables(pair: Pair) -> None:
    pair.give_to(pair.second)
    for url in (pair.url, pair.url.split(","), pair.first.url, [pair.first.url]):
        with nyala.connect(url) as db:
            assert db.tables() == ["rows"]


def test_calls_wait_until_somebody_has_the_store(pair: Pair) -> None:
    with nyala.connect(pair.url) as db:
        db.table("rows").insert([{"id": 1_500, "v": 0}])
        pair.give_to(None)
        pair.first.die()
        threading.Timer(1.0, pair.give_to, (pair.second,)).start()
        db.table("rows").insert([{"id": 1_501, "v": 0}])
    pair.give_to(None)
    threading.Timer(1.0, pair.give_to, (pair.second,)).start()
    with nyala.connect(pair.url) as db:  # somebody stands by: so it will be there
        assert db.table("rows").get(1_501) == {"id": 1_501, "v": 0}
    assert inserted(pair) == [1_500, 1_501]


def test_a_load_goes_on_at_the_next_holder_with_each_row_once(pair: Pair) -> None:
    def moving() -> Iterator[pa.RecordBatch]:
        for number in range(120):
            if number == 40:
                pair.give_to(pair.second)  # the stream is refused
            if number == 80:
                pair.give_to(pair.first)
                pair.second.cut()  # the answers to some batches are lost
            yield batch(COUNT + 10 * number)

    with nyala.connect(pair.url) as db:
        result = db.table("rows").insert(pa.RecordBatchReader.from_batches(SCHEMA, moving()))
        assert result.applied == 1_200
    assert sorted(inserted(pair)) == list(range(COUNT, COUNT + 1_200))


def test_a_scan_goes_on_at_the_next_holder_at_its_snapshot(pair: Pair) -> None:
    table = Database(pair.store).table("rows")
    count = 2_000_000
    table.insert(pa.table({"id": range(COUNT, count), "v": range(COUNT, count)}, schema=SCHEMA))
    with nyala.connect(pair.url) as db:
        keys = 0
        for number, found in enumerate(db.table("rows").scan()):
            keys += sum(found["id"].to_pylist())
            if number == 1:
                table.delete({"id": range(0, count, 3)})  # later than the snapshot
                pair.give_to(pair.second)
                pair.first.die()
        assert keys == count * (count - 1) // 2


def test_an_error_names_all_locations_that_were_tried(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    with nyala.connect(pair.url) as db:
        pair.give_to(None)
        pair.first.die()
        with pytest.raises(UnavailableError, match=r"gave up.*after") as raised:
            db.now()
        assert pair.first.url in raised.value.message and pair.second.url in raised.value.message
    with pytest.raises(UnavailableError, match="is a standby, and no process has the store"):
        nyala.connect(pair.url, retries=False)


def test_without_retries_only_what_was_surely_not_applied_goes_to_the_next_holder(pair: Pair) -> None:
    store = FlightStore(pair.url, retries=False)
    db = Database(store)
    pair.give_to(pair.second)
    assert db.table("rows").insert({"id": [2_000, 2_001], "v": [0, 0]}).applied == 2
    pair.give_to(pair.first)
    pair.second.die()
    with pytest.raises(UnavailableError):
        db.tables()
    assert db.tables() == ["rows"]
    db.close()


def test_without_retries_one_location_is_the_process_that_is_meant(pair: Pair) -> None:
    pair.give_to(pair.second)
    store = FlightStore(pair.first.url, retries=False)
    assert store.whereabouts().state == "standby"
    with pytest.raises(UnavailableError, match="is a standby of the store") as refused:
        store.tables()
    assert refused.value.locations == [pair.second.url]
    store.close()


def test_the_latest_claim_counts_where_two_processes_say_that_they_have_the_store(pair: Pair) -> None:
    pair.give_to(pair.second)
    pair.first.is_holder = True  # it does not know yet that it was replaced
    with nyala.connect(pair.url) as db:
        assert db._store._client.location == pair.second.url  # pyright: ignore[reportAttributeAccessIssue]


def test_the_first_of_several_locations_of_one_server_is_preferred(pair: Pair) -> None:
    pair.second.is_holder = True
    pair.first.epoch = pair.second.epoch = 0  # as servers of directories say
    with nyala.connect(pair.url) as db:
        assert db._store._client.location == pair.first.url  # pyright: ignore[reportAttributeAccessIssue]
        pair.first.die()
        assert db.tables() == ["rows"]


def test_where_a_process_points_a_token_goes_no_less_protected(pair: Pair) -> None:
    """Whoever answers at a location could name others: only such as are reached in the same way are asked."""
    asked: list[str] = []
    credentials = Credentials(token="secret")

    def connect(location: str) -> Any:
        asked.append(location)
        return credentials.connect(location, [])

    client = HolderClient([pair.first.url], connect)
    named = [
        "grpc://192.0.2.1:1",
        "grpc+unix:///tmp/theirs",
        "grpc+tcp://127.0.0.1:2",
        "grpc://x" * 200,
        pair.second.url,
    ]
    pair.give_to(pair.second)
    pair._told = Holder(locations=named, epoch=9)
    began = time.monotonic()
    client.follow()
    assert client.locations == (pair.first.url, pair.second.url) and client.location == pair.second.url
    assert asked == [pair.first.url, "grpc://192.0.2.1:1", pair.second.url]  # the first would show the token: refused
    assert time.monotonic() - began < 30
    client.close()


def test_a_process_that_is_forgotten_while_it_is_looked_for_is_an_error_of_the_store(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may find that it was only named, by a process that no longer counts."""
    client = HolderClient([pair.first.url], lambda location: Credentials().connect(location, []))
    pair.give_to(pair.second)
    asked = client._asked

    def and_forgotten(locations: Any) -> Any:
        found = asked(locations)
        client._clients.pop(pair.second.url, None)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(client, "_asked", and_forgotten)
        with pytest.raises(UnavailableError, match="is no longer used"):
            client.follow()
    with pytest.raises(UnavailableError, match="is no longer used"):
        client.confirm_at(pair.second.url)
    client.follow()
    assert client.location == pair.second.url
    client.close()


def limits(*members: Member) -> set[int]:
    """The milliseconds after which this process gives up its connections to them."""
    ports, found = {int(each.url.rpartition(":")[2]) for each in members}, set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError), socket.socket(fileno=os.dup(int(number))) as each:
            peer = each.getpeername()
            if isinstance(peer, tuple) and peer[1] in ports:  # that of a Unix socket is a text
                found.add(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found


def test_a_lost_machine_is_noticed_by_what_it_does_not_acknowledge(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a network is cut no call ends by itself: the connection has a time limit, and something to acknowledge."""
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.01)

    with nyala.connect(pair.url):
        assert limits(pair.first) == {5_000}
        asked = pair.first.asked
        until(lambda: pair.first.asked > asked + 3)
    time.sleep(0.1)
    asked = pair.first.asked
    time.sleep(0.1)
    assert pair.first.asked == asked  # a client that is closed asks no more


def test_heartbeats_go_on_after_a_token_could_not_be_had(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.01)
    reassure, failures = HolderClient._reassure, [KeyError("token")]

    def fail_once(self: HolderClient, seconds: float) -> None:
        if failures and threading.current_thread().name == "nyala-heartbeat":
            raise failures.pop()
        reassure(self, seconds)

    monkeypatch.setattr(HolderClient, "_reassure", fail_once)
    with nyala.connect(pair.url):
        until(lambda: not failures)
        asked = pair.first.asked
        until(lambda: pair.first.asked > asked + 3)


def test_a_client_of_one_location_notices_a_lost_machine_where_it_was_led(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "PERIOD_SECONDS", 0.01)
    with nyala.connect(pair.first.url) as db:
        assert limits(pair.first) == {5_000}
        asked = pair.first.asked
        time.sleep(0.1)
        assert pair.first.asked == asked  # there is nobody else to go to
        pair.give_to(pair.second)
        assert db.tables() == ["rows"]
        assert limits(pair.second) == {5_000}
        asked = pair.second.asked
        until(lambda: pair.second.asked > asked + 3)
    asked = pair.second.asked
    time.sleep(0.1)
    assert pair.second.asked <= asked + 1


def test_a_scan_of_one_tablet_follows(pair: Pair) -> None:
    with nyala.connect(pair.url) as db:
        store = db._store
        parts = store.parts(ScanSpec(table="rows"))  # pyright: ignore[reportAttributeAccessIssue]
        pair.give_to(pair.second)
        rows = sum(each.num_rows for part in parts.parts for each in store.read_part(part))  # pyright: ignore[reportAttributeAccessIssue]
        assert rows == COUNT


def note(url: str, location: str) -> None:
    found = Whereabouts(name="a", state="holder", holder=Holder(locations=[location], epoch=1))
    write_where(bucket_of(url), "a", found)


def test_a_bucket_leads_to_the_process_that_has_the_store_and_to_the_next(pair: Pair, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    with pytest.raises(UnavailableError, match="no server of the store a has recorded its location"):
        nyala.connect(url, name="a")
    note(url, pair.first.url)
    with nyala.connect(url, name="a") as db:
        assert db.tables() == ["rows"]
        pair.first.die()  # nobody that this client knows can say who is next
        pair.give_to(pair.second)
        note(url, pair.second.url)
        db.table("rows").insert([{"id": 1_700, "v": 0}])
    assert inserted(pair) == [1_700]


def test_a_note_in_a_bucket_is_believed_by_nobody(pair: Pair, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    note(url, pair.first.url)
    pair.give_to(pair.second)
    with nyala.connect(url, name="a") as db:  # the process there names the other
        assert db._store._client.location == pair.second.url  # pyright: ignore[reportAttributeAccessIssue]
    note(url, "grpc://127.0.0.1:1")
    with pytest.raises(UnavailableError):
        nyala.connect(url, name="a")


def test_a_damaged_note_in_a_bucket_stops_nobody(pair: Pair, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    note(url, pair.first.url)
    with nyala.connect(url, name="a") as db:
        bucket_of(url).put(where_path("a"), b"NYALAWHR" + (99).to_bytes(4, "little") + bytes(40))
        pair.give_to(None)
        threading.Timer(0.5, pair.give_to, (pair.second,)).start()
        assert db.tables() == ["rows"]


def test_a_bucket_that_does_not_answer_holds_up_no_other_thread(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 1.5)
    asked, is_back = threading.Event(), threading.Event()

    def away() -> list[str]:
        asked.set()
        assert is_back.wait(60)
        raise UnavailableError("the bucket is away")

    store = FlightStore(pair.url, noted=away)
    pair.give_to(None)
    waiting = threading.Thread(target=store.tables)
    waiting.start()
    assert asked.wait(60)
    pair.give_to(pair.second)
    assert store.tables()
    assert waiting.is_alive()
    is_back.set()
    waiting.join(60)
    store.close()


def test_a_bucket_that_is_slow_for_ever_does_not_prolong_the_search(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.5)
    monkeypatch.setattr(holder_client, "_NOTE_SECONDS", 0.0)  # as if each answer came later than that
    tried: list[int] = []

    def slow() -> list[str]:
        tried.append(len(tried))
        assert len(tried) < 50
        return []

    store = FlightStore(pair.url, noted=slow)
    pair.give_to(None)
    with pytest.raises(UnavailableError, match="no process has the store"):
        store.tables()
    store.close()


def test_a_bucket_is_asked_only_sometimes_and_once_each_time(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 2.0)
    monkeypatch.setattr(holder_client, "_NOTE_SECONDS", 60.0)  # a busy machine takes longer than FOLLOW_SECONDS
    tried: list[str] = []

    class Away(MemoryObjects):
        def get(self, name: str) -> bytes:
            tried.append(name)
            raise OSError("away")

    monkeypatch.setattr(noted, "bucket_of", lambda _: PatientBucket(Away()))
    store = FlightStore(pair.url, noted=lambda: noted.noted_locations("s3://away", "a", 1.0))
    pair.give_to(None)
    before = pair.first.asked
    with pytest.raises(UnavailableError, match="no process has the store"):
        store.tables()
    assert pair.first.asked > before + 2 and tried == [where_path("a")]
    store.close()


def test_a_bucket_leads_no_token_anywhere_without_roots_of_the_user(pair: Pair, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    note(url, pair.first.url)
    with pytest.raises(InvalidArgumentError, match="tls_roots"):
        nyala.connect(url, name="a", token="secret")
    with pytest.raises(UnavailableError, match="with TLS"):
        nyala.connect(url, name="a", token="secret", tls_roots=tmp_path / "roots.pem")
    with pytest.raises(InvalidArgumentError, match="store in a bucket"):
        nyala.connect(pair.url, name="a")


@pytest.mark.parametrize("retries", [True, False])
def test_each_server_of_a_placement_is_followed(pair: Pair, retries: bool) -> None:
    """As a client of several servers asks them, and without retries as a server asks the others."""
    servers = Servers(parse_placement({"servers": {"a": pair.url}}), retries)
    placed = Database(PlacedStore(servers))
    assert placed.table("rows").get(3) == {"id": 3, "v": 3}
    pair.give_to(pair.second)
    assert placed.table("rows").scan().to_arrow().num_rows == COUNT
    assert placed.table("rows").insert([{"id": 3_000, "v": 0}]).applied == 1
    pair.give_to(pair.first)
    assert placed.table("rows").get(3_000) == {"id": 3_000, "v": 0}
    assert inserted(pair) == [3_000]
    placed.close()


def test_a_task_of_spark_reads_its_part_at_the_next_holder(pair: Pair) -> None:
    server = ServerOptions(uri=pair.url)
    planned = server.server().parts(ScanSpec(table="rows")).parts[0]
    elsewhere = replace(planned, locations=tuple(pair.url.split(",")))  # as another server of a placement plans it
    Database(pair.store).table("rows").delete({"id": range(10)})  # later than the snapshot
    pair.give_to(pair.second)
    pair.first.die()
    for part in (planned, elsewhere):
        assert sum(batch.num_rows for batch in batches_of(server, part)) == COUNT

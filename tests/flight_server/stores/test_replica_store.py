"""What a replica answers over Flight, beside the process that has the store."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow.flight as fl
import pytest

from nyala.clients.api.database import Database
from nyala.clients.flight.store import FlightStore
from nyala.engine.replica import slots as replica_module
from nyala.engine.wal.slots.standby import Standby
from nyala.engine.wal.slots.tail import Tail
from nyala.flight_server.stores.follower import Follower as FollowingThread
from nyala.flight_server.stores.replica_store import ReplicaStore
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import Marked, ScanStream
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.description import Health
from tests.doubles.waiting import until
from tests.engine.replica.replicas import SMALL
from tests.flight_server.both import ROWS, Both
from tests.flight_server.raw_session import Session, error_code, row_line


@pytest.fixture
def both() -> Iterator[Both]:
    one = Both()
    one.make_table("t")
    yield one
    one.close()


@pytest.fixture
def client(both: Both) -> Iterator[FlightStore]:
    store = FlightStore([both.url, both.replica_url])
    yield store
    store.close()


def calls_of(both: Both, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return who is asked to scan or to plan from now on."""
    asked: list[str] = []
    for who, store in (("holder", both.holder.store), ("replica", both.store)):
        for verb in ("scan", "plan"):
            act = getattr(store, verb)
            monkeypatch.setattr(store, verb, lambda spec, who=who, act=act: (asked.append(who), act(spec))[1])
    return asked


def test_scans_that_may_be_behind_go_to_the_replica(
    both: Both, client: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, table = calls_of(both, monkeypatch), Database(client).table("t")
    assert table.scan(max_staleness=2).to_arrow().num_rows == table.scan(max_staleness=2).count() == ROWS
    assert set(asked) == {"replica"}
    asked.clear()
    assert table.scan().to_arrow().num_rows == table.count() == ROWS
    assert set(asked) == {"holder"}


def test_what_a_replica_refuses_the_holder_answers(
    both: Both, client: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "PATIENCE_SECONDS", 0.05)
    both.holder.database.table("t").upsert([{"id": 1, "v": 1, "name": "new"}])
    asked, table = calls_of(both, monkeypatch), Database(client).table("t")
    assert table.scan(max_staleness=0).count() == ROWS + 1
    assert asked == ["replica", "holder"]
    assert table.scan(max_staleness=0).count() == ROWS + 1
    assert asked == ["replica", "holder", "holder"], "it is not asked again for some seconds"


def test_a_replica_that_is_behind_says_so_and_who_has_the_store(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "PATIENCE_SECONDS", 0.05)
    both.holder.database.table("t").upsert([{"id": 1, "v": 1, "name": "new"}])
    scan = Database(cast(Any, both.store)).table("t").scan(max_staleness=0)
    with pytest.raises(
        UnavailableError, match=r"slots of the log behind; connect to grpc://.*, which has the store"
    ) as refused:
        scan.count()
    assert refused.value.locations == [both.url]


@pytest.mark.parametrize("columns", [["id", "v"], ["id", "nothing"]])
def test_a_replica_asks_for_no_row_as_a_batch(both: Both, columns: list[str]) -> None:
    with fl.connect(both.replica_url) as client:
        session = Session(client)
        written = session.ask(row_line(columns, table="t", writer="w"), {"seq": 1, "row": [1, 2]})
        assert error_code(written) == "UNAVAILABLE"
        session.writer.close()
    row = dict.fromkeys(columns, 1)
    for write in (
        both.store.write_row,
        both.store.begin_row,
        lambda command, row: both.store.write_rows(command, [row]),
    ):
        with pytest.raises(UnavailableError, match="connect to"):
            write(WriteCommand(table="t"), row)


def test_tables_are_told_only_as_they_were_a_moment_ago(both: Both) -> None:
    assert both.store.tables() == ["t"] and both.store.describe_table("t").name == "t"
    both.lag = 5.1
    for ask in (both.store.tables, lambda: both.store.describe_table("t"), lambda: both.store.table_stats("t")):
        with pytest.raises(UnavailableError, match="is a standby"):
            ask()


def test_a_scan_goes_on_after_a_file_that_the_holder_deleted(
    both: Both, client: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, replica = both.replica.scan, both.replica
    marks: list[Any] = []

    def cut_once(spec: ScanSpec) -> ScanStream:
        stream = scan(spec)
        assert stream.marked is not None
        return stream if marks else replace(stream, marked=until_gone(stream.marked))

    def until_gone(items: Iterator[Marked]) -> Iterator[Marked]:
        for item in items:
            marks.append(item.below)
            yield item
            if len(marks) == 3:
                raise UnavailableError("another process has the store, and has replaced this file")

    monkeypatch.setattr(replica, "scan", cut_once)
    asked = calls_of(both, monkeypatch)
    found = Database(client).table("t").scan(columns=["id", "name"], max_staleness=2).to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(0, 2 * ROWS, 2)), "each row once"
    assert asked == ["replica", "replica", "replica"], "planned, read, and read on"


def test_a_user_whose_grants_it_does_not_know_is_sent_to_the_holder(both: Both) -> None:
    with pytest.raises(UnavailableError, match="is a standby") as refused:
        both.store.for_others(None, lambda _: None).tables()
    assert refused.value.locations == [both.url]


def test_a_replica_of_another_store_is_not_used(
    both: Both, client: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = Health(status="ok", version="1", name="a", state="standby", store_uuid="another")
    monkeypatch.setattr(both.store, "health", lambda: about)
    asked = calls_of(both, monkeypatch)
    assert Database(client).table("t").scan(max_staleness=2).count() == ROWS
    assert asked == ["holder"]


def test_a_replica_that_takes_the_store_over_keeps_no_memory_and_is_ready(both: Both) -> None:
    machine, standby = both.holder.machine.other(), Standby()
    home = machine.home()
    tail = standby.tail = Tail(standby.over(home.slots), 20, machine.boot.now)
    tail.seek()
    following = FollowingThread(home, standby, SMALL)
    store = ReplicaStore(both.whereabouts, "1", lambda: following, 5.0)
    until(lambda: store.lag_seconds is not None)
    assert store.tables() == ["t"] and following.safe is not None
    replica = weakref.ref(following.replica)
    gc.collect()
    gc.disable()
    try:
        standby.on_claim()  # the store is opened after this
        assert replica() is None, "its memory is free before the log is replayed"
    finally:
        gc.enable()
    uuid = both.holder.store.health().store_uuid
    assert (store.health().status, store.health().store_uuid) == ("ok", uuid)
    assert store.lag_seconds is None and following.safe is None
    assert getattr(standby.on_claim, "__self__", None) is not following
    with pytest.raises(UnavailableError, match="is a standby"):
        store.tables()

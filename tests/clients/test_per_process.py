"""Connections are kept by process: by jobs and by Spark, which look for them in one place."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nyala
from nyala.clients.api import per_process
from nyala.clients.api.connect import connection_to
from nyala.clients.api.database import Database
from nyala.clients.api.per_process import all_servers_at, server_at
from nyala.clients.cluster.placement_file import parse_placement
from nyala.clients.cluster.store import PlacedStore
from nyala.clients.flight.store import FlightStore
from nyala.clients.jobs.link import StoreLink
from nyala.clients.jobs.splits import TableSplit
from nyala.engine.store import Store
from nyala.schemas.rows.scan import ScanSpec
from tests.doubles.pair import Pair


@pytest.fixture
def pair(store: Store) -> Iterator[Pair]:
    pair = Pair(store)
    yield pair
    pair.close()


def test_jobs_and_spark_share_one_connection_of_a_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server_at(url)
    assert server_at(url) is first
    assert all_servers_at(url) is first, "a server that shares no tables is all there is"
    assert StoreLink.to(url).service is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    forked = server_at(url)
    assert forked is not first and StoreLink.to(url).service is forked


def test_threads_that_connect_at_once_share_one_connection(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is closed: with several locations it would send heartbeats for ever."""
    made: list[FlightStore] = []
    closed: list[FlightStore] = []
    both, close = threading.Barrier(2, timeout=60), FlightStore.close

    def connect(*given: Any, **named: Any) -> FlightStore:
        store = connection_to(*given, **named)
        made.append(store)
        both.wait()
        return store

    def note(store: FlightStore) -> None:
        closed.append(store)
        close(store)

    monkeypatch.setattr(per_process, "connection_to", connect)
    monkeypatch.setattr(FlightStore, "close", note)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(server_at, [url, url])
    assert first is second and first.now() > 0
    assert closed == [store for store in made if store is not first] and len(made) == 2


def test_a_job_does_not_wait_for_a_server_that_is_not_there() -> None:
    with pytest.raises(nyala.UnavailableError, match=r"127\.0\.0\.1:1"):
        StoreLink.to("grpc://127.0.0.1:1").service.tables()


def test_a_job_runs_through_the_kept_connection(embedded: Database, url: str) -> None:
    embedded.create_table("t", data={"k": [1, 2], "v": [3, 4]}, primary_key=["k"])
    assert nyala.jobs.checksum(url, "t", show="off").rows == 2


def first_asked(pair: Pair) -> FlightStore:
    """The connection of this process, whose holder was asked before."""
    asked = server_at(pair.url)
    asked.now()
    return asked


def test_all_servers_are_those_of_the_next_holder(pair: Pair) -> None:
    """Who reads has a connection already when it begins to write."""
    asked = first_asked(pair)
    pair.first.die()
    pair.give_to(pair.second)
    assert all_servers_at(pair.url) is asked


def test_who_stands_by_is_not_taken_for_all_servers(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not say that the store shares its tables with others."""
    about, placement = pair.store.health(), parse_placement({"servers": {"a": pair.url}})
    monkeypatch.setattr(pair.store, "health", lambda: about.model_copy(update={"server": "a"}))
    monkeypatch.setattr(pair.store, "placement", lambda: placement, raising=False)
    first_asked(pair)
    pair.give_to(pair.second)
    assert isinstance(all_servers_at(pair.url), PlacedStore)


def test_all_servers_are_waited_for_while_nobody_has_the_store(pair: Pair) -> None:
    asked = first_asked(pair)
    pair.first.die()
    pair.give_to(None)
    threading.Timer(1.0, pair.give_to, (pair.second,)).start()
    assert all_servers_at(pair.url) is asked


def test_a_job_goes_on_at_the_next_holder(pair: Pair) -> None:
    beginning, reading = FlightStore(pair.url), FlightStore(pair.url)
    pair.first.die()
    pair.give_to(pair.second)
    assert StoreLink.to(Database(beginning)).held is beginning
    with pytest.raises(nyala.InvalidArgumentError, match="does not share tables"):  # the next holder does not
        StoreLink(None, held=reading).scan(TableSplit(scan=ScanSpec(table="t"), server="a"))


def test_who_does_not_wait_for_a_server_waits_for_the_next_holder(pair: Pair) -> None:
    pair.first.die()
    pair.give_to(None)
    threading.Timer(1.0, pair.give_to, (pair.second,)).start()
    assert server_at(pair.url, patient=False).now() > 0

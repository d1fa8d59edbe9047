"""Single rows at the public address of several processes: the process that has the row is asked, and no other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.servers import Servers
from nyala.clients.flight.store import FlightStore
from nyala.flight_server.processes.front import Front
from nyala.flight_server.server import FlightServer
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.protocol.verb import Verb
from nyala.schemas.table.alter import Alteration, DropColumn
from tests.clients.cluster.cluster import Cluster

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("x", pa.float64()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("s", pa.string()),
    ]
)
COUNT = 24


class Public:
    """The public address of a cluster, and what its processes are asked beside sessions."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        perform = FlightStore.perform

        def noted(store: FlightStore, verb: Verb, *args: Any, **named: Any) -> Any:
            if store.url != self.url:
                self.asked.append(verb.name)
            return perform(store, verb, *args, **named)

        monkeypatch.setattr(FlightStore, "perform", noted)
        self.url = ""
        self.front = Front(Servers(cluster.placement), lambda: None)
        self.server = FlightServer(cast(StoreService, self.front), "grpc://127.0.0.1:0")
        self.url = f"grpc://127.0.0.1:{self.server.port}"
        self.db = Database(cast(StoreService, FlightStore(self.url)))

    def close(self) -> None:
        self.db.close()
        self.server.shutdown()
        self.front.close()


@pytest.fixture
def public(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Public]:
    made = Public(cluster, monkeypatch)
    yield made
    made.close()


def row(number: int, version: int = 0) -> dict[str, Any]:
    x = float("inf") if number % 5 == 0 else number + version / 4
    day = dt.date(2024, 1, 1) + dt.timedelta(number)
    return {
        "id": number,
        "x": x,
        "b": bytes([number, 255]),
        "day": day,
        "s": None if number % 7 == 0 else f"\xe9{version}",
    }


def make(db: Database) -> Table:
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=6)])
    table.upsert([row(number) for number in range(COUNT)])
    return table


def test_a_row_is_asked_of_its_process_only(public: Public) -> None:
    table = make(public.db)
    assert table.get(0) == row(0)
    table.upsert([row(0)])
    public.asked.clear()
    for number in range(COUNT):
        assert table.get(number) == row(number)
        assert table.upsert([row(number, 1)]).applied == 1
        assert table.get(number) == row(number, 1)
    assert table.get(COUNT) is None
    assert public.asked == []
    with pytest.raises(nyala.InvalidArgumentError, match="must be"):
        table.get((1, 2))
    with pytest.raises(nyala.InvalidArgumentError, match="text"):
        table.get("text")


def test_an_alteration_elsewhere_is_noticed(public: Public, cluster: Cluster) -> None:
    table, direct = make(public.db), cluster.connect().table("t")
    numbers = range(COUNT)
    assert [table.get(number) for number in numbers] == [row(number) for number in numbers]
    direct.alter().add_column("more", pa.int64(), read_default=5).drop_column("b").apply()
    altered = [{name: cell for name, cell in {**row(number), "more": 5}.items() if name != "b"} for number in numbers]
    assert [table.get(number) for number in numbers] == altered
    public.asked.clear()
    assert [table.get(number) for number in numbers] == altered
    assert public.asked == [], "the new version is known"
    direct.upsert([{**altered[3], "more": 6}])
    assert table.get(3) == {**altered[3], "more": 6}


def test_a_table_that_is_made_anew_elsewhere_is_noticed(public: Public, cluster: Cluster) -> None:
    table, direct = make(public.db), cluster.connect()
    assert [table.get(number)["s"] for number in (1, 2, 3)] == ["\xe90"] * 3  # type: ignore[index]
    direct.drop_table("t")
    with pytest.raises(nyala.NotFoundError):
        table.get(1)
    again = pa.schema([pa.field("id", pa.int64(), False), ("day", pa.timestamp("us"))])
    moment = dt.datetime(2024, 5, 6)
    direct.create_table("t", again, ["id"]).insert([{"id": number, "day": moment} for number in range(COUNT)])
    assert [public.db.table("t").get(number) for number in range(COUNT)] == [
        {"id": number, "day": moment} for number in range(COUNT)
    ]


def test_rows_whose_tablets_move_are_found(public: Public, cluster: Cluster) -> None:
    table, mover = make(public.db), cluster.connect()
    numbers = range(COUNT)
    assert [table.get(number) for number in numbers] == [row(number) for number in numbers]
    for place in mover.table("t").tablets():
        mover.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", place.server)
    assert [table.get(number) for number in numbers] == [row(number) for number in numbers]
    for number in numbers:
        assert table.upsert([row(number, 2)]).applied == 1
    assert [table.get(number) for number in numbers] == [row(number, 2) for number in numbers]


@pytest.mark.parametrize("moves", [False, True])
def test_a_numbered_row_is_applied_once(public: Public, cluster: Cluster, moves: bool) -> None:
    table, mover = make(public.db), cluster.connect()
    for number in range(COUNT):
        table.insert([row(COUNT + number)], writer="w", seq=number)
    if moves:
        for place in mover.table("t").tablets():
            mover.move_tablet("t", place.tablet, "b" if place.server == "a" else "a", place.server)
    table.delete({"id": list(range(COUNT, 2 * COUNT))})
    for number in range(COUNT):
        assert table.insert([row(COUNT + number)], writer="w", seq=number).applied == 1
    assert table.count() == COUNT


def test_between_two_processes_an_alteration_mixes_nothing(public: Public, cluster: Cluster) -> None:
    """While only one process has it, each row has the columns of one version, decoded as that version says."""
    table = make(public.db)
    numbers = range(COUNT)
    assert table.get(1) == row(1)
    cluster.members["a"].store.alter_table(Alteration(table="t", steps=[DropColumn(name="b")]))
    for fresh in (table, Database(cast(StoreService, FlightStore(public.url))).table("t")):
        for number in numbers:
            try:
                found = fresh.get(number)
            except nyala.UnavailableError as error:
                assert "altered" in error.message
                continue
            assert found in (row(number), {name: cell for name, cell in row(number).items() if name != "b"})

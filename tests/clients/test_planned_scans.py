"""Tickets that were made before a table was altered: the stream has the schema that was told, or there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight.errors import as_store_errors
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from tests.doubles.clock import ManualClock

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("s", pa.string())])
TOUCHED: list[tuple[str, dict[str, Any], Any]] = [
    ("a new column", {}, lambda table: table.alter().add_column("n", "int8")),
    ("a column that is gone", {}, lambda table: table.alter().drop_column("s")),
    ("a named column that is gone", {"columns": ["s"]}, lambda table: table.alter().drop_column("s")),
    ("a filter of a column that is gone", {"where": "s = 'x'"}, lambda table: table.alter().drop_column("s")),
    ("a wider column", {"columns": ["v"]}, lambda table: table.alter().widen_column("v", "int64")),
    ("another column", {"columns": ["s"]}, lambda table: table.alter().drop_column("s").add_column("s", "string")),
    (
        "a filter of a wider column",
        {"columns": ["id"], "where": "v < 5"},
        lambda table: table.alter().widen_column("v", "int64"),
    ),
    (
        "a measure of a wider column",
        {"aggregate": {"n": ("v", "sum")}},
        lambda table: table.alter().widen_column("v", "int64"),
    ),
    ("names exchanged", {}, lambda table: table.alter().rename_column("v", "w")),
]
UNTOUCHED: list[tuple[str, dict[str, Any], Any]] = [
    ("a new column beside", {"columns": ["id", "v"]}, lambda table: table.alter().add_column("n", "int8")),
    ("a column beside that is gone", {"columns": ["v"]}, lambda table: table.alter().drop_column("s")),
    ("a comment", {}, lambda table: table.alter().set_comment("v", "a number").set_encoding("v", "plain")),
    ("rows without cells", {"columns": []}, lambda table: table.alter().drop_column("s")),
]


@pytest.fixture
def table(remote: Database) -> Table:
    made = remote.create_table("t", SCHEMA, ["id"])
    made.insert({"id": range(10), "v": range(10), "s": ["x"] * 10})
    return made


def info(client: fl.FlightClient, spec: dict[str, Any]) -> fl.FlightInfo:
    return client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps({"table": "t", **spec}).encode()))


def read(client: fl.FlightClient, told: fl.FlightInfo) -> pa.Table:
    with as_store_errors():
        (part,) = told.endpoints
        return client.do_get(part.ticket).read_all()


@pytest.mark.parametrize("case", TOUCHED, ids=[case[0] for case in TOUCHED])
def test_a_ticket_for_other_columns_is_refused(url: str, table: Table, case: tuple[str, dict[str, Any], Any]) -> None:
    name, spec, alter = case
    with fl.connect(url) as client:
        told = info(client, spec)
        assert read(client, told).schema == told.schema
        alter(table).apply()
        with pytest.raises(nyala.ConflictError, match="schema version 2 now"):
            read(client, told)
        if "is gone" not in name or not spec:
            told = info(client, spec)
            assert read(client, told).schema == told.schema


@pytest.mark.parametrize("case", UNTOUCHED, ids=[case[0] for case in UNTOUCHED])
def test_a_ticket_for_columns_as_they_were_is_read(
    url: str, table: Table, case: tuple[str, dict[str, Any], Any]
) -> None:
    _, spec, alter = case
    with fl.connect(url) as client:
        told = info(client, spec)
        before = read(client, told)
        alter(table).apply()
        table.upsert({"id": [3], "v": [77]})
        assert read(client, told).equals(before) and before.schema == told.schema


def test_a_ticket_does_not_fit_a_new_table_of_the_same_name(url: str, remote: Database, table: Table) -> None:
    with fl.connect(url) as client:
        told = info(client, {})
        remote.drop_table("t")
        remote.create_table("t", SCHEMA, ["id"])
        with pytest.raises((nyala.ConflictError, nyala.NotFoundError)):
            read(client, told)


# What a plan keeps

SECOND = 1_000_000


class Aged:
    """A store whose tables keep a second of history, behind a server, on a clock of ours."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", **options), self.clock)
        self.server = FlightServer(self.store, "grpc://127.0.0.1:0")
        self.url = f"grpc://127.0.0.1:{self.server.port}"
        self.db = nyala.connect(self.url)
        client: Any = self.db._store
        client._small.scan = lambda _: None  # a table as small as this one needs no plan
        split = [nyala.hash("id", buckets=4)]
        self.table = self.db.create_table("t", SCHEMA, ["id"], split, history_max_age_seconds=1)
        self.table.insert({"id": range(1000), "v": range(1000), "s": ["x"] * 1000})

    def move_on(self) -> None:
        """Change all rows, let the history of before go, and the files with it."""
        self.table.upsert({"id": range(1000), "v": [77] * 1000})
        self.clock.advance(10 * SECOND)
        self.table.delete({"id": range(0, 1000, 2)})
        for op in ("flush", "flush_deltas", "major_compact", "compact", "gc"):
            self.table.maintain(op)

    def close(self) -> None:
        self.db.close()
        self.server.shutdown()
        self.store.close()


@pytest.fixture
def aged() -> Iterator[Aged]:
    made = Aged()
    yield made
    made.close()


def endpoints(told: fl.FlightInfo, client: fl.FlightClient) -> list[int]:
    with as_store_errors():
        return sorted(row for part in told.endpoints for row in client.do_get(part.ticket).read_all()["v"].to_pylist())


@pytest.mark.parametrize("spec", [{}, {"ordered": True}, {"limit": 70_000}, {"split_bytes": 2000}])
def test_a_planned_scan_keeps_its_snapshot_until_it_is_read(aged: Aged, spec: dict[str, Any]) -> None:
    with fl.connect(aged.url) as client:
        told = info(client, spec)
        aged.move_on()
        assert endpoints(told, client) == list(range(1000))
        assert len(aged.store._planned) == 0
        with pytest.raises(nyala.SnapshotTooOldError):
            endpoints(told, client)


def test_changes_that_were_planned_are_kept(aged: Aged) -> None:
    since = aged.db.now()
    aged.table.update({"id": range(10), "v": range(10)})
    with fl.connect(aged.url) as client:
        told = info(client, {"changes": {"since": since}})
        aged.move_on()
        assert endpoints(told, client) == list(range(10))


def test_a_planned_scan_is_read_as_it_was_whatever_comes(aged: Aged) -> None:
    with fl.connect(aged.url) as client:
        told = info(client, {"columns": ["id", "v"]})
        aged.table.alter().add_column("more", "string").widen_column("v", "int64").drop_column("s").apply()
        aged.table.upsert({"id": range(1000), "v": [1 << 40] * 1000})
        aged.move_on()
        assert endpoints(told, client) == list(range(1000))


ANOTHER: list[tuple[str, Any]] = [
    ("a column that is gone", lambda table: table.alter().drop_column("v")),
    ("another column", lambda table: table.alter().drop_column("v").add_column("v", "int32")),
    ("names exchanged", lambda table: table.alter().rename_column("v", "w").rename_column("s", "v")),
    ("another name of the table", lambda table: table.alter().rename("u")),
]


@pytest.mark.parametrize("alter", [each[1] for each in ANOTHER], ids=[each[0] for each in ANOTHER])
def test_a_planned_scan_of_other_names_is_not_read(aged: Aged, alter: Any) -> None:
    """Who may read it is decided by the names of today."""
    with fl.connect(aged.url) as client:
        told = info(client, {"columns": ["v"], "where": "id >= 0"})
        alter(aged.table).apply()
        with pytest.raises((nyala.ConflictError, nyala.NotFoundError)):
            endpoints(told, client)


def test_a_dropped_table_is_kept_for_nobody(aged: Aged) -> None:
    with fl.connect(aged.url) as client:
        told = info(client, {})
        aged.db.drop_table("t")
        with pytest.raises(nyala.NotFoundError):
            endpoints(told, client)


def test_a_lease_ends_when_nobody_comes(aged: Aged) -> None:
    with fl.connect(aged.url) as client:
        told = info(client, {})
        first, *others = told.endpoints
        aged.clock.advance(200 * SECOND)
        client.do_get(first.ticket).read_all()
        aged.clock.advance(200 * SECOND)  # it was used meanwhile
        aged.move_on()
        assert client.do_get(others[0].ticket).read_all()["v"].to_pylist()
        aged.clock.advance(301 * SECOND)
        info(client, {"columns": ["id"]})
        with pytest.raises(nyala.SnapshotTooOldError), as_store_errors():
            client.do_get(others[1].ticket).read_all()


def test_a_client_that_stops_early_lets_go(aged: Aged) -> None:
    batches: Any = iter(aged.table.scan())
    next(batches)
    assert len(aged.store._planned) == 1
    batches.close()
    assert len(aged.store._planned) == 0
    aged.table.scan().to_arrow()
    aged.table.scan(limit=3).to_arrow()
    aged.table.scan().count()
    assert len(aged.store._planned) == 0


def test_what_is_kept_has_bounds() -> None:
    aged = Aged(scan_leases_count=3)
    with fl.connect(aged.url) as client:
        told = [info(client, {}) for _ in range(5)]
        assert len(aged.store._planned) == 3
        assert aged.store._planned.bytes_kept() == (0, 0), "nothing that the table itself needs counts"
        aged.move_on()
        on_disk, in_memory = aged.store._planned.bytes_kept()
        assert in_memory > 1000 and not on_disk
        assert endpoints(told[-1], client) == list(range(1000))
        with pytest.raises(nyala.SnapshotTooOldError):
            endpoints(told[0], client)
        told = [info(client, {})]
        aged.move_on()
        on_disk, in_memory = aged.store._planned.bytes_kept()
        assert on_disk > 1000
    aged.close()


@pytest.mark.parametrize("bound", ["scan_lease_disk_bytes", "scan_lease_memory_bytes"])
def test_a_scan_that_keeps_too_much_is_forgotten(bound: str) -> None:
    aged = Aged(**{bound: 100})
    aged.table.maintain("flush") if "disk" in bound else None
    with fl.connect(aged.url) as client:
        told = info(client, {})
        aged.move_on()
        info(client, {})
        with pytest.raises(nyala.SnapshotTooOldError, match="history"):
            endpoints(told, client)
    aged.close()


@pytest.mark.parametrize("why", ["the disk is nearly full", "the table is dropped"])
def test_files_of_planned_scans_are_given_up(why: str) -> None:
    aged = Aged()
    aged.table.maintain("flush")
    planned: Any = aged.store._planned
    with fl.connect(aged.url) as client:
        info(client, {})
        aged.move_on()
        assert planned.bytes_kept()[0] > 0
        planned._looked = 0
        planned.tidy()
        assert len(planned) == 1
        if "disk" in why:
            aged.store._gate.disk.is_low = True
        else:
            aged.db.drop_table("t")
        planned._looked = 0
        planned.tidy()
        assert len(planned) == 0
    aged.close()


def test_a_ticket_for_other_moments_is_not_of_the_planned_scan(aged: Aged) -> None:
    with fl.connect(aged.url) as client:
        told = info(client, {})
        ticket = json.loads(told.endpoints[0].ticket.ticket)
        aged.move_on()
        ticket["as_of"] = aged.db.now()
        del ticket["planned"]
        rows = client.do_get(fl.Ticket(json.dumps(ticket).encode())).read_all()
        assert rows.num_rows and set(rows["v"].to_pylist()) == {77}


def test_an_alteration_between_plan_and_read_is_no_error(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the server no longer knows the plan: the scan is planned again."""
    store: Any = aged.db._store
    plans: list[Any] = []
    parts = store.parts

    def altered(spec: Any) -> Any:
        planned = parts(spec)
        plans.append(planned)
        if len(plans) < 3:
            store.release_scan(planned.lease)
            aged.db.table("t").alter().add_column(f"n{len(plans)}", "int8").apply()
        return planned

    monkeypatch.setattr(store, "parts", altered)
    found = aged.table.scan().to_arrow()
    assert found.schema.names == ["id", "v", "s", "n1", "n2"] and found.num_rows == 1000 and len(plans) == 3

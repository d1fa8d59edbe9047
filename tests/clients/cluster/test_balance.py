"""Balancing real servers: tablets move, every row stays, and a second plan finds nothing to do."""

from __future__ import annotations

import threading
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.upkeep import balance
from nyala.jobs import apply_balance, check_cluster, plan_balance
from nyala.schemas.errors import ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from nyala.schemas.store.placement import Placement, Rule, TablePlacement
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.pair import Pair, Stopped

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
BY = [nyala.hash("id", buckets=8)]


def rows(first: int, last: int, n: int) -> pa.Table:
    return pa.table([pa.array(range(first, last)), pa.array([n] * (last - first))], schema=SCHEMA)


def skewed(db: Database, name: str = "t") -> Table:
    """A table of eight tablets, all of them on the first server."""
    table = db.create_table(name, SCHEMA, ["id"], partition_by=BY)
    table.insert(rows(0, 4_000, 0))
    table.maintain("flush")
    for place in table.tablets():
        if place.server == "b":
            db.move_tablet(name, place.tablet, "a", server="b")
    return table


def owners(table: Table) -> dict[str | None, int]:
    servers = [place.server for place in table.tablets()]
    return {server: servers.count(server) for server in servers}


def test_a_skewed_table_is_balanced_and_stays_so(pair: Pair) -> None:
    table = skewed(pair.db)
    before = table.scan(ordered=True).to_arrow().combine_chunks()
    plan = plan_balance(pair.db)
    assert [move.source for move in plan.moves] == ["a"] * 4 and {move.to for move in plan.moves} == {"b"}
    assert owners(table) == {"a": 8}, "a plan moves nothing"
    assert [each.tablets for each in plan.before] == [8, 0] and [each.tablets for each in plan.after] == [4, 4]
    assert plan.bytes == sum(move.bytes for move in plan.moves) > 0
    assert plan.deviation_before["bytes"] == 1 and plan.deviation_after["bytes"] < 0.2
    assert apply_balance(pair.db, plan, show="off") == []
    assert owners(table) == {"a": 4, "b": 4}
    assert plan_balance(pair.db).moves == []
    assert table.scan(ordered=True).to_arrow().combine_chunks() == before
    assert check_cluster(pair.db).faults == []


def test_rows_written_meanwhile_are_kept(cluster: Cluster) -> None:
    db = cluster.connect()
    table = skewed(db)
    stop, errors, written = threading.Event(), [], []

    def write() -> None:
        mine = cluster.connect("b").table("t")
        for number in count(1):
            if stop.is_set():
                return
            try:
                mine.upsert(rows(0, 200, number))
                mine.insert(rows(4_000 + 10 * number, 4_010 + 10 * number, number))
                written.append(number)
            except nyala.StoreError as error:
                errors.append(error)
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        apply_balance(db, plan_balance(db), show="off")
    finally:
        stop.set()
        writer.join()
    assert not errors and written, errors
    assert owners(table) == {"a": 4, "b": 4}
    found = table.scan(ordered=True).to_arrow()
    last = written[-1]
    assert found["id"].to_pylist() == list(range(4_000)) + list(range(4_010, 4_010 + 10 * last))
    assert found["n"].to_pylist()[:200] == [last] * 200
    assert check_cluster(db, checksums=True, show="off").is_healthy


@pytest.mark.parametrize("stop_at", [3, 9, 15])
def test_an_interrupted_balance_goes_on(pair: Pair, stop_at: int) -> None:
    table = skewed(pair.db)
    before = table.scan(ordered=True).to_arrow().combine_chunks()
    pair.calls.clear()
    pair.stop_at = stop_at
    with pytest.raises(Stopped):
        apply_balance(pair.db, plan_balance(pair.db), show="off")
    pair.stop_at = None
    assert sum(owners(table).values()) == 8
    apply_balance(pair.db, plan_balance(pair.db), show="off")
    assert owners(table) == {"a": 4, "b": 4} and plan_balance(pair.db).moves == []
    assert table.scan(ordered=True).to_arrow().combine_chunks() == before
    assert check_cluster(pair.db).faults == []


def test_a_tablet_that_is_gone_is_left_out(pair: Pair) -> None:
    skewed(pair.db, "t")
    skewed(pair.db, "u")
    plan = plan_balance(pair.db)
    pair.db.drop_table("u")
    skipped = apply_balance(pair.db, plan, show="off")
    assert {each.move.table for each in skipped} == {"u"} and len(skipped) == 4
    assert all("there is no table 'u'" in each.why for each in skipped)
    assert owners(pair.db.table("t")) == {"a": 4, "b": 4}


def test_it_stops_where_a_table_is_in_use_by_a_transaction(pair: Pair) -> None:
    table = skewed(pair.db)
    plan = plan_balance(pair.db)
    with pair.db.transaction() as staged:
        staged.upsert(table, rows(0, 10, 5))
        with pytest.raises(UnavailableError, match="staged"):
            apply_balance(pair.db, plan, show="off")
    assert owners(table) == {"a": 8}
    assert apply_balance(pair.db, plan, show="off") == []


def test_only_the_tables_that_are_named_move(pair: Pair) -> None:
    skewed(pair.db, "t")
    skewed(pair.db, "u")
    assert {move.table for move in plan_balance(pair.db, tables=["u"]).moves} == {"u"}
    assert len(plan_balance(pair.db, moves_max=2).moves) == 2
    with pytest.raises(NotFoundError, match="no table 'v'"):
        plan_balance(pair.db, tables=["v"])


def test_weights_and_the_rules_of_a_table_are_kept_to() -> None:
    pair = Pair("abc")
    table = skewed(pair.db)
    for place in table.tablets():
        if place.server == "c":
            pair.db.move_tablet("t", place.tablet, "a", server="c")
    servers = pair.placement.servers
    tables = {"t": TablePlacement(place=(Rule(server="c", buckets=(0,)), Rule(server="c", buckets=(1,))))}
    pair.members.placement = Placement(servers=servers, tables=tables, weights={"b": 3.0, "c": 0.0})
    apply_balance(pair.db, plan_balance(pair.db), show="off")
    assert owners(table) == {"a": 2, "b": 4, "c": 2}, "only a rule fills a server without weight"
    pair.members.placement = Placement(servers=servers, tables=tables)
    apply_balance(pair.db, plan_balance(pair.db), show="off")
    assert pair.owners("t")[:2] == ["c", "c"] and set(owners(table).values()) <= {2, 3}
    pair.members.placement = Placement(servers=servers, tables={"t": TablePlacement(servers=("b",))})
    apply_balance(pair.db, plan_balance(pair.db), show="off")
    assert owners(table) == {"b": 8}
    pair.close()


@pytest.mark.parametrize(
    ("by", "why"), [(["bytes", "rows"], "unknown measure 'rows'; known: tables, bytes"), ([], "at least one measure")]
)
def test_what_counts_is_checked(pair: Pair, by: list[str], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        plan_balance(pair.db, by=by)


def test_it_needs_several_servers_that_all_answer(pair: Pair) -> None:
    with Database(pair.stores["a"]) as one, pytest.raises(InvalidArgumentError, match="nothing to balance"):
        plan_balance(one)


def test_a_doubled_tablet_is_not_moved(pair: Pair) -> None:
    skewed(pair.db)
    doubled = next(each for each in pair.stores["b"]._catalog.table("t").version.tablets if each.elsewhere)
    doubled.elsewhere = None
    with pytest.raises(ConflictError, match="'t' is on two servers, a and b: see nyala cluster check"):
        plan_balance(pair.db)


@pytest.mark.parametrize("what", ["reads", "writes"])
def test_tablets_in_use_are_spread(pair: Pair, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Two tables, each on a server of its own; only one of them is used."""
    busy, idle = skewed(pair.db, "busy"), skewed(pair.db, "idle")
    for place in idle.tablets():
        pair.db.move_tablet("idle", place.tablet, "b", server="a")
    used = {"reads": lambda: busy.scan().to_arrow(), "writes": lambda: busy.upsert(rows(0, 4_000, 1))}[what]
    assert plan_balance(pair.db, by=[what]).moves == []
    monkeypatch.setattr(balance, "time", SimpleNamespace(sleep=lambda _: used()))
    plan = plan_balance(pair.db, by=[what], watch_seconds=1)
    assert {(move.table, move.to) for move in plan.moves} == {("busy", "b")} and len(plan.moves) == 4
    apply_balance(pair.db, plan, show="off")
    assert owners(busy) == {"a": 4, "b": 4}
    assert plan_balance(pair.db, by=[what], watch_seconds=1).moves == []

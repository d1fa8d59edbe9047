"""One of two servers is away: what needs none of its tablets goes on, and what does says which server that is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.clients.cluster import transactions
from nyala.clients.cluster.store import worst
from nyala.clients.flight import server_wait
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.statement import Statement, StatementKind
from nyala.schemas.rows.transaction import TransactionCommit
from nyala.schemas.store.description import Health
from nyala.schemas.store.maintenance import FailingWork

from .cluster import Cluster
from .pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])


class _Away:
    """In the place of a server's gateway."""

    def __getattr__(self, verb: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise nyala.UnavailableError("the server cannot be reached: connection refused")

        return refuse


@pytest.fixture
def pair() -> Pair:
    """With a table on both servers, and one that has moved to the first. The second is away."""
    made = Pair()
    for name in ("both", "here"):
        table = made.db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        table.insert({"id": range(100), "v": range(100)})
        assert {place.server for place in table.tablets()} == {"a", "b"}
    for place in made.db.table("here").tablets():
        if place.server == "b":
            made.db.move_tablet("here", place.tablet, "a", server="b")
    made.keys_here = [key for key in range(100) if made.stores["a"].scan(  # type: ignore[attr-defined]
        ScanSpec(table="both", here=True, where=f"id = {key}")).to_reader().read_all().num_rows]  # fmt: skip
    made.back = made.gateways["b"]  # type: ignore[attr-defined]
    made.gateways["b"] = _Away()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("way", ["client", "gateway"])
def test_a_query_that_does_not_need_it_is_answered(pair: Pair, way: str) -> None:
    store: Any = pair.db._store if way == "client" else pair.gateways["a"]
    assert sorted(store.tables()) == ["both", "here"]
    plan = store.plan(ScanSpec(table="here"))
    assert sum(split.rows for split in plan.splits) == 100
    assert store.scan(ScanSpec(table="here")).to_reader().read_all().num_rows == 100
    key, *others = pair.keys_here  # type: ignore[attr-defined]
    assert 0 < len(others) < 99
    found = store.scan(ScanSpec(table="both", where=f"id = {key}")).to_reader().read_all()
    assert found.to_pylist() == [{"id": key, "v": key}]
    assert store.last_change("here") > 0
    for spec in (ScanSpec(table="both"), ScanSpec(table="both", where="id IN (1, 2, 3, 4, 5, 6, 7, 8, 9)")):
        with pytest.raises(nyala.UnavailableError, match="the server 'b': the server cannot be reached"):
            store.plan(spec)


def holds(pair: Pair) -> bool:
    """Whether the tablets of the table ``both`` on the server that is there are kept in place."""
    store = pair.stores["a"]
    return store._staging.holds(store.describe_table("both").table_id)


@pytest.mark.parametrize("number", [{}, {"writer": "w", "seq": 1}], ids=["unnumbered", "numbered"])
def test_a_statement_that_reaches_some_servers_holds_no_tablets(pair: Pair, number: dict[str, Any]) -> None:
    statement = Statement(table="both", kind=StatementKind.DELETE, where="id < 9", **number)
    with pytest.raises(nyala.UnavailableError, match="the server 'b'"):
        transactions.execute(pair.members, pair.cache, statement)
    assert not holds(pair)
    assert pair.stores["a"].scan(ScanSpec(table="both", here=True, where="id < 9")).to_reader().read_all().num_rows
    pair.gateways["b"] = pair.back  # type: ignore[attr-defined]
    assert transactions.execute(pair.members, pair.cache, statement).applied == 9
    assert not holds(pair)


def test_a_version_that_reaches_some_servers_holds_no_tablets(pair: Pair) -> None:
    away, pair.gateways["b"] = pair.gateways["b"], pair.back  # type: ignore[attr-defined]
    work = pair.db.transaction(app_id="app", app_version=1)
    work.upsert("both", {"id": range(9), "v": [-1] * 9})
    pair.gateways["b"] = away
    version = TransactionCommit(transaction="another", app_id="app", app_version=1, truncate=["both"])
    with pytest.raises(nyala.UnavailableError, match="the server 'b'"):
        transactions.commit(pair.members, pair.cache, version)
    pair.stores["a"].abort_transaction(work.id)
    assert not holds(pair)


def test_a_repeated_statement_that_reaches_some_servers_lets_nothing_go(pair: Pair) -> None:
    """What an attempt before it has kept in place, since it was carried out in part."""
    statement = Statement(table="both", kind=StatementKind.DELETE, where="id < 9", writer="w", seq=1)
    away, pair.gateways["b"] = pair.gateways["b"], pair.back  # type: ignore[attr-defined]
    execute = pair.back.execute  # type: ignore[attr-defined]
    pair.back.execute = away.execute  # type: ignore[attr-defined]
    with pytest.raises(nyala.UnavailableError):
        transactions.execute(pair.members, pair.cache, statement)
    assert holds(pair)
    pair.gateways["b"] = away
    with pytest.raises(nyala.UnavailableError):
        transactions.execute(pair.members, pair.cache, statement)
    assert holds(pair)
    pair.gateways["b"], pair.back.execute = pair.back, execute  # type: ignore[attr-defined]
    assert transactions.execute(pair.members, pair.cache, statement).applied == 9
    assert not holds(pair)


def test_it_is_read_again_when_it_is_back(pair: Pair) -> None:
    """Also what it has acknowledged at a time that the others have not come to."""
    pair.gateways["b"] = pair.back  # type: ignore[attr-defined]
    both = pair.db.table("both")
    ahead = pair.stores["b"].now() + (2_000_000 << 12)
    pair.stores["b"].now(ahead)
    key = next(key for key in range(100) if key not in pair.keys_here)  # type: ignore[attr-defined]
    both.update({"id": [key], "v": [-1]})
    assert both.get(key) == {"id": key, "v": -1}
    assert both.scan().to_arrow().num_rows == 100 and -1 in both.scan().to_arrow()["v"].to_pylist()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long clients have waited for servers that are gone; nobody sleeps for it."""
    slept: list[float] = []
    monkeypatch.setattr(server_wait, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    return slept


@pytest.mark.parametrize("way", ["connected before", "connected since"])
def test_only_a_query_that_needs_it_waits_for_it(cluster: Cluster, pauses: list[float], way: str) -> None:
    db = cluster.connect()
    keys: dict[str, list[int]] = {"a": [], "b": []}
    for name in ("both", "here"):
        table = db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        table.insert({"id": range(100), "v": range(100)})
        moves = [place.tablet for place in table.tablets() if place.server == "b" and name == "here"]
        for tablet in moves:
            db.move_tablet(name, tablet, "a", server="b")
    for key in range(100):
        found = cluster.members["a"].store.scan(ScanSpec(table="both", here=True, where=f"id = {key}"))
        keys["a" if found.to_reader().read_all().num_rows else "b"].append(key)
    here, both = db.table("here"), db.table("both")
    known = [db._store.describe_table(name) for name in ("here", "both")]
    cluster.members["b"].stop()
    if way == "connected since":
        store = cluster.connect()._store
        here, both = (Table(store, each) for each in known)
    pauses.clear()
    assert here.scan().to_arrow().num_rows == here.count() == 100
    assert here.scan(ordered=True, limit=2).to_arrow()["id"].to_pylist() == [0, 1]
    assert here.scan(order_by="v DESC", limit=1).to_arrow()["v"].to_pylist() == [99]
    assert here.last_change() > 0 and "both" in here._store.tables()
    assert both.scan(where=f"id = {keys['a'][0]}").to_arrow()["v"].to_pylist() == keys["a"][:1]
    assert pauses == []
    with pytest.raises(nyala.UnavailableError, match="the server 'b'"):
        both.scan(where=f"id = {keys['b'][0]}").to_arrow()
    assert sum(pauses) > 10


def test_a_mistyped_name_does_not_wait_for_a_server_that_is_away(cluster: Cluster, pauses: list[float]) -> None:
    db = cluster.connect()
    db.create_table("homes", SCHEMA, ["id"])
    cluster.members["b"].stop()
    with pytest.raises(
        nyala.NotFoundError,
        match=r"there is no table 'hoems'.*homes.*may be on a server that could not be asked: the server 'b'",
    ):
        db.table("hoems")
    assert pauses == []
    with pytest.raises(nyala.UnavailableError, match="the server 'b'"):
        db.table("homes")
    assert sum(pauses) > 10


def test_all_are_waited_for_when_none_answers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    db = cluster.connect()
    db.create_table("t", SCHEMA, ["id"]).insert({"id": range(9), "v": range(9)})
    table = db.table("t")
    for member in cluster.members.values():
        member.stop()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if not pauses:
            for member in cluster.members.values():
                member.start()
        pauses.append(seconds)

    monkeypatch.setattr(server_wait, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    assert table.scan().count() == 9
    assert pauses


@pytest.mark.parametrize("status", ["ok", "degraded", "read_only"])
def test_the_health_of_several_servers_is_that_of_no_store(status: str) -> None:
    """A client that may not see the processes would take the next one that is worst for another store."""
    found = {name: Health(status="ok", store_uuid=name * 32) for name in "ab"}
    found["a"] = Health(status=status, reason="the disk is full", store_uuid="a" * 32)
    assert (worst(found).status, worst(found).store_uuid) == (status, "")


def test_the_health_of_several_servers_has_what_fails_on_each() -> None:
    work = FailingWork(name="flush", error="INTERNAL: a bug", failures=1, since=0.0, next_try=1.0)
    found = {name: Health(status="degraded", failing=[work]) for name in "ab"}
    assert [each.name for each in worst(found).failing] == ["a: flush", "b: flush"]

"""What a replica answers to users, by the grants that it has applied, and for how long these count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight.credentials import Credentials
from nyala.clients.flight.store import FlightStore
from nyala.engine.replica import slots as replica_module
from nyala.flight_server.security.identity import Identity
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.flight_server.stores.replica_store import ReplicaStore
from nyala.schemas.errors import ConflictError, NotFoundError, PermissionDeniedError, StoreError, UnavailableError
from nyala.schemas.rows.scan import ScanSpec
from tests.flight_server.both import ROWS, Both


class Users(Both):
    """Servers with authentication, and a user."""

    def __init__(self, folder: Path) -> None:
        tokens = folder / "tokens.json"
        self.tokens = {
            user: create_token(tokens, user, roles)[0] for user, roles in (("alice", ()), ("root", ("admin",)))
        }
        super().__init__(lambda: Security(ServeOptions(tokens=tokens)))
        self.grants = self.holder.database

    def catch_up(self) -> None:
        self.follower.catch_up()

    def client(self, *urls: str, user: str = "alice") -> FlightStore:
        return FlightStore(list(urls), retries=len(urls) > 1, credentials=Credentials(token=self.tokens[user]))


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    one = Users(tmp_path)
    for name in ("t", "hidden"):
        one.make_table(name)
    yield one
    one.close()


@pytest.fixture
def alone(users: Users) -> Iterator[FlightStore]:
    """A client of the user, of the replica alone."""
    store = users.client(users.replica_url)
    yield store
    store.close()


def test_who_may_read_a_table_reads_it_from_the_replica(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    client = users.client(users.url, users.replica_url)
    monkeypatch.setattr(users.holder.store, "scan", lambda _: pytest.fail("the holder is asked"))
    table = Database(client).table("t")
    assert table.scan(max_staleness=2).to_arrow().num_rows == table.scan(max_staleness=2).count() == ROWS
    client.close()


READS: dict[str, Callable[[Table], Any]] = {
    "columns": lambda table: table.scan(columns=["id", "v"], max_staleness=2).to_arrow(),
    "all columns": lambda table: table.scan(max_staleness=2).to_arrow(),
    "filter": lambda table: table.scan(columns=["id"], where="v = 4", max_staleness=2).to_arrow(),
    "key and filter": lambda table: table.scan(columns=["id"], where="id = 4 AND v = 4", max_staleness=2).to_arrow(),
    "count": lambda table: table.scan(where="v > 4", max_staleness=2).count(),
    "order": lambda table: table.scan(columns=["id"], order_by="v", limit=3, max_staleness=2).to_arrow(),
    "plan": lambda table: table.scan(where="v = 4", max_staleness=2).explain(),
}


@pytest.mark.parametrize("read", READS)
def test_columns_are_those_that_are_granted(users: Users, alone: FlightStore, read: str) -> None:
    users.grants.grant("read", on="t", to="alice", columns=["id"])
    users.catch_up()
    table = Database(alone).table("t")
    assert table.scan(columns=["id"], where="id < 100", max_staleness=2).to_arrow().num_rows == 50
    with pytest.raises(PermissionDeniedError, match="no grant to read on column"):
        READS[read](table)
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    READS[read](table)


def test_a_table_without_a_grant_is_hidden(users: Users, alone: FlightStore) -> None:
    now = users.replica.safe
    with pytest.raises(NotFoundError, match="the tables are: none"):
        alone.scan(ScanSpec(table="t", max_staleness=2))
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    assert alone.tables() == ["t"]
    for ask in (
        lambda: alone.scan(ScanSpec(table="hidden", max_staleness=2)),
        lambda: alone.scan(ScanSpec(table="hidden", as_of=now)),
        lambda: alone.describe_table("hidden"),
        lambda: alone.table_stats("hidden"),
        lambda: alone.tablets("hidden"),
    ):
        with pytest.raises(NotFoundError, match="the tables are: t"):
            ask()
    assert [(each.table, str(each.privilege)) for each in alone.grants()] == [("t", "read")]


def test_a_ticket_of_an_administrator_is_none_for_others(users: Users, alone: FlightStore) -> None:
    users.grants.grant("read", on="t", to="alice", columns=["id"])
    users.catch_up()
    root = users.client(users.replica_url, user="root")
    parts = root.parts(ScanSpec(table="t", max_staleness=2)).parts
    with pytest.raises(PermissionDeniedError):
        list(alone.read_part(parts[0]))
    assert sum(batch.num_rows for part in parts for batch in root.read_part(part)) == ROWS
    root.close()


def test_a_grant_follows_a_table_to_its_new_name(users: Users, alone: FlightStore) -> None:
    users.grants.grant("read", on="t", to="alice")
    users.grants.table("t").alter().rename("other").apply()
    users.catch_up()
    assert alone.tables() == ["other"]
    assert Database(alone).table("other").scan(max_staleness=2).count() == ROWS


@pytest.mark.parametrize("method", ["plan", "table_stats"])
def test_a_name_means_the_table_whose_grants_were_checked(
    users: Users, alone: FlightStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    known = Database(alone).table("t")
    read = getattr(ReplicaStore, method)

    def renames(store: ReplicaStore, *given: Any) -> Any:
        monkeypatch.undo()
        for name, to in (("t", "old"), ("hidden", "t")):
            users.grants.table(name).alter().rename(to).apply()
        users.catch_up()
        return read(store, *given)

    monkeypatch.setattr(ReplicaStore, method, renames)
    with pytest.raises(ConflictError, match="table 't' was renamed or dropped"):
        known.stats() if method == "table_stats" else known.scan(max_staleness=2).explain()


def test_a_revoked_grant_counts_no_longer_than_a_replica_may_be_behind(
    users: Users, alone: FlightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "PATIENCE_SECONDS", 0.05)
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    table, snapshot = Database(alone).table("t"), users.replica.safe
    parts = alone.parts(ScanSpec(table="t", max_staleness=2)).parts
    assert table.scan(max_staleness=60).count() == ROWS
    users.grants.revoke("read", on="t", to="alice")
    asks: list[Callable[[], Any]] = [
        table.scan(max_staleness=60).count,
        table.scan(as_of=snapshot).count,
        lambda: list(alone.read_part(parts[0])),
        lambda: table.scan(max_staleness=60).explain(),
        alone.tables,
    ]
    for ask in asks[:2]:
        assert ask(), "it was revoked a moment ago"
    with pytest.raises(UnavailableError, match="slots of the log behind"):
        table.scan(max_staleness=0).count()
    users.lag = 5.1
    for ask in asks:
        with pytest.raises(UnavailableError, match="is a standby") as refused:
            ask()
        assert refused.value.locations == [users.url]
    users.lag = 0.0
    users.catch_up()
    for ask in asks[:-1]:
        with pytest.raises(NotFoundError):
            ask()
    assert alone.tables() == []


@pytest.mark.parametrize(("end", "error"), [("catch up", NotFoundError), ("fall behind", UnavailableError)])
def test_a_running_scan_ends_with_its_grant(users: Users, end: str, error: type[StoreError]) -> None:
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    store = users.replica_served.store_of(Identity("alice"))
    batches = store.scan(ScanSpec(table="t", max_staleness=2)).batches
    next(batches)
    users.grants.revoke("read", on="t", to="alice")
    next(batches)
    if end == "catch up":
        users.catch_up()
    else:
        users.lag = 5.1
    with pytest.raises(error):
        next(batches)


def test_grants_are_those_of_after_the_snapshot_was_reached(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica learns of a revocation while a scan waits for what was acknowledged before."""
    users.grants.grant("read", on="t", to="alice")
    users.catch_up()
    users.grants.revoke("read", on="t", to="alice")
    store, snapshot = users.replica_served.store_of(Identity("alice")), users.replica.snapshot
    monkeypatch.setattr(users.replica, "snapshot", lambda seconds: (users.catch_up(), snapshot(seconds))[1])
    for ask in (store.scan, store.plan):
        with pytest.raises(NotFoundError):
            ask(ScanSpec(table="t", max_staleness=0))


def test_what_a_replica_does_not_answer_goes_to_the_holder_whoever_asks(users: Users, alone: FlightStore) -> None:
    """It may not know yet what was granted a moment ago."""
    for ask in (
        lambda: alone.scan(ScanSpec(table="t")),
        lambda: alone.parts(ScanSpec(table="t")),
        lambda: alone.maintain("t", "flush"),
        lambda: alone.now(),
        lambda: alone.drop_table("t"),
    ):
        with pytest.raises(UnavailableError, match="is a standby") as refused:
            ask()
        assert refused.value.locations == [users.url]
    assert alone.health().status == "ok" and alone.health().store_uuid == users.store_uuid
    with pytest.raises(PermissionDeniedError):
        alone.metrics()


def test_an_administrator_reads_everything(users: Users) -> None:
    root = users.client(users.replica_url, user="root")
    assert Database(root).tables() == ["hidden", "t"]
    assert Database(root).table("t").scan(max_staleness=2).count() == ROWS
    root.close()

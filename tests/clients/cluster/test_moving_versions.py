"""The versions of applications that a tablet has stay with it when it moves: it gets no version twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.servers import Servers
from nyala.clients.cluster.store import PlacedStore
from nyala.schemas.errors import UnavailableError
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.rows.transaction import TransactionResult
from nyala.schemas.store.placement import Placement
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
COUNT = 200


@pytest.fixture
def three() -> Iterator[Pair]:
    """New tables are on the first two."""
    made = Pair("abc", placed_on="ab")
    yield made
    made.close()


@pytest.fixture
def before(three: Pair) -> Iterator[Database]:
    """The tables for clients that do not know the third server yet."""
    servers = {name: three.placement.servers[name] for name in "ab"}
    known = {name: cast(StoreService, three.members.store(name)) for name in "ab"}
    members = Servers(Placement(servers=servers, tables=three.placement.tables), known=known)
    yield Database(cast(StoreService, PlacedStore(members)))
    members.close()


def made(pair: Pair) -> Table:
    return pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])


def attempt(db: Database, version: int, truncates: bool = False) -> TransactionResult:
    written = db.transaction(app_id="stream", app_version=version)
    if truncates:
        written.truncate("t")
    written.upsert("t", pa.table({"id": range(COUNT), "n": [version] * COUNT}, schema=SCHEMA))
    try:
        return written.commit()
    except UnavailableError:
        written.abort()  # as if its staged rows had expired
        raise


def move(pair: Pair, source: str, target: str) -> None:
    number = next(place.tablet for place in pair.db.table("t").tablets() if place.server == source)
    pair.db.move_tablet("t", number, target, server=source)


@pytest.mark.parametrize("truncates", [False, True])
def test_a_version_is_not_applied_again_by_a_server_that_joined_later(
    three: Pair, before: Database, truncates: bool
) -> None:
    """A stream stops after its commit, the cluster grows, and the stream repeats its last batch."""
    table = made(three)
    attempt(before, 6)
    assert not attempt(before, 7).skipped
    table.update_where({"n": "70"}, "true")  # others go on
    move(three, "a", "c")
    three.crash("c")
    assert attempt(three.db, 7, truncates).skipped
    assert attempt(three.db, 6, truncates).skipped
    assert table.count("n = 70") == table.count() == COUNT
    move(three, "c", "b")
    assert attempt(three.db, 7, truncates).skipped
    assert not attempt(three.db, 8, truncates).skipped
    assert table.count("n = 8") == table.count() == COUNT


def test_a_version_that_came_with_a_tablet_concerns_no_other(
    three: Pair, before: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(three)

    def away(_: object) -> None:
        raise UnavailableError("nobody answers")

    monkeypatch.setattr(three.gateways["b"], "commit_transaction", away)
    with pytest.raises(UnavailableError, match="nobody answers"):
        attempt(before, 7)
    monkeypatch.undo()
    for store in three.stores.values():  # as if it had all expired
        for name in list(store._staging._transactions):
            store.abort_transaction(name)
    there = table.count("n = 7")
    assert 0 < there < COUNT
    table.update_where({"n": "70"}, "true")
    number = len([place for place in table.tablets() if place.server == "a"])
    for _ in range(number):
        move(three, "a", "b")
    assert not attempt(before, 7).skipped
    assert (table.count("n = 70"), table.count()) == (there, COUNT)


def test_versions_survive_a_log_that_was_freed(three: Pair, before: Database) -> None:
    table = made(three)
    for version in range(5):
        attempt(before, version)
    table.update_where({"n": "70"}, "true")
    move(three, "a", "c")
    three.db.create_table("other", SCHEMA, ["id"]).insert({"id": [1], "n": [1]})
    for name in "ac":
        three.stores[name].maintain("t", "flush")
        three.stores[name]._log_freeing.free()
        three.crash(name)
    move(three, "c", "b")
    move(three, "a", "c")
    assert attempt(three.db, 4).skipped
    assert table.count("n = 70") == COUNT


def test_commits_show_no_application_as_a_writer(three: Pair) -> None:
    made(three)
    attempt(three.db, 7)
    assert set(three.db.commits("t")["writer"].to_pylist()) == {None}

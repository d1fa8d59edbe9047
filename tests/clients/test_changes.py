"""The change feed as users ask for it, in this process and over Flight."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.store import Store
from nyala.schemas.cells.timestamp import datetime_of


def rows(table: Table, since: Any, until: Any = None, **options: Any) -> list[dict[str, Any]]:
    return table.changes(since, until, ordered=True, **options).to_arrow().to_pylist()


def test_net_changes_and_every_change(homes: Table) -> None:
    start = homes.insert({"id": [1, 2, 3], "city": ["Oslo", "Bergen", None], "cents": [Decimal("1.25"), None, None]})
    homes.maintain("flush")
    homes.upsert({"id": [2, 4], "city": ["Bergen", "Moss"]})
    homes.delete({"id": [3]})
    homes.insert({"id": [5], "city": ["Ski"]})
    homes.delete({"id": [5]})
    last = homes.update({"id": [1], "cents": [Decimal("7.50")]})
    columns = ["id", "city", "cents"]
    net = rows(homes, start.timestamp, columns=columns, before=True)
    assert [(row["_op"], row["id"]) for row in net] == [("update", 1), ("update", 2), ("delete", 3), ("insert", 4)]
    assert net[0] == {
        "_op": "update",
        "_timestamp": last.timestamp,
        **{"id": 1, "city": "Oslo", "cents": Decimal("7.50")},
        **{"_before_id": 1, "_before_city": "Oslo", "_before_cents": Decimal("1.25")},
    }
    assert [net[3][f"_before_{name}"] for name in columns] == [None, None, None]
    every = rows(homes, start.timestamp, columns=["id"], every=True)
    assert [(row["_op"], row["id"]) for row in every[3:]] == [("insert", 4), ("insert", 5), ("delete", 5)]
    assert rows(homes, start.timestamp, where="city = 'Moss'", columns=["city"])[0]["_op"] == "insert"


def test_the_schema_is_the_same_with_and_without_rows(db: Database, homes: Table) -> None:
    names = ["_op", "_timestamp", "id", "city", "_before_id", "_before_city"]
    since = db.now()
    feed = homes.changes(since, columns=["id", "city"], before=True)
    assert feed.to_arrow().schema.names == feed.to_reader().schema.names == names
    homes.insert({"id": [1], "city": ["Oslo"]})
    schema = homes.changes(since, columns=["id", "city"], before=True).to_arrow().schema
    assert schema == feed.to_arrow().schema
    assert (schema.field("_op").type, schema.field("_timestamp").type) == (pa.string(), pa.int64())
    assert [schema.field(name).nullable for name in names] == [False, False, False, True, True, True]
    assert homes.changes(since).to_arrow().schema.names[2:] == homes.schema.names


def test_calls_chain_by_the_snapshot(db: Database, homes: Table) -> None:
    start = since = db.now()
    seen = []
    for number in range(4):
        homes.upsert({"id": [number, 0], "small": [number, number]})
        feed = homes.changes(since, every=True, ordered=True)
        homes.upsert({"id": [99], "small": [number]})
        part = feed.to_arrow()
        assert part.equals(feed.to_arrow()), "it repeats: its end is fixed when it is asked for"
        assert feed.snapshot is not None and feed.count() == part.num_rows
        seen += part.to_pylist()
        since = feed.snapshot
    seen += rows(homes, since, every=True)
    assert sorted(seen, key=lambda row: (row["id"], row["_timestamp"])) == rows(homes, start, every=True)
    assert [row["_op"] for row in rows(homes, since)] == ["update"]


def test_a_scan_tells_its_snapshot(homes: Table) -> None:
    done = homes.insert({"id": [1]})
    assert homes.scan().snapshot is None
    assert homes.scan(as_of=done.timestamp).snapshot == done.timestamp
    assert homes.changes(done.timestamp, done.timestamp).snapshot == done.timestamp
    now = homes.changes(done.timestamp).snapshot
    assert now is not None and now >= done.timestamp


def test_moments_are_taken_in_every_form(homes: Table) -> None:
    first = homes.insert({"id": [1]}).timestamp
    homes.insert({"id": [2]})
    moment = datetime_of(first)
    for since in (first, moment, moment.isoformat()):
        assert [row["id"] for row in rows(homes, since)] == [2]


def test_what_cannot_be_is_refused_with_its_code(homes: Table) -> None:
    now = homes.insert({"id": [1]}).timestamp
    with pytest.raises(nyala.SnapshotTooOldError, match="since"):
        rows(homes, 0)
    with pytest.raises(nyala.InvalidArgumentError, match="future"):
        rows(homes, now + (3600 * 1_000_000 << 12))
    with pytest.raises(nyala.InvalidArgumentError, match=r"until .* is before since"):
        rows(homes, now, now - 1)
    with pytest.raises(nyala.InvalidArgumentError, match="since 'yesterday' is not an ISO"):
        rows(homes, "yesterday")
    with pytest.raises(nyala.InvalidArgumentError, match="town"):
        rows(homes, now, columns=["town"])


def test_explain_says_where_nothing_changed(homes: Table) -> None:
    start = homes.insert({"id": [1]}).timestamp
    homes.maintain("flush")
    homes.insert({"id": [2]})
    plan = homes.changes(start).explain()
    assert (plan["since"], plan["rowsets_unchanged"], plan["rows_to_read"]) == (start, 1, 1)


def test_a_client_of_any_language_asks_by_json(store: Store, url: str, make_table: Callable[[Database], Table]) -> None:
    homes = make_table(Database(store))
    since = store.now()
    homes.insert({"id": [1, 2], "city": ["Oslo", None]})
    client = fl.connect(url)
    asked = {"table": "homes", "columns": ["id"], "changes": {"since": since, "every": True}}
    info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(asked)))
    assert info.schema.names == ["_op", "_timestamp", "id"]
    snapshot = json.loads(info.app_metadata)["snapshot"]
    homes.delete({"id": [1]})
    (endpoint,) = info.endpoints
    pinned = client.do_get(endpoint.ticket).read_all()
    assert pinned["_op"].to_pylist() == ["insert", "insert"]
    own = client.do_get(fl.Ticket(json.dumps({"table": "homes", "changes": {"since": snapshot}}))).read_all()
    assert own.select(["_op", "id"]).to_pylist() == [{"_op": "delete", "id": 1}]
    with pytest.raises(fl.FlightError, match="INVALID_ARGUMENT"):
        client.do_get(fl.Ticket(b'{"table": "homes", "changes": {"from": 1}}')).read_all()
    client.close()

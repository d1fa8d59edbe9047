"""What a client does when tablets are not where it knew them to be, and transactions over servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.table import Table
from nyala.clients.cluster import reading
from nyala.clients.cluster.store import PlacedStore
from nyala.clients.flight import staging_put
from nyala.clients.jobs.files.load_job import load
from nyala.engine.table.table_version import TableVersion
from nyala.schemas.errors import NotFoundError, UnavailableError, WrongServerError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def table(cluster: Cluster) -> Table:
    made = cluster.connect().create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=6)])
    made.delete_ignore({"id": range(100)})  # so that the client knows where the tablets are, and all are empty
    return made


def rows(count: int, n: int = 1) -> pa.Table:
    return pa.table([pa.array(np.arange(count)), pa.array(np.full(count, n))], schema=SCHEMA)


def assign(cluster: Cluster, owners: dict[int, str]) -> None:
    """Let servers have other buckets than they had, all of them empty."""
    for name, member in cluster.members.items():
        found = member.store._catalog.table("t")
        for tablet in found.tablets:
            owner = owners.get(tablet.partition.buckets[0], tablet.elsewhere or name)
            tablet.elsewhere = None if owner == name else owner
        found.version = TableVersion(found.schema, found.options, found.tablets, found.version.partitions)


def test_writes_follow(cluster: Cluster, table: Table) -> None:
    assign(cluster, dict.fromkeys(range(6), "a"))
    many = pa.concat_tables([rows(2000), rows(2000, 2), rows(2000, 3), rows(2000, 4), rows(2000, 5)])
    answers = list(table._store.write_all(WriteCommand(table="t"), many.to_batches()))
    assert [(answer.rows, answer.applied) for answer in answers] == [(2000, 2000)] * 5
    assert table.scan().to_arrow().sort_by("id") == rows(2000, 5)
    assert cluster.members["b"].store.table_stats("t").live_rows == 0


def test_errors_keep_their_places_when_writes_follow(cluster: Cluster, table: Table) -> None:
    table.insert(rows(10))
    assign(cluster, {})
    fresh = cluster.connect().table("t")
    before = fresh._store._cache.of("t")  # type: ignore[attr-defined]
    wrong = type(before)(before.description, before.router, before.names, 1 - before.owners)
    fresh._store._cache._known["t"] = wrong  # type: ignore[attr-defined]
    answer = fresh.write(rows(20), "insert", on_error="return")
    assert [error.row for error in answer.errors] == list(range(10))
    assert answer.applied == 10


def test_point_reads_follow(cluster: Cluster, table: Table) -> None:
    assign(cluster, dict.fromkeys(range(6), "b"))
    table.insert(rows(50))
    other = cluster.connect().table("t")
    assert other.get(3) == {"id": 3, "n": 1}
    known = other._store._cache.of("t")  # type: ignore[attr-defined]
    wrong = replace(known, owners=1 - known.owners)
    other._store._cache._known["t"] = wrong  # type: ignore[attr-defined]
    assert other.get(3) == {"id": 3, "n": 1}


def test_a_tablet_that_is_nowhere_or_twice_stops_scans(cluster: Cluster, table: Table) -> None:
    table.insert(rows(100))
    bucket = {place.partition.buckets[0] for place in table.tablets() if place.server == "a"}.pop()
    store = cluster.members["b"].store._catalog.table("t")
    for owner in (None, "b"):  # b says that it has it too; nobody has it
        for member, elsewhere in ((cluster.members["b"], owner and "a"), (cluster.members["a"], owner)):
            found = member.store._catalog.table("t")
            for tablet in found.tablets:
                if tablet.partition.buckets[0] == bucket:
                    tablet.elsewhere = elsewhere
            found.version = TableVersion(found.schema, found.options, found.tablets, found.version.partitions)
        with pytest.raises(UnavailableError):
            table.scan().to_arrow()
        with pytest.raises(UnavailableError):
            cluster.connect().table("t").upsert(rows(100))
    assert store is not None


def test_a_scan_that_began_on_other_tablets_is_planned_again(cluster: Cluster, table: Table) -> None:
    plan = cluster.members["a"].store.plan(ScanSpec(table="t", here=True))
    assign(cluster, dict.fromkeys(range(6), "b"))
    table.insert(rows(100))
    with pytest.raises(WrongServerError, match="plan"):
        cluster.members["a"].store.scan(ScanSpec(table="t", here=True, tablets_here=plan.tablets_here))
    assert table.scan().count() == 100


def let_history_go(cluster: Cluster, table: Table) -> None:
    table.update({"id": range(100), "n": [77] * 100})
    time.sleep(1.1)  # all the history that there is
    for op in ("flush", "flush_deltas", "major_compact", "compact", "gc"):
        table.maintain(op)


def test_a_planned_scan_of_all_servers_keeps_its_snapshot(cluster: Cluster) -> None:
    db = cluster.connect()
    table = db.create_table("t", SCHEMA, ["id"], [nyala.hash("id", buckets=6)], history_max_age_seconds=1)
    table.insert(rows(100))
    store: Any = table._store
    unordered, ordered = store._planned(ScanSpec(table="t"))[0], store._planned(ScanSpec(table="t", ordered=True))[0]
    with fl.connect(cluster.members["a"].location) as client:
        told = client.get_flight_info(fl.FlightDescriptor.for_path("t"))
        let_history_go(cluster, table)
        found = pa.Table.from_batches(list(reading.unordered(store.servers, unordered)))
        assert sorted(found["id"].to_pylist()) == list(range(100)) and set(found["n"].to_pylist()) == {1}
        found = pa.Table.from_batches(list(store._in_order(ordered, ["id"], SCHEMA)))
        assert found["id"].to_pylist() == list(range(100)) and set(found["n"].to_pylist()) == {1}
        seen: list[int] = []
        for part in told.endpoints:
            with fl.connect(part.locations[0].uri if part.locations else cluster.members["a"].location) as there:
                seen += there.do_get(part.ticket).read_all()["n"].to_pylist()
        assert seen == [1] * 100
    table.scan(limit=3).to_arrow()
    coming: Any = iter(table.scan())
    next(coming)
    coming.close()
    assert [len(member.store._planned) for member in cluster.members.values()] == [0, 0]


def test_a_long_part_of_a_transaction_is_committed_on_all(
    cluster: Cluster, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", 500)
    store = table._store
    command = WriteCommand(table="t", stage=Stage(transaction="x", part="p"))
    pieces = [StagedBatch(piece) for piece in rows(1000).to_batches(max_chunksize=50)]
    staged = store.stage(command, [*pieces[:3], *(StagedBatch(each.batch) for each in pieces[3:])])
    assert staged.rows == 1000 and len(staged.parts) > 1
    assert store.commit_transaction(TransactionCommit(transaction="x", parts=staged.parts)).applied == 1000
    assert table.scan().count() == 1000


def test_transactions_reach_all(cluster: Cluster, table: Table) -> None:
    store = table._store
    command = WriteCommand(table="t", stage=Stage(transaction="x", part="p"))
    delete = rows(100).select(["id"]).slice(0, 10).to_batches()[0]
    (first,) = rows(1000).to_batches()
    staged = store.stage(command, [StagedBatch(first)])
    assert staged.rows == 1000
    store.stage(
        WriteCommand(table="t", op=Operation.DELETE, stage=Stage(transaction="x", part="q")), [StagedBatch(delete)]
    )
    assert table.scan().count() == 0
    asked = TransactionCommit(transaction="x", parts=["p", "q"], app_id="app", app_version=1)
    done = store.commit_transaction(asked)
    assert (done.applied, done.skipped) == (1010, False)
    assert table.scan().count() == 990
    assert store.commit_transaction(asked).applied == 1010
    assert store.commit_transaction(TransactionCommit(transaction="y", app_id="app", app_version=1)).skipped
    again = TransactionCommit(transaction="z", truncate=["t"])
    assert store.commit_transaction(again).truncated == 990
    assert table.scan().count() == 0


def test_a_part_that_breaks_leaves_nothing(cluster: Cluster, table: Table) -> None:
    def broken():
        yield StagedBatch(rows(100).to_batches()[0])
        raise RuntimeError("the reader broke")

    command = WriteCommand(table="t", stage=Stage(transaction="x", part="p"))
    with pytest.raises(RuntimeError, match="reader broke"):
        table._store.stage(command, broken())
    with pytest.raises(NotFoundError):
        table._store.commit_transaction(TransactionCommit(transaction="x", parts=["p"]))


WHOLE: list[dict[str, Any]] = [
    {"ordered": True},
    {"ordered": True, "columns": ["v"]},
    {"order_by": "v desc", "columns": ["id"]},
    {"where": "v >= 0", "order_by": "v", "limit": 50},
]


@pytest.mark.parametrize("how", WHOLE, ids=str)
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_scan_in_order_reads_no_other_table_of_its_name(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], is_made_anew: bool
) -> None:
    """Where the servers have forgotten what was planned, as after a restart."""
    levels = [nyala.hash("id", buckets=4)]
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    rows = {"id": range(100), "v": range(100)}
    pair.db.create_table("t", schema, ["id"], levels).insert(rows)
    assert pair.db.table("t").scan(**how).to_arrow().num_rows == how.get("limit", 100)
    assert not any(len(store._planned) for store in pair.stores.values())
    whole = PlacedStore._streams

    def altered(store: PlacedStore, plan: Any) -> Any:
        if is_made_anew:
            pair.db.drop_table("t")
            pair.db.create_table("t", schema, ["id"], levels).insert(rows)
        else:
            pair.db.table("t").alter().drop_column("v").add_column("v", "string").apply()
        for each in pair.stores.values():
            each._planned.clear()
        return whole(store, plan)

    monkeypatch.setattr(PlacedStore, "_streams", altered)
    with pytest.raises(nyala.ConflictError, match="plan the scan again"):
        pair.db.table("t").scan(**how).to_arrow()


@pytest.mark.parametrize("how", [{}, {"limit": 15_000}, {"columns": ["n"]}, {"limit": 0}], ids=str)
def test_a_scan_in_order_goes_on_when_a_tablet_moves_while_its_server_restarts(
    cluster: Cluster, table: Table, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    table.insert(pa.table({"id": range(20_000), "n": range(20_000)}))
    expected = table.scan(ordered=True, **how).to_arrow()
    started, count = PlacedStore._parts, 0

    def lost(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches).slice(0, 700)
        raise WrongServerError("tablets have moved between servers meanwhile; plan the scan again")

    def parts(store: PlacedStore, plan: Any) -> dict[str, Iterator[pa.RecordBatch]]:
        nonlocal count
        count += 1
        streams = started(store, plan)
        return {name: lost(each) if count < 3 and name == "b" else each for name, each in streams.items()}

    monkeypatch.setattr(PlacedStore, "_parts", parts)
    assert table.scan(ordered=True, **how).to_arrow() == expected
    assert count == (0 if how.get("limit") == 0 else 3)


def test_refused_rows_are_named_as_they_were_given(
    cluster: Cluster, table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each server counts the rows that it has, in parts that are its own."""
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", 500)
    taken = [3, 77, 250, 251, 998]
    table.insert({"id": taken, "n": [0] * 5})
    transaction = nyala.Transaction(table._store)
    transaction.write("t", rows(100).slice(4, 50), "upsert")
    transaction.write("t", rows(1000), "insert")
    with pytest.raises(nyala.RowErrors) as refused:
        transaction.commit()
    errors = refused.value.result.errors
    assert [error.row for error in sorted(errors, key=lambda error: error.row)] == sorted({*taken, *range(4, 54)})
    assert {(getattr(error, "part"), getattr(error, "server")) for error in errors} == {("2", None)}  # noqa: B009
    transaction.abort()
    for number in range(2):
        pq.write_table(rows(1000).slice(500 * number, 500), tmp_path / f"{number}.parquet", row_group_size=100)
    before = table.count()
    made = load(cluster.connect(), "t", tmp_path, op="insert", atomic=True)
    assert made.applied == table.count() - before, "on the other server, if none of its rows was refused"
    names = [(error.file.rpartition("/")[2], error.row) for error in made.errors]
    assert {("0.parquet", 3), ("0.parquet", 77), ("1.parquet", 498)} <= set(names)


def test_an_atomic_load_counts_what_other_servers_took(cluster: Cluster, table: Table, tmp_path: Path) -> None:
    table.insert({"id": [3], "n": [0]})
    pq.write_table(rows(1000), tmp_path / "rows.parquet")
    made = load(cluster.connect(), "t", tmp_path, op="insert", atomic=True)
    assert [(error.row, error.code) for error in made.errors] == [(3, "ALREADY_PRESENT")]
    assert made.applied == table.count() - 1 > 0

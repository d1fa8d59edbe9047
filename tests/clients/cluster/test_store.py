"""A database over two servers, by the same calls as one over a single store: compared with one in this process."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.reading import followed
from nyala.clients.cluster.servers import Servers
from nyala.clients.flight.store import FlightStore
from nyala.schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    RowErrors,
    StoreError,
    UnavailableError,
    WrongServerError,
)
from nyala.schemas.protocol.service import ScanStream
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.alter import Alteration
from nyala.schemas.table.table import TableDefinition
from tests.clients.cluster.cluster import Cluster

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        ("price", pa.float64()),
        ("fare", pa.decimal128(10, 2)),
        ("seen", pa.timestamp("us")),
    ]
)
KEY = ["id", "host"]
COUNT = 5_000


def levels() -> list:
    return [nyala.hash("host", buckets=3), nyala.range("id", bounds=[(None, 1000), (1000, 4000), (4000, 9000)])]


def rows(first: int = 0, count: int = COUNT, price: float = 0.5) -> pa.Table:
    ids = np.arange(first, first + count)
    return pa.table(
        [
            pa.array(ids),
            pa.array([f"host {i % 37}" for i in ids]),
            pa.array(ids * price, mask=ids % 5 == 0),
            pa.array([None if i % 7 == 0 else i for i in ids.tolist()])
            .cast(pa.decimal128(21, 2))
            .cast(pa.decimal128(10, 2)),
            pa.array(ids * 1_000_000).cast(pa.timestamp("us")),
        ],
        schema=SCHEMA,
    )


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Table]:
    with nyala.open(tmp_path / "single", maintenance="off") as db:
        yield db.create_table("t", SCHEMA, KEY, partition_by=levels())


@pytest.fixture
def db(cluster: Cluster) -> Database:
    return cluster.connect()


@pytest.fixture
def table(db: Database) -> Table:
    return db.create_table("t", SCHEMA, KEY, partition_by=levels())


def by_key(found: pa.Table) -> pa.Table:
    return found.sort_by([(name, "ascending") for name in KEY])


def both(table: Table, single: Table, act) -> None:
    """Do the same to both, with the same outcome."""
    outcomes = []
    for each in (table, single):
        try:
            found = act(each)
            outcomes.append((found.rows, found.applied, found.ignored, found.error_count, found.errors))
        except StoreError as error:
            outcomes.append((type(error), error.code))
    assert outcomes[0] == outcomes[1]
    assert by_key(table.scan().to_arrow()) == by_key(single.scan().to_arrow())


def test_every_server_has_a_part(cluster: Cluster, table: Table) -> None:
    table.insert(rows())
    live = [member.store.table_stats("t").live_rows for member in cluster.members.values()]
    assert sum(live) == COUNT
    assert min(live) > COUNT // 4
    assert table.stats()["live_rows"] == COUNT
    assert len(table.stats()["tablets"]) == 9


def test_writes_and_their_errors(table: Table, single: Table) -> None:
    both(table, single, lambda t: t.insert(rows()))
    both(table, single, lambda t: t.write(rows(2500, 4000), "insert", on_error="return"))
    both(table, single, lambda t: t.upsert(rows(100, 300, 7.0)))
    both(table, single, lambda t: t.write(rows(4900, 300).select([*KEY, "price"]), "update", on_error="return"))
    both(table, single, lambda t: t.update_ignore(rows(6400, 300)))
    both(table, single, lambda t: t.write(rows(3000, 6500).select(KEY), "delete", on_error="return"))
    both(table, single, lambda t: t.write(rows(8990, 20), "upsert", on_error="return"))  # beyond the last range
    both(table, single, lambda t: t.write(rows(0, 10).select(["id", "price"]), "upsert"))  # lacks a part of the key
    nulls = pa.table({"id": [1, None, 3], "host": ["a", "b", None]})
    both(table, single, lambda t: t.write(nulls, "upsert", on_error="return"))
    both(
        table, single, lambda t: t.write(pa.table({"id": [1.5, 2.0], "host": ["a", "b"]}), "upsert", on_error="return")
    )
    both(table, single, lambda t: t.write(rows(50, 0), "upsert"))
    both(table, single, lambda t: t.write(rows(200, 3000), "upsert", commit="stream"))


def test_cells_that_were_cut_count_on_all_servers(db: Database) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    options = {name: nyala.ColumnOptions(type="varchar(5)") for name in ("name", "note")}
    by_name = [nyala.hash("name", buckets=8)]
    table = db.create_table("cut", schema, ["id", "name"], partition_by=by_name, column_options=options)
    ids = range(100)
    data = {"id": ids, "name": [f"{n}" * 9 for n in ids], "note": ["fits", "is too long"] * 50}
    assert table.insert(data).truncated == 150
    assert table.upsert([{"id": 1, "name": "111111", "note": "too long"}]).truncated == 2
    with db.transaction() as work:
        work.upsert(table, data)
    assert work.result is not None and work.result.cells_truncated == 150
    assert table.update_where({"note": "'another one'"}, "id < 30").truncated == 30
    assert table.count() == 100


def test_a_load_of_several_batches(table: Table) -> None:
    batches = pa.Table.from_batches([b for first in range(0, 8000, 500) for b in rows(first, 500).to_batches()])
    assert table.upsert(batches).applied == 8000
    assert table.scan().count() == 8000
    with pytest.raises(RowErrors) as caught:
        table.insert(pa.concat_tables([rows(8000, 900), rows(7999, 1)]))
    assert [error.row for error in caught.value.result.errors] == [900]


def test_scans(table: Table, single: Table) -> None:
    for each in (table, single):
        each.insert(rows())
        each.delete(rows(1000, 500).select(KEY))
    for where in (None, "id < 700", "host = 'host 5' AND id > 30", "price IS NULL", "id = 77"):
        for columns in (None, ["price", "id"], []):
            ours, theirs = (each.scan(columns, where).to_arrow() for each in (table, single))
            assert ours.num_rows == theirs.num_rows
            assert ours.schema == theirs.schema
            ordered = [each.scan(columns, where, ordered=True).to_arrow() for each in (table, single)]
            assert ordered[0].combine_chunks() == ordered[1].combine_chunks()
        assert table.scan(where=where).count() == single.scan(where=where).count()
    assert by_key(table.scan().to_arrow()) == by_key(single.scan().to_arrow())
    for limit in (0, 1, 700):
        assert table.scan(limit=limit).to_arrow().num_rows == limit
        top = [each.scan(ordered=True, limit=limit, columns=["host"]).to_arrow() for each in (table, single)]
        assert top[0].combine_chunks() == top[1].combine_chunks()


def test_aggregates(table: Table, single: Table) -> None:
    measures = {
        "n": ("*", "count"),
        "priced": ("price", "count"),
        "mean": ("price", "avg"),
        "ids": ("id", "sum"),
        "fares": ("fare", "sum"),
        "fare": ("fare", "avg"),
        "first": ("host", "min"),
        "last": ("seen", "max"),
    }
    for each in (table, single):
        each.insert(rows())
    for where in (None, "id < 10", "id < -5"):
        ours, theirs = (each.scan(where=where).aggregate(measures) for each in (table, single))
        assert ours.schema == theirs.schema
        assert [
            pytest.approx(value) if isinstance(value, float) else value for value in ours.to_pylist()[0].values()
        ] == [*theirs.to_pylist()[0].values()]
        for group_by in (["host"], ["fare"]):
            groups = [
                each.scan(where=where)
                .aggregate({"n": ("*", "count"), "top": ("id", "max")}, group_by)
                .sort_by(group_by[0])
                for each in (table, single)
            ]
            assert groups[0].combine_chunks() == groups[1].combine_chunks()
    assert table.scan().aggregate({}, ["host"]).num_rows == 37


def test_point_reads(table: Table) -> None:
    table.insert(rows())
    row = table.get((4321, f"host {4321 % 37}"))
    assert row is not None
    assert row["price"] == 4321 * 0.5
    assert table.get((4321, "host 0")) is None
    asked = rows(4990, 20).select(KEY).to_batches()[0]
    backwards = asked.take(pa.array(range(19, -1, -1)))
    found = table._store.get("t", backwards)
    assert found["id"].to_pylist() == list(range(4999, 4989, -1))


def test_changes_chain(table: Table) -> None:
    start = table._store.now()
    table.insert(rows())
    middle = table._store.now()
    table.delete(rows(0, 100).select(KEY))
    table.upsert(rows(4000, 2000, 3.0))
    first = table.changes(start, middle).to_arrow()
    assert first.num_rows == COUNT
    second = table.changes(middle, ordered=True).to_arrow()
    assert second["id"].to_pylist() == [*range(100), *range(4000, 6000)]
    assert second["_op"].to_pylist() == ["delete"] * 100 + ["update"] * 1000 + ["insert"] * 1000
    assert table.last_change() > middle
    assert table.last_change() == max(second["_timestamp"].to_pylist())


def test_one_snapshot_over_both_clocks(cluster: Cluster, table: Table) -> None:
    """A server whose clock is behind follows before it is read: no write falls below a snapshot that was taken."""
    ahead, behind = cluster.members["a"].store, cluster.members["b"].store
    ahead._clock.update(ahead.now() + (3_000_000 << 12))  # type: ignore[attr-defined]
    assert ahead.now() > behind.now() + (1_000_000 << 12)
    table.insert(rows())
    snapshot = table._store.now()
    table.upsert(rows(price=9.0))
    assert table.scan(as_of=snapshot).to_arrow()["price"].to_pylist() != table.scan().to_arrow()["price"].to_pylist()
    assert by_key(table.scan(as_of=snapshot).to_arrow()) == by_key(rows())
    assert by_key(table.scan().to_arrow()) == by_key(rows(price=9.0))


def test_a_numbered_write_is_answered_again(table: Table) -> None:
    first = table.write(rows(), "insert", writer="w", seq=1)
    again = table.write(rows(), "insert", writer="w", seq=1)
    assert (again.applied, again.error_count) == (first.applied, 0)


def test_a_numbered_row_is_merged_once(table: Table) -> None:
    row = {"id": 1, "host": "host 1", "price": 2.0}
    for data in ([row], [row], pa.Table.from_pylist([row])):
        assert table.merge(data, {"price": "sum"}, writer="w", seq=1).applied == 1
    assert table.get((1, "host 1"))["price"] == 2.0  # pyright: ignore[reportOptionalSubscript]


def test_a_numbered_write_is_answered_again_where_its_key_was_renamed(db: Database, table: Table) -> None:
    first = table.write(rows(), "insert", writer="w", seq=1)
    key = table.primary_key[-1]
    db.table("t").alter().rename_column(key, "key").apply()
    for again in (table, db.table("t")):
        assert again.write(rows(), "insert", writer="w", seq=1) == first
        with pytest.raises(InvalidArgumentError, match=f"no column '{key}'"):
            again.write(rows(), "insert", writer="w", seq=2)


def test_alterations_reach_all(cluster: Cluster, db: Database, table: Table) -> None:
    table.insert(rows(0, 100))
    table.alter().add_column("note", "string").add_range_partition(9000, 10000).apply()
    assert table.scan(["note"]).to_arrow()["note"].null_count == 100
    table.upsert(pa.table({"id": [9001, 9002, 9003], "host": ["x", "y", "z"], "note": ["1", "2", "3"]}))
    table.alter().drop_range_partition(None, 1000).apply()
    assert table.scan().count() == 3
    table.alter().split_partition(9500).apply()
    table.upsert(pa.table({"id": [9501, 9502, 9503], "host": ["x", "y", "z"]}))
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [9001, 9002, 9003, 9501, 9502, 9503]
    table.alter().rename("u").apply()
    assert db.tables() == ["u"]
    db.drop_table("u", keep_seconds=3600)
    assert db.tables() == []
    assert db.recall_table("u").scan().count() == 6
    with pytest.raises(InvalidArgumentError, match="give its name"):
        db.recall_table(7)
    db.drop_table("u")
    with pytest.raises(NotFoundError):
        db.drop_table("u")


def test_what_reached_one_server_is_brought_to_the_other_by_doing_it_again(cluster: Cluster, db: Database) -> None:
    alone = cluster.members["a"].store
    definition = {"name": "t", "schema": SCHEMA, "primary_key": KEY, "partition_by": levels()}
    alone.create_table(TableDefinition.from_arrow("t", SCHEMA, KEY, partition_by=levels()))
    table = db.create_table(**definition)
    with pytest.raises(AlreadyPresentError):
        db.create_table(**definition)
    table.insert(rows())
    steps = [{"op": "add_column", "name": "note", "type": "string"}]
    alone.alter_table(Alteration.model_validate({"table": "t", "steps": steps}))
    with pytest.raises(ConflictError, match="repeat it to apply"):
        table.scan().to_arrow()
    table.alter().add_column("note", "string").apply()
    assert table.scan(["note"]).count() == COUNT
    alone.drop_table("t")
    db.drop_table("t")
    assert db.tables() == []


def test_any_server_answers_plain_flight_clients(cluster: Cluster, table: Table) -> None:
    """Endpoints with locations; and whole tickets, which the server itself puts together."""
    table.insert(rows())
    for member in cluster.members.values():
        client = fl.connect(member.location)
        info = client.get_flight_info(fl.FlightDescriptor.for_path("t"))
        found = []
        elsewhere = 0
        for endpoint in info.endpoints:
            elsewhere += bool(endpoint.locations)
            at = fl.connect(endpoint.locations[0]) if endpoint.locations else client
            found.append(at.do_get(endpoint.ticket).read_all())
        assert 0 < elsewhere < len(info.endpoints)
        assert by_key(pa.concat_tables(found)) == by_key(rows())
        assert info.total_records == COUNT
        whole = client.do_get(fl.Ticket(b'{"table": "t", "ordered": true, "limit": 3, "columns": ["id"]}')).read_all()
        assert whole["id"].to_pylist() == [0, 1, 2]
        count = b'{"table": "t", "aggregate": {"n": ["*", "count"]}}'
        assert client.do_get(fl.Ticket(count)).read_all()["n"].to_pylist() == [COUNT]
        alone = FlightStore(member.location)
        assert alone.get("t", rows(5, 5).select(KEY).to_batches()[0]).num_rows == 5
        with pytest.raises(WrongServerError, match="or give the client the placement of all servers"):
            list(alone.write_all(WriteCommand(table="t"), rows().to_batches()))
        alone.close()
        client.close()
    assert table.scan().count() == COUNT


def test_one_url_is_enough(cluster: Cluster, table: Table) -> None:
    table.insert(rows())
    for name in cluster.members:
        assert cluster.connect(name).table("t").scan().count() == COUNT
    with pytest.raises(InvalidArgumentError):
        nyala.connect()
    with pytest.raises(InvalidArgumentError, match="placement"):
        nyala.connect(placement={"servers": {}})


def test_a_server_that_is_away(cluster: Cluster, table: Table) -> None:
    table.insert(rows())
    cluster.members["b"].stop()
    store = nyala.connect(placement=cluster.placement, retries=False)
    with pytest.raises(UnavailableError):
        store.table("t")
    cluster.members["b"].start()
    assert store.table("t").scan().count() == COUNT
    store.close()


def test_dates_in_a_placement_of_ranges(cluster: Cluster, db: Database) -> None:
    schema = pa.schema([pa.field("day", pa.date32(), nullable=False), ("n", pa.int32())])
    years = [(f"{year}-01-01", f"{year + 1}-01-01") for year in range(2010, 2020)]
    made = db.create_table("d", schema, ["day"], partition_by=[nyala.range("day", bounds=years)])
    days = [dt.date(2010, 1, 1) + dt.timedelta(days=day) for day in range(3652)]
    made.insert(pa.table({"day": days, "n": pa.array(range(3652), pa.int32())}))
    assert made.scan(where="day >= '2012-01-01'").count() == 3652 - 730
    assert all(member.store.table_stats("d").live_rows for member in cluster.members.values())


def ordered(table: Table) -> pa.Table:
    return table.scan(ordered=True).to_arrow()


def test_statements_are_executed_on_all_servers(db: Database, single: Table) -> None:
    placed = db.create_table("t", SCHEMA, KEY, partition_by=levels())
    moments = []
    for table, now in ((placed, db.now), (single, single._store.now)):
        table.insert(rows())
        moments.append(now())
        table.update_where({"price": "coalesce(price, 0) + id", "fare": "fare * 1.1"}, where="id >= 500 and id < 3000")
        result = table.delete_where("id > 4500")
        assert result.applied == result.rows == 499
        table.insert(rows(5_000, 100))
    assert ordered(placed).equals(ordered(single))
    for table, moment in zip((placed, single), moments, strict=True):
        assert table.restore(moment).applied == 2_500 + 499 + 100
    assert ordered(placed).equals(ordered(single)) and ordered(placed).num_rows == COUNT
    found = db.commits("t").group_by([]).aggregate([(name, "sum") for name in ("inserted", "updated", "deleted")])
    assert found.to_pylist() == [{"inserted_sum": COUNT + 100 + 499, "updated_sum": 5_000, "deleted_sum": 499 + 100}]
    operations = set(db.commits("t")["operation"].to_pylist())
    assert operations == {"insert", "update_where", "delete_where", "restore"}
    first = placed.update_where({"price": "1"}, writer="w", seq=1)
    assert placed.update_where({"price": "1"}, writer="w", seq=1) == first


def test_any_order_and_offset_over_all_servers(db: Database, single: Table) -> None:
    placed = db.create_table("t", SCHEMA, KEY, partition_by=levels())
    for table in (placed, single):
        table.insert(rows())
    orders: list[dict[str, Any]] = [
        {"order_by": "price DESC NULLS FIRST, seen DESC", "limit": 700, "offset": 300},
        {"order_by": ["fare", "host DESC"], "columns": ["seen"]},
        {"order_by": "id", "limit": 5, "offset": 1_000},
        {"ordered": True, "offset": 4_990},
    ]
    for how in orders:
        assert placed.scan(**how).to_arrow().equals(single.scan(**how).to_arrow()), how
    assert placed.scan(ordered=True, offset=COUNT - 3).count() == 3


@pytest.mark.parametrize("through", [None, "a"], ids=["placement", "one server"])
def test_rows_of_many_bytes_come_in_batches_of_some(cluster: Cluster, table: Table, through: str | None) -> None:
    """A server that combines the rows of others holds no more than some of them, either."""
    hosts = ["a" * 5_000, "b" * 5_000]
    table.insert({"id": [1, 2_000], "host": hosts})
    numbers = [1, 2_000, 2_000, 7, 1] * 2_500
    keys = {"id": numbers, "host": [hosts[number != 1] for number in numbers]}
    batches = list(cluster.connect(through).table("t").get_batches(pa.table(keys)))
    assert [number for batch in batches for number in batch["id"].to_pylist()] == [n for n in numbers if n != 7]
    assert len(batches) > 2 and max(batch.nbytes for batch in batches) <= 16 << 20


def test_get_many_finds_rows_by_keys_that_are_cut(db: Database) -> None:
    names = [f"{number:03}" for number in range(40)]
    schema, parts = pa.schema([pa.field("k", pa.string(), False), ("v", pa.int64())]), [nyala.hash("k", buckets=8)]
    short = {"k": nyala.ColumnOptions(type="varchar(3)")}
    table = db.create_table("cut", schema, ["k"], partition_by=parts, column_options=short)
    table.insert(pa.table([names, list(range(40))], ["k", "v"]))
    asked = [name + "and more" if number % 2 else name for number, name in enumerate(names)]
    missing = [f"x{number:02}" for number in range(20)]
    mixed = [key for pair in zip(asked, missing * 2, strict=True) for key in pair]
    assert table.get_many(mixed)["v"].to_pylist() == list(range(40))


def test_bounds_of_floats_that_are_no_numbers(db: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("g", pa.int64()), ("x", pa.float64())])
    table = db.create_table("floats", schema, ["id"], partition_by=[nyala.hash("id", buckets=8)])
    nan = float("nan")
    cells = [nan] * 20 + [nan, 1.0] * 10 + [None] * 20 + [nan, None] * 10
    table.insert(pa.table([range(80), [number // 20 for number in range(80)], cells], schema=schema))
    measures = {"low": ("x", "min"), "high": ("x", "max")}
    found = table.scan().aggregate(measures, ["g"]).sort_by("g").to_pylist()
    assert str(found) == str([{"g": g, "low": x, "high": x} for g, x in enumerate([nan, 1.0, None, nan])]), (
        "NaN equals nothing"
    )


def test_groups_may_be_named_like_results(db: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("n_sum", pa.int64()), ("0", pa.int64())])
    table = db.create_table("named", schema, ["id"], partition_by=[nyala.hash("id", buckets=8)])
    table.insert(pa.table([range(40), [number % 2 for number in range(40)], range(40)], schema=schema))
    measures = {"n": ("*", "count"), "1": ("0", "sum")}
    found = table.scan().aggregate(measures, ["n_sum"]).sort_by("n_sum").to_pylist()
    assert found == [{"n_sum": 0, "n": 20, "1": 380}, {"n_sum": 1, "n": 20, "1": 400}]


def test_a_numbered_write_to_a_range_that_another_client_added_is_answered_again(cluster: Cluster) -> None:
    schema, first = pa.schema([pa.field("id", pa.int64(), False)]), nyala.range("id", bounds=[(0, 100)])
    mine, others = cluster.connect(), cluster.connect()
    table = mine.create_table("t", schema, ["id"], partition_by=[nyala.hash("id", buckets=2), first])
    for number in range(1, 7):
        table.insert([{"id": number}])  # by which it finds out where tablets are
        others.table("t").alter().add_range_partition(100 * number, 100 * number + 100).apply()
        for again in (table, cluster.connect().table("t")):
            assert again.insert([{"id": 100 * number}], writer="w", seq=number).applied == 1


def test_a_tablet_that_moved_is_looked_for_beside_a_server_that_is_down() -> None:
    rows = pa.record_batch({"id": [1]})

    class Three:
        names = ("a", "b", "c")

        def reached(self, name: str, patient: bool) -> Any:
            assert not patient
            if name == "a":
                raise UnavailableError("the server cannot be reached")
            return SimpleNamespace(tablets=lambda _: None)

        def store(self, name: str) -> Any:
            return SimpleNamespace(scan=lambda _: self.scan(name))

        def scan(self, name: str) -> ScanStream:
            if name == "b":
                raise WrongServerError("the tablet has moved")
            return ScanStream(rows.schema, 1, iter([rows]))

    found = followed(cast(Servers, Three()), ScanSpec(table="t"))
    assert list(found.batches) == [rows]

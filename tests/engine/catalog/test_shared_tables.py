"""Stores that have some of the tablets of their tables: what they take, refuse and tell."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pydantic import ValidationError

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import WrongServerError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.store.direct import PinSnapshot
from nyala.schemas.store.placement import Placement, Rule, TablePlacement
from nyala.schemas.table.alter import AddRangePartition, Alteration
from nyala.schemas.table.partition import hash as by_hash
from nyala.schemas.table.partition import range as by_range
from nyala.schemas.table.partition_schema import TabletPartition, sum_of
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string())])
PLACEMENT = Placement(servers={"a": ("grpc://a:1",), "b": ("grpc://b:1",)})
Open = Callable[..., Store]


def open_as(server: str, fs: MemoryFileSystem | None = None, placement: Placement = PLACEMENT) -> Store:
    options = StoreOptions(maintenance="off", placement=placement, server=server)
    return Store.open(fs or MemoryFileSystem(), options)


def define(store: Store, buckets: int = 4) -> None:
    levels = [by_hash("id", buckets=buckets)]
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["id"], partition_by=levels))


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(range(count), pa.int64()), pa.array([str(i) for i in range(count)])], schema=SCHEMA
    )


def rows_of(store: Store, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those rows of a batch whose tablets the store has, by the store's own word for each."""

    def is_taken(row: int) -> bool:
        try:
            store.get("t", batch.slice(row, 1).select(["id"]))
        except WrongServerError:
            return False
        return True

    return batch.take(pa.array([row for row in range(batch.num_rows) if is_taken(row)]))


def test_every_row_has_one_server() -> None:
    with open_as("a") as first, open_as("b") as second:
        counts = []
        for store in (first, second):
            define(store)
            mine = rows_of(store, rows(100))
            answer = store.write(WriteCommand(table="t"), mine)
            assert answer.applied == mine.num_rows
            counts.append(mine.num_rows)
        assert sum(counts) == 100
        assert min(counts) > 20


def test_a_batch_with_a_row_of_another_server_is_refused_whole() -> None:
    with open_as("a") as store:
        define(store)
        before = store.last_change("t")
        for op in (Operation.UPSERT, Operation.INSERT_IGNORE):
            with pytest.raises(WrongServerError, match="on the server 'b'"):
                store.write(WriteCommand(table="t", op=op), rows(100))
        assert store.last_change("t") == before
        assert store.table_stats("t").live_rows == 0


def test_a_scan_of_all_is_refused_and_one_of_what_is_here_is_not() -> None:
    with open_as("a") as store:
        define(store)
        mine = rows_of(store, rows(100))
        store.write(WriteCommand(table="t"), mine)
        with pytest.raises(WrongServerError):
            store.scan(ScanSpec(table="t"))
        with pytest.raises(WrongServerError):
            store.plan(ScanSpec(table="t", aggregate={"n": ("*", "count")}))
        found = pa.Table.from_batches(store.scan(ScanSpec(table="t", here=True)).batches, SCHEMA)
        assert found.sort_by("id")["id"].to_pylist() == mine["id"].to_pylist()
        only = mine["id"][0].as_py()  # a filter that leaves the tablets that are here needs no such word
        assert sum(b.num_rows for b in store.scan(ScanSpec(table="t", where=f"id = {only}")).batches) == 1


def test_plans_tell_which_tablets_they_are_of() -> None:
    with open_as("a") as first, open_as("b") as second:
        define(first)
        define(second)
        plans = [store.plan(ScanSpec(table="t", here=True)) for store in (first, second)]
        assert plans[0].tablets_all == plans[1].tablets_all
        added = sum(int(plan.tablets_here, 16) for plan in plans) % (1 << 64)
        assert f"{added:016x}" == plans[0].tablets_all
        stale = ScanSpec(table="t", here=True, tablets_here=plans[1].tablets_here)
        with pytest.raises(WrongServerError, match="moved"):
            first.scan(stale)
        first.scan(stale.model_copy(update={"tablets_here": plans[0].tablets_here}))


def test_where_tablets_are_survives_a_restart_and_another_placement() -> None:
    fs = MemoryFileSystem()
    with open_as("a", fs) as store:
        define(store)
        before = store.tablets("t")
        assert {place.server for place in before.tablets} == {None, "b"}
    other = PLACEMENT.model_copy(update={"tables": {"t": TablePlacement(servers=("b",))}})
    with open_as("a", fs, other) as store:
        assert store.tablets("t") == before
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        assert store.tablets("t") == before


def test_ranges_that_come_are_placed_as_those_of_a_new_table() -> None:
    bounds = [(0, 10), (10, 20)]
    maps = []
    for server in ("a", "b"):
        with open_as(server) as store:
            levels = [by_hash("id", buckets=2), by_range("id", bounds=bounds)]
            store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["id"], partition_by=levels))
            step = AddRangePartition(op="add_range_partition", lower=[20], upper=[30])
            store.alter_table(Alteration(table="t", steps=[step]))
            here = [place.partition for place in store.tablets("t").tablets if place.server is None]
            maps.append(set(here))
            assert len(here) == 3
    assert not maps[0] & maps[1]
    assert len(maps[0] | maps[1]) == 6


def test_rules_come_before_turns() -> None:
    placement = Placement(
        servers={"a": ("grpc://a:1",), "b": ("grpc://b:1",), "c": ("grpc://c:1",)},
        tables={
            "t": TablePlacement(
                servers=("a", "b"), place=(Rule(server="c", buckets=(3,)), Rule(server="a", lower=(10,)))
            )
        },
    )
    with open_as("a", placement=placement) as store:
        levels = [by_hash("id", buckets=4), by_range("id", bounds=[(0, 10), (10, 20)])]
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["id"], partition_by=levels))
        homes = {place.partition: place.server or "a" for place in store.tablets("t").tablets}
    assert {home for part, home in homes.items() if part.buckets == (3,)} == {"c"}
    assert {home for part, home in homes.items() if part.lower == (10,) and part.buckets != (3,)} == {"a"}
    rest = [home for part, home in homes.items() if part.lower == (0,) and part.buckets != (3,)]
    assert set(rest) == {"a", "b"}


def test_the_clock_follows_another_one_but_not_far() -> None:
    with open_as("a") as store:
        ahead = store.now() + (5_000_000 << 12)
        assert store.now(ahead) >= ahead
        assert store.now() > ahead
        with pytest.raises(Exception, match="future"):
            store.now(ahead + (60_000_000 << 12))


def test_sums_of_tablets_add_up() -> None:
    parts = [TabletPartition(buckets=(number,)) for number in range(5)]
    added = (int(sum_of(parts[:2]), 16) + int(sum_of(parts[2:]), 16)) % (1 << 64)
    assert f"{added:016x}" == sum_of(parts)


@pytest.mark.parametrize(
    "given",
    [
        {"servers": {}},
        {"servers": {"a b": "grpc://a:1"}},
        {"servers": {"a": []}},
        {"servers": {"a": "grpc://a:1"}, "tables": {"t": {"servers": ["b"]}}},
        {"servers": {"a": "grpc://a:1"}, "tables": {"t": {"place": [{"server": "b"}]}}},
        {"servers": {"a": "grpc://a:1"}, "colour": "red"},
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Placement.model_validate(given)


def test_a_server_that_the_placement_does_not_know_is_refused() -> None:
    with pytest.raises(ValidationError, match="its servers are: a, b"):
        StoreOptions(placement=PLACEMENT, server="c")
    with pytest.raises(ValidationError):
        StoreOptions(placement=PLACEMENT)
    with pytest.raises(ValidationError):
        StoreOptions(server="a")


def test_a_part_of_a_table_is_not_handed_out_for_all_of_it() -> None:
    with open_as("a") as store:
        define(store)
        with pytest.raises(WrongServerError, match="on the server 'b'"):
            store.pin_snapshot(PinSnapshot(table="t"))

"""How many groups a partial aggregate may have, as its plan tells: never fewer than there are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from itertools import combinations
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.plan import few_groups
from nyala.engine.store import Store
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.scan import ScanSpec
from tests.dose import by_night

SCHEMA = pa.schema([
    pa.field("id", pa.int64(), False),
    pa.field("n", pa.int32(), False),
    pa.field("small", pa.int8()),
    pa.field("ok", pa.bool_()),
    pa.field("day", pa.date32()),
    pa.field("cents", pa.decimal128(9, 2)),
    pa.field("wide", pa.decimal128(30, 0)),
    pa.field("city", pa.string()),
    pa.field("price", pa.float64()),
])  # fmt: skip
GROUPS = SCHEMA.names[1:]
ROWS = 3_000
STEPS = ["upsert", "upsert", "update", "delete", "flush", "flush_deltas", "compact", "major_compact"]
EPOCH = dt.date(1970, 1, 1)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        yield store


@pytest.fixture
def table(store: Store) -> Table:
    levels = [nyala.hash("id", buckets=2)]
    return Database(store).create_table("t", SCHEMA, ["id"], partition_by=levels)


def rows(first: int, count: int, shift: int = 0) -> pa.Table:
    """Return rows with seven values a column, two of bools, and NULL in a tenth of the rows."""
    numbers = [shift + number % 7 for number in range(count)]
    columns: list[list[Any]] = [
        list(range(first, first + count)),
        [number - 3 for number in numbers],
        numbers,
        [number % 2 == 0 for number in numbers],
        [EPOCH + dt.timedelta(number) for number in numbers],
        [Decimal(number).scaleb(-2) for number in numbers],
        [Decimal(number) - 10**25 for number in numbers],
        [f"city {number}" for number in numbers],
        [number / 2 for number in numbers],
    ]
    nullable = [[None if row % 10 == 9 else cell for row, cell in enumerate(column)] for column in columns[2:]]
    return pa.table([*columns[:2], *nullable], schema=SCHEMA)


def bound(store: Store, *group_by: str, where: str | None = None, as_of: int | None = None, **asked: Any) -> int | None:
    """Return the number in the plan of a count by groups."""
    measures = {"rows": ("*", "count")}
    spec = ScanSpec(table="t", aggregate=measures, group_by=list(group_by), partial=True, where=where, as_of=as_of)
    return store.plan(spec.model_copy(update=asked)).groups_at_most


def groups(table: Table, *group_by: str, as_of: int | None = None) -> int:
    return table.scan(as_of=as_of).aggregate({"rows": ("*", "count")}, list(group_by)).num_rows


def test_integers_are_counted_from_the_least_to_the_greatest(store: Store, table: Table) -> None:
    table.insert(rows(0, ROWS))
    assert [bound(store, name) for name in GROUPS] == [7, 8, 3, 8, 8, ROWS, ROWS, ROWS]
    table.maintain("flush")
    assert [bound(store, name) for name in GROUPS] == [7, 8, 3, 8, 8, 8, 2 * 7 + 1, ROWS]
    assert [groups(table, name) for name in GROUPS] == [7, 8, 3, 8, 8, 8, 8, 8]
    assert bound(store, "n", "small", "ok") == 7 * 8 * 3
    assert bound(store, "n", where="id < 0") == 0 and bound(store, "n", where="id = 5") == 1
    assert bound(store) == 1


def test_parts_of_an_aggregate_count_their_own_rows(store: Store, table: Table) -> None:
    for state in ("memory", "files"):
        table.insert(rows(0 if state == "memory" else ROWS, ROWS))
        measures = {"rows": ("*", "count"), "cells": ("n", "count"), "least": ("id", "min"), "greatest": ("id", "max")}
        spec = ScanSpec(table="t", aggregate=measures, partial=True, split_bytes=4_000)
        plan = store.plan(spec)
        assert len(plan.splits) > 4
        parts = [next(iter(store.scan(split.ticket(spec)).batches)).to_pylist()[0] for split in plan.splits]
        whole = table.scan().aggregate(measures).to_pylist()[0]
        assert sum(part["rows"] for part in parts) == whole["rows"], state
        assert sum(part["cells"] for part in parts) == whole["cells"]
        assert min(part["least"] for part in parts) == whole["least"]
        assert len({part["greatest"] for part in parts}) == len(parts), "each has rows of its own"
        table.maintain("flush")


def test_strings_are_compared_once_they_were_read(store: Store, table: Table) -> None:
    table.insert(rows(0, ROWS))
    table.maintain("flush")
    table.insert(rows(ROWS, ROWS, shift=2))
    table.maintain("flush")
    assert bound(store, "city") == 4 * 7 + 1, "each dictionary by itself"
    assert groups(table, "city") == 9 + 1
    assert bound(store, "city") == 9 + 1
    table.update({"id": [1, 2, 3], "city": ["new", "new", "newer"]})
    assert bound(store, "city") == 9 + 1 + 3, "each change may be another one"


def test_changes_and_added_columns_count(store: Store, table: Table) -> None:
    table.insert(rows(0, ROWS))
    table.maintain("flush")
    before = Database(store).now()
    table.update({"id": [5, 6], "n": [1_000_000, -1_000_000]})
    assert bound(store, "n") == 7 + 2
    assert bound(store, "n", as_of=before) == 7 + 2, "what came later is not told apart in memory"
    table.maintain("flush_deltas")
    table.maintain("major_compact")
    assert groups(table, "n") == 9 and groups(table, "n", as_of=before) == 7
    assert bound(store, "n") == ROWS, "they are far apart"
    table.alter().add_column("kind", pa.string(), read_default="x").add_column("level", pa.int64()).apply()
    table.insert({"id": [ROWS], "n": [0], "kind": ["y"], "level": [7]})
    assert (bound(store, "kind"), bound(store, "level")) == (1 + 2 + 1, 1 + 2 + 1)


def test_old_snapshots_have_what_was_replaced(store: Store, table: Table) -> None:
    table.insert(rows(0, ROWS))
    table.maintain("flush")
    before = Database(store).now()
    table.update({"id": range(ROWS), "small": [3] * ROWS})
    table.maintain("flush_deltas")
    table.maintain("major_compact")
    assert groups(table, "small") == 1 and bound(store, "small") == 1 + 1
    assert groups(table, "small", as_of=before) == 8 and bound(store, "small", as_of=before) == ROWS


def test_changed_strings_may_be_as_long_as_the_table_ever_took() -> None:
    options = StoreOptions(maintenance="off", limits=Limits(aggregate_bytes=300_000))
    with Store.open(MemoryFileSystem(), options) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert(rows(0, 7))
        table.maintain("flush")
        table.update({"id": [1], "city": ["x"]})
        assert bound(store, "city") == 7
        for most in (1 << 20, 1 << 17, None):
            table.alter().set_option("cell_bytes_max", most).apply()
            assert bound(store, "city") is None, "the change may have had 1 MiB"


def test_many_groups_have_no_number(store: Store, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.insert(rows(0, 20_000))
    table.maintain("flush")
    assert bound(store, "id") is None and bound(store, "id", where="id < 100") is not None
    assert bound(store, "n", "small", "day", "cents") == 7 * 8 * 8 * 8
    assert bound(store, "n", "small", "day", "cents", "ok") is None
    monkeypatch.setattr(few_groups, "FEW", 6)
    assert bound(store, "n") is None


def test_groups_that_memory_may_not_hold_have_no_number() -> None:
    """Strings that are not known may be as long as any."""
    limits = Limits(aggregate_bytes=300_000)
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", limits=limits)) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert(rows(0, 2_000))
        assert bound(store, "city") == 2_000, "they have few bytes in all"
        table.upsert(rows(0, 100_000))
        table.maintain("flush")
        least = {"least": ("city", "min")}
        assert [bound(store, name) for name in ("n", "city", "small")] == [7, None, 8]
        assert bound(store, "n", aggregate=least) is None
        assert groups(table, "city") == 8
        assert bound(store, "city") == 8 and bound(store, "n", aggregate=least) == 7
        table.update({"id": range(10), "city": ["x"] * 10})
        assert bound(store, "city") is None
        sums = {name: (name, "sum") for name in ("n", "small", "cents", "wide")}
        assert bound(store, "id", where="id < 2000") and bound(store, "id", where="id < 2000", aggregate=sums) is None


def test_a_part_has_no_number(store: Store, table: Table) -> None:
    table.insert(rows(0, ROWS))
    assert bound(store, "n", tablet=table.tablets()[0].tablet) is None
    assert bound(store, "n", key_upper="8000000000000005") is None
    assert bound(store, "n", partial=False) is None


@pytest.mark.parametrize("seed", by_night(range(12), range(4)))
def test_random_tables_have_no_more_groups(store: Store, table: Table, seed: int) -> None:
    """At all snapshots, whatever became of the rows since."""
    random = Random(seed)
    snapshots: list[int] = []
    for step in range(random.randint(4, 9)):
        first = random.randrange(1_000)
        some = rows(first, random.randint(1, 400), random.choice([0, 2, 60]))
        what = random.choice(
            ["upsert", "upsert", "update", "delete", "flush", "flush_deltas", "compact", "major_compact"]
        )
        if what == "delete":
            table.delete_ignore(some.select(["id"]))
        elif what in ("upsert", "update"):
            columns = ["id", "n", *random.sample(GROUPS[1:], random.randint(0, len(GROUPS) - 1))]
            (table.upsert if what == "upsert" else table.update_ignore)(some.select(columns))
        else:
            table.maintain(what)
        snapshots.append(Database(store).now())
        if step == 2:
            table.alter().add_column("late", pa.string(), read_default="then").apply()
    names = [*GROUPS, "late"]
    for as_of in snapshots:
        for chosen in [*combinations(names, 1), *random.sample([*combinations(names, 2)], 5)]:
            found = bound(store, *chosen, as_of=as_of)
            assert found is None or found >= groups(table, *chosen, as_of=as_of), chosen

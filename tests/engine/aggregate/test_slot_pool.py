"""Pieces of a scan share the states of groups: each row is folded once, also where a kernel gives up halfway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.aggregate import merge, slot_pool
from nyala.engine.aggregate.merge import Merger
from nyala.engine.aggregate.slots import StateSlots
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits

ROWS = 5_000
SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), pa.field("g", pa.int32(), False), ("v", pa.int64()), ("x", pa.float64())]
)
MEASURES = {"n": ("*", "count"), "m": ("v", "count"), "total": ("v", "sum"), "least": ("v", "min"), "sum": ("x", "sum")}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many slots are made, and partial answers of them."""
    counts: Counter[str] = Counter()
    start, partial = StateSlots.__init__, StateSlots.partial

    def begin(self: StateSlots, *arguments: Any) -> None:
        counts["slots"] += 1
        start(self, *arguments)

    def end(self: StateSlots) -> pa.Table:
        counts["partials"] += 1
        return partial(self)

    monkeypatch.setattr(StateSlots, "__init__", begin)
    monkeypatch.setattr(StateSlots, "partial", end)
    return counts


@pytest.fixture
def table() -> Iterator[Table]:
    """Three rowsets, whose groups are the same integers."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=1)) as store:
        table = Database(store).create_table("t", SCHEMA, ["k"])
        for first in range(0, 3 * ROWS, ROWS):
            keys = range(first, first + ROWS)
            table.insert(
                {
                    "k": list(keys),
                    "g": [key % 3 for key in keys],
                    "v": [None if key % 7 == 0 else key for key in keys],
                    "x": [key / 2 for key in keys],
                }
            )
            table.maintain("flush")
        yield table


def answer(table: Table) -> dict[int, dict[str, Any]]:
    return {row.pop("g"): row for row in table.scan().aggregate(MEASURES, ["g"]).to_pylist()}


def expected(changed: dict[int, int]) -> dict[int, dict[str, Any]]:
    groups: dict[int, list[int]] = {}
    for key in range(3 * ROWS):
        groups.setdefault(changed.get(key, key % 3), []).append(key)
    known = {group: [key for key in keys if key % 7] for group, keys in groups.items()}
    return {
        group: {
            "n": len(keys),
            "m": len(known[group]),
            "total": sum(known[group]),
            "least": min(known[group]),
            "sum": sum(keys) / 2,
        }
        for group, keys in groups.items()
    }


def test_pieces_with_the_same_groups_share_slots(table: Table, made: Counter[str]) -> None:
    assert answer(table) == expected({})
    assert made == {"slots": 1, "partials": 1}


def test_rows_before_a_cell_without_a_group_are_not_folded_twice(table: Table) -> None:
    changed = {2 * ROWS - 1: -1_000_000}  # the last row of a piece: those before it are in the slots by then
    table.update({"k": list(changed), "g": list(changed.values())})
    assert answer(table) == expected(changed)


def test_full_slots_take_no_more_rows(table: Table, made: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_pool, "_ROWS_MAX", 2 * ROWS)
    assert answer(table) == expected({})
    assert made == {"slots": 2, "partials": 2}


def test_slots_that_are_too_many_to_keep_become_partial_answers(
    table: Table, made: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_pool, "_IDLE_BYTES_MAX", 0)
    assert answer(table) == expected({})
    assert made == {"slots": 3, "partials": 3}


def rowsets_of(store: Store, groups: Iterable[Iterable[int]]) -> Table:
    """Return a table with a rowset of each of ``groups``, with a row of each of them."""
    table = Database(store).create_table("u", SCHEMA, ["k"])
    keys = count()
    for found in groups:
        table.insert([{"k": key, "g": group, "v": key, "x": 0.5} for group, key in zip(found, keys, strict=False)])
        table.maintain("flush")
    return table


@pytest.mark.parametrize("threads", [1, 2])
def test_slots_with_more_groups_are_shared(made: Counter[str], threads: int) -> None:
    ranges = [range(5, 100), range(5, 98), range(7, 100), range(8, 97)]
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=threads)) as store:
        table = rowsets_of(store, ranges)
        counts = {group: row["n"] for group, row in answer(table).items()}
        assert counts == Counter(group for found in ranges for group in found)
        assert made["slots"] == 1 or threads > 1


def test_few_groups_do_not_go_to_the_slots_of_many(made: Counter[str]) -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=1)) as store:
        answer(rowsets_of(store, [range(100), range(49), range(50)]))
        assert made["slots"] == 2


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The most slots that were there at once, and groups in partial answers that were not yet merged."""
    most: Counter[str] = Counter()
    alive: WeakSet[StateSlots] = WeakSet()
    start, partial, add = StateSlots.__init__, StateSlots.partial, Merger.add
    unmerged = 0

    def begin(self: StateSlots, *arguments: Any) -> None:
        start(self, *arguments)
        alive.add(self)
        most["slots"] = max(most["slots"], len(alive))

    def end(self: StateSlots) -> pa.Table:
        nonlocal unmerged
        found = partial(self)
        unmerged += found.num_rows
        most["groups"] = max(most["groups"], unmerged)
        return found

    def merge_one(self: Merger, found: pa.Table) -> None:
        nonlocal unmerged
        unmerged -= found.num_rows
        add(self, found)

    monkeypatch.setattr(StateSlots, "__init__", begin)
    monkeypatch.setattr(StateSlots, "partial", end)
    monkeypatch.setattr(Merger, "add", merge_one)
    return most


@pytest.mark.parametrize("idle_max", [0, 3])
def test_groups_are_merged_while_the_scan_goes_on(
    kept: Counter[str], monkeypatch: pytest.MonkeyPatch, idle_max: int
) -> None:
    monkeypatch.setattr(slot_pool, "_IDLE_MAX", idle_max)
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=1)) as store:
        table = rowsets_of(store, [range(1000 * n, 1000 * n + 2) for n in range(20)])
        found = answer(table)
        assert {group: row["n"] for group, row in found.items()} == dict.fromkeys(found, 1) and len(found) == 40
        assert kept["slots"] <= idle_max + 2 and kept["groups"] <= 4


def test_too_many_groups_end_the_scan_when_they_are_found(made: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_pool, "_IDLE_MAX", 1)
    monkeypatch.setattr(merge, "_MERGE_ROWS", 5)
    limits = Limits(aggregate_bytes=1_000)
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", scan_threads=1, limits=limits)) as store:
        table = rowsets_of(store, [range(1000 * n, 1000 * n + 5) for n in range(20)])
        with pytest.raises(InvalidArgumentError, match="aggregate_bytes"):
            answer(table)
        assert made["slots"] < 10

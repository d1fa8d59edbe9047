"""Pieces of a scan share the states of groups: each row is folded once, also where a kernel gives up halfway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.aggregate import slot_pool
from nyala.engine.aggregate.slots import StateSlots
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store

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
    monkeypatch.setattr(slot_pool, "_FREE_MAX", 0)
    assert answer(table) == expected({})
    assert made == {"slots": 3, "partials": 3}

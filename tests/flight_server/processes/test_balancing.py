"""Tablets are spread evenly over processes, with as few moves as that takes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from nyala.flight_server.processes.balancing import Tablets, moves

NAMES = ["p0", "p1", "p2", "p3"]
counts = st.lists(st.integers(0, 9), min_size=len(NAMES), max_size=len(NAMES))


@example([[0, 0, 1, 6], [0, 0, 0, 3], [0, 0, 3, 1]], 4)
@given(st.lists(counts, max_size=6), st.integers(1, len(NAMES)))
def test_evenly_and_with_few_moves(tables: list[list[int]], kept_count: int) -> None:
    kept = NAMES[:kept_count]
    placed: Tablets = {
        f"t{number}": {
            name: list(range(10 * place, 10 * place + count))
            for place, (name, count) in enumerate(zip(NAMES, found, strict=True))
        }
        for number, found in enumerate(tables)
    }
    planned = moves(placed, kept)
    owners = {(table, n): name for table, found in placed.items() for name, numbers in found.items() for n in numbers}
    for table, number, source, target in planned:
        assert owners[table, number] == source and target in kept
        owners[table, number] = target
    assert len({move[:2] for move in planned}) == len(planned)  # none moves twice
    after = {
        table: [sum(owners[table, n] == name for t, n in owners if t == table) for name in kept] for table in placed
    }
    for table, found in after.items():
        assert max(found) - min(found) <= 1
        before = [len(placed[table][name]) for name in NAMES]
        low, high = sum(before) // kept_count, -(-sum(before) // kept_count)
        off = sum(before[kept_count:])
        lacking = sum(max(0, low - count) for count in before[:kept_count])
        needed = max(lacking, off + sum(max(0, count - high) for count in before[:kept_count]))
        mine = sum(move[0] == table for move in planned)
        assert needed <= mine <= needed + kept_count  # the rest evens out what all tables have together


def test_nothing_moves_that_need_not() -> None:
    placed: Tablets = {"t": {"p0": [1, 2], "p1": [1, 2], "p2": [3]}, "one": {"p0": [], "p1": [], "p2": [7]}}
    assert moves(placed, ["p0", "p1", "p2"]) == []


def test_tables_of_one_tablet_spread() -> None:
    placed: Tablets = {f"t{number}": {"p0": [number], "p1": []} for number in range(6)}
    targets = [target for _, _, _, target in moves(placed, ["p0", "p1"])]
    assert targets == ["p1"] * 3

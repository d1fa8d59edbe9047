"""Runs of deltas against a model that replays every change one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.cells import DeltaCells
from nyala.engine.delta.patch import Patch, RowPlaces
from nyala.engine.delta.run import DeltaRun, collapsed, invert, merge_runs
from nyala.engine.delta.sorted_rows import SortedDeltas
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector, Vector, as_bytes
from tests.engine.delta.written import sorted_run

ROWS = 6
CHANGES = st.lists(st.tuples(st.integers(0, ROWS - 1), st.none() | st.integers(-9, 9)), max_size=30)


def vector(cells: list[int | None], kind: str) -> Vector:
    if kind == "int64":
        return from_arrow(pa.array(cells, pa.int64()), PhysicalType.INT64)
    texts = [None if cell is None else "x" * abs(cell) + str(cell) for cell in cells]
    return from_arrow(pa.array(texts, pa.string()), PhysicalType.BYTES)


def cells_of(found: Vector) -> list[object]:
    valid = found.valid if found.valid is not None else np.ones(len(found), bool)
    if isinstance(found, FixedVector):
        return [int(value) if ok else None for value, ok in zip(found.values, valid, strict=True)]
    found = as_bytes(found)
    return [
        found.data[found.offsets[row] : found.offsets[row + 1]].tobytes().decode() if valid[row] else None
        for row in range(len(found))
    ]


def run_of(changes: list[tuple[int, int | None]], kind: str) -> DeltaRun:
    """Change number i has timestamp i + 1."""
    rowids = np.array([row for row, _ in changes], np.int32)
    timestamps = np.arange(1, len(changes) + 1, dtype=np.int64)
    return sorted_run(rowids, timestamps, vector([cell for _, cell in changes], kind))


def states(base: list[int | None], changes: list[tuple[int, int | None]], kind: str) -> list[list[object]]:
    """The cells after 0, 1, 2, ... changes."""
    current, seen = list(base), [cells_of(vector(base, kind))]
    for row, cell in changes:
        current[row] = cell
        seen.append(cells_of(vector(current, kind)))
    return seen


@pytest.mark.parametrize("kind", ["int64", "string"])
@given(base=st.lists(st.none() | st.integers(-9, 9), min_size=ROWS, max_size=ROWS), changes=CHANGES)
def test_redo_brings_the_base_forward_to_every_snapshot(kind, base, changes):
    run = run_of(changes, kind)
    for snapshot, expected in enumerate(states(base, changes, kind)):
        assert cells_of(patched(vector(base, kind), run, rows_of(run).redo(0, ROWS, snapshot))) == expected


@pytest.mark.parametrize("kind", ["int64", "string"])
@given(base=st.lists(st.none() | st.integers(-9, 9), min_size=ROWS, max_size=ROWS), changes=CHANGES)
def test_undo_takes_the_inverted_base_back_to_every_snapshot(kind, base, changes):
    brought, undo = invert(vector(base, kind), run_of(changes, kind))
    expected = states(base, changes, kind)
    assert cells_of(brought) == expected[-1]
    for snapshot, cells in enumerate(expected):
        assert cells_of(patched(brought, undo, rows_of(undo).undo(0, ROWS, snapshot))) == cells


@given(changes=CHANGES, cut=st.integers(0, 30))
def test_runs_merge_into_one(changes, cut):
    whole = run_of(changes, "int64")
    parts = [whole.take(np.flatnonzero(mask)) for mask in (whole.timestamps <= cut, whole.timestamps > cut)]
    merged = merge_runs(parts)
    assert merged.rowids.tolist() == whole.rowids.tolist()
    assert merged.timestamps.tolist() == whole.timestamps.tolist()
    assert cells_of(merged.values) == cells_of(whole.values)


@given(changes=CHANGES, mark=st.integers(0, 30))
def test_what_is_collapsed_reads_the_same_from_the_mark_on(changes, mark):
    run = run_of(changes, "int64")
    kept = collapsed(run, mark)
    base = vector([None] * ROWS, "int64")
    for snapshot in range(mark, len(changes) + 1):
        seen = [cells_of(patched(base, part, rows_of(part).redo(0, ROWS, snapshot))) for part in (run, kept)]
        assert seen[0] == seen[1]


def rows_of(run: DeltaRun) -> SortedDeltas:
    bounds = int(run.timestamps.min(initial=1 << 60)), int(run.timestamps.max(initial=0))
    return SortedDeltas(run.rowids, np.arange(len(run), dtype=np.int32), bounds, lambda: run.timestamps)


def patched(base: Vector, run: DeltaRun, rows: RowPlaces | None) -> Vector:
    return Patch(rows, DeltaCells(run.values)).apply(base, 0) if rows else base

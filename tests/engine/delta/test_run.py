"""Runs of deltas against a model that replays every change one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.run import DeltaRun, Patch, invert, merge_patches, redo_patch, sorted_run, undo_patch
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector, as_bytes

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
        assert cells_of(redo_patch(run, snapshot).apply(vector(base, kind), 0)) == expected


@pytest.mark.parametrize("kind", ["int64", "string"])
@given(base=st.lists(st.none() | st.integers(-9, 9), min_size=ROWS, max_size=ROWS), changes=CHANGES)
def test_undo_takes_the_inverted_base_back_to_every_snapshot(kind, base, changes):
    brought, undo = invert(vector(base, kind), run_of(changes, kind))
    expected = states(base, changes, kind)
    assert cells_of(brought) == expected[-1]
    for snapshot, cells in enumerate(expected):
        assert cells_of(undo_patch(undo, snapshot).apply(brought, 0)) == cells


@given(changes=CHANGES, cut=st.integers(0, 30), first=st.integers(0, ROWS), last=st.integers(0, ROWS))
def test_a_run_in_pieces_reads_as_one(changes, cut, first, last):
    first, last = min(first, last), max(first, last)
    whole = run_of(changes, "int64")
    older = DeltaRun(*_part(whole, whole.timestamps <= cut))
    newer = DeltaRun(*_part(whole, whole.timestamps > cut))
    for snapshot in range(len(changes) + 1):
        pieces = [redo_patch(part.slice(first, last), snapshot) for part in (older, newer)]
        merged = merge_patches(pieces) or Patch(np.empty(0, np.int32), vector([], "int64"))
        expected = redo_patch(whole.slice(first, last), snapshot)
        assert merged.rowids.tolist() == expected.rowids.tolist()
        assert cells_of(merged.values) == cells_of(expected.values)


@given(changes=CHANGES, rows=st.sets(st.integers(0, ROWS - 1)))
def test_a_patch_reaches_gathered_rows(changes, rows):
    gathered = np.array(sorted(rows), np.int64)
    patch = redo_patch(run_of(changes, "string"), len(changes))
    expected = states([None] * ROWS, changes, "string")[-1]
    base = vector([None] * len(gathered), "string")
    assert isinstance(base, BytesVector)
    assert cells_of(patch.at(gathered).apply(base, 0)) == [expected[row] for row in gathered]


def _part(run: DeltaRun, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, Vector]:
    part = run.take(np.flatnonzero(mask))
    return part.rowids, part.timestamps, part.values

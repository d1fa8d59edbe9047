"""The history of a column: the same cells, wherever its changes lie."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.history import History, Moments, moments_of, within
from nyala.engine.delta.run import DeltaRun, invert
from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import Vector
from tests.engine.delta.written import sorted_run

ROWS = 5
CELLS = st.none() | st.text("ab", max_size=3)
CHANGES = st.lists(st.tuples(st.integers(0, ROWS - 1), CELLS), max_size=20)


def vector(cells: list[str | None]) -> Vector:
    return from_arrow(pa.array(cells, pa.string()), PhysicalType.BYTES)


def run_of(changes: list[tuple[int, str | None]], first: int) -> DeltaRun:
    """Change number i has timestamp ``first`` + i."""
    rowids = np.array([row for row, _ in changes], np.int32)
    timestamps = np.arange(first, first + len(changes), dtype=np.int64)
    return sorted_run(rowids, timestamps, vector([cell for _, cell in changes]))


def all_moments(count: int) -> Moments:
    """Every row at every timestamp from 0 to ``count`` + 1."""
    rows, timestamps = np.divmod(np.arange(ROWS * (count + 2)), count + 2)
    return Moments(rows, timestamps)


@given(st.lists(CELLS, min_size=ROWS, max_size=ROWS), CHANGES, st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_a_cell_is_the_same_wherever_its_changes_lie(
    oldest: list[str | None], changes: list[tuple[int, str | None]], cuts: list[int]
) -> None:
    first, base_at, last = sorted(min(cut, len(changes)) for cut in cuts)
    base, undo = vector(oldest), []
    for start, end in ((0, first), (first, base_at)):
        base, run = invert(base, run_of(changes[start:end], start + 1))
        undo = [run, *undo]
    redo = [run_of(changes[start:end], start + 1) for start, end in ((base_at, last), (last, len(changes)))]
    moments = all_moments(len(changes))
    history = History([run for run in undo if len(run)], [run for run in redo if len(run)])
    found = to_arrow(history.at(base.take(moments.rowids), moments), pa.string()).to_pylist()
    for row, timestamp, cell in zip(moments.rowids, moments.timestamps, found, strict=True):
        expected = next((new for at, new in reversed(changes[:timestamp]) if at == row), oldest[row])
        assert cell == expected


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9))), max_size=4))
def test_moments_are_ascending_and_each_there_once(parts: list[list[tuple[int, int]]]) -> None:
    given_parts = [
        (np.array([row for row, _ in part], np.int32), np.array([at for _, at in part], np.int64)) for part in parts
    ]
    moments = moments_of([*given_parts, *given_parts[-1:]])
    distinct = sorted({pair for part in parts for pair in part})
    assert list(zip(moments.rowids.tolist(), moments.timestamps.tolist(), strict=True)) == distinct
    last = moments.last_of_rows()
    assert dict(zip(last.rowids.tolist(), last.timestamps.tolist(), strict=True)) == dict(distinct)
    assert len(last) == len({row for row, _ in distinct})


def test_a_range_leaves_out_its_start_and_takes_its_end() -> None:
    rowids, timestamps = np.array([1, 1, 2], np.int32), np.array([5, 6, 7])
    found = within(rowids, timestamps, 5, 6)
    assert found is not None and [part.tolist() for part in found] == [[1], [6]]
    assert within(rowids, timestamps, 7, 9) is None and within(rowids, timestamps, 5, 5) is None

"""The tracker: deltas in files, in a frozen and in the active store read as one; what is touched and what is owed."""

import numpy as np

from nyala.engine.cfile.cache import PageCache
from nyala.engine.delta.file import ColumnEncoding, DeltaFile
from nyala.engine.delta.run import DeltaRun
from nyala.engine.delta.tracker import DeltaTracker
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector, Vector
from tests.engine.delta.written import write_delta_file

COLUMN, OTHER = 2, 3
ROWS = 6


def vector(*values: int) -> FixedVector:
    return FixedVector(np.array(values, np.int64))


def file_of(kind: str, number: int, rowids: list[int], timestamps: list[int], values: list[int]) -> DeltaFile:
    fs, path = MemoryFileSystem(), f"{number}.{kind}"
    run = DeltaRun(np.array(rowids, np.int32), np.array(timestamps, np.int64), vector(*values))
    how = {COLUMN: ColumnEncoding(PhysicalType.INT64, "plain", "none")}
    write_delta_file(fs, path, number, kind, 1, {COLUMN: run}, how)
    return DeltaFile.open(fs, path, number, kind, 1, PageCache())


def append(tracker: DeltaTracker, row: int, timestamp: int, value: int, lsn: int) -> None:
    columns: dict[int, tuple[PhysicalType, Vector]] = {COLUMN: (PhysicalType.INT64, vector(value))}
    tracker.active.append(FixedVector(np.array([row], np.int32)), vector(timestamp), columns, lsn)


def cells(tracker: DeltaTracker, snapshot: int) -> list[int]:
    base = vector(0, 10, 20, 30, 40, 50)
    found = tracker.apply(COLUMN, base, 0, snapshot)
    assert isinstance(found, FixedVector)
    for rows in ([0, 3, 5], [1], [2, 4]):
        at = np.array(rows, np.int64)
        some = tracker.apply_at(COLUMN, base.take(at), at, snapshot)
        assert isinstance(some, FixedVector) and some.values.tolist() == found.values[at].tolist()
    part = tracker.apply(COLUMN, base.slice(2, 5), 2, snapshot)
    assert isinstance(part, FixedVector) and part.values.tolist() == found.values[2:5].tolist()
    return found.values.tolist()


def tracker_at_100() -> DeltaTracker:
    """The base stands at 100. Row 1 was 8 before 60 and 9 before 90; row 2 is 21 from 110, 22 from 120 on."""
    tracker = DeltaTracker(base_timestamp=100)
    older = file_of("undo", 11, [1], [60], [8])
    newer = file_of("undo", 12, [1, 4], [90, 95], [9, 39])
    redo = (file_of("redo", 13, [2], [110], [21]), file_of("redo", 14, [2], [120], [22]))
    tracker.load((older, newer), redo)
    return tracker


def test_each_moment_of_the_history() -> None:
    tracker = tracker_at_100()
    append(tracker, 2, 130, 23, lsn=7)
    tracker.freeze()
    append(tracker, 2, 140, 24, lsn=8)
    append(tracker, 5, 150, 51, lsn=9)
    seen = {
        50: [0, 8, 20, 30, 39, 50],
        59: [0, 8, 20, 30, 39, 50],
        60: [0, 9, 20, 30, 39, 50],
        89: [0, 9, 20, 30, 39, 50],
        90: [0, 10, 20, 30, 39, 50],
        95: [0, 10, 20, 30, 40, 50],
        100: [0, 10, 20, 30, 40, 50],
        110: [0, 10, 21, 30, 40, 50],
        129: [0, 10, 22, 30, 40, 50],
        130: [0, 10, 23, 30, 40, 50],
        140: [0, 10, 24, 30, 40, 50],
        999: [0, 10, 24, 30, 40, 51],
    }
    assert {snapshot: cells(tracker, snapshot) for snapshot in seen} == seen


def test_a_column_is_touched_where_its_cells_may_differ_from_the_base() -> None:
    tracker = tracker_at_100()
    touched = {snapshot: tracker.touches(COLUMN, snapshot) for snapshot in (50, 94, 95, 99, 100, 109, 110, 999)}
    assert touched == {50: True, 94: True, 95: False, 99: False, 100: False, 109: False, 110: True, 999: True}
    assert not any(tracker.touches(OTHER, snapshot) for snapshot in (50, 100, 999))
    append(tracker, 0, 130, 1, lsn=1)
    assert tracker.touches(COLUMN, 100), "memory is not looked through"


def test_rows_without_deltas_are_not_touched() -> None:
    tracker = DeltaTracker(base_timestamp=0)
    for row in (5_000, 9_000):
        append(tracker, row, 10, 1, lsn=1)
    assert [tracker.touches(COLUMN, 10, first, first + 1000) for first in (0, 4_500, 5_001, 8_001, 9_001)] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_freezing_sets_aside_once_until_it_is_flushed() -> None:
    tracker = DeltaTracker(base_timestamp=0)
    assert tracker.freeze() is None and tracker.frozen is None
    append(tracker, 0, 10, 1, lsn=4)
    frozen = tracker.freeze()
    assert frozen is not None and tracker.frozen is frozen
    append(tracker, 0, 20, 2, lsn=6)
    assert tracker.freeze() is frozen, "a left-over goes first"
    assert tracker.first_lsn == 4
    assert cells(tracker, 15)[0] == 1 and cells(tracker, 25)[0] == 2


def test_what_is_in_no_file_is_owed_to_the_log() -> None:
    tracker = DeltaTracker(base_timestamp=0)
    assert tracker.first_lsn is None
    append(tracker, 0, 10, 1, lsn=4)
    append(tracker, 0, 11, 1, lsn=5)
    assert tracker.first_lsn == 4
    assert tracker.memory_bytes > 0

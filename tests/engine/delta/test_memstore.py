"""The DeltaMemStore: reads between appends, in any order of rows, of any sets of columns, against a replay."""

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.memstore import DeltaMemStore
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector, Vector
from tests.engine.delta.model import Change, redo_of, seen

COLUMN = 3
ROWS = 5_000


def append(
    store: DeltaMemStore, rowids: np.ndarray, timestamp: int, cells: dict[int, np.ndarray], lsn: int = 1
) -> None:
    columns: dict[int, tuple[PhysicalType, Vector]] = {
        column_id: (PhysicalType.INT64, FixedVector(values.astype(np.int64))) for column_id, values in cells.items()
    }
    timestamps = FixedVector(np.full(len(rowids), timestamp, np.int64))
    store.append(FixedVector(rowids.astype(np.int32)), timestamps, columns, lsn)


def read(store: DeltaMemStore, first: int, last: int, snapshot: int, column_id: int = COLUMN) -> dict[int, int]:
    log = store.log(column_id)
    return seen(log.patches(first, last, snapshot), first, last) if log else {}


def numbers(vector: Vector) -> list[int]:
    assert isinstance(vector, FixedVector)
    return vector.values.tolist()


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=8))
def test_every_snapshot_of_a_growing_store(seed, sizes):
    random = np.random.default_rng(seed)
    store, current, history = DeltaMemStore(), {}, [{}]
    for timestamp, size in enumerate(sizes, start=1):
        rowids = random.choice(ROWS, size, replace=False)
        values = random.integers(0, 99, size)
        append(store, rowids, timestamp, {COLUMN: values})
        current.update(zip(rowids.tolist(), values.tolist(), strict=True))
        history.append(dict(current))
        if random.random() < 0.5:  # reading sorts what has come
            assert read(store, 0, ROWS, timestamp) == current
    for snapshot, expected in enumerate(history):
        first, last = sorted(random.integers(0, ROWS, 2).tolist())
        assert read(store, first, last, snapshot) == {r: v for r, v in expected.items() if first <= r < last}


@given(seed=st.integers(0, 2**32))
def test_columns_that_part(seed):
    """Commits of any sets of columns, rows often more than once in one: each column reads as if it were alone."""
    random = np.random.default_rng(seed)
    store, changes = DeltaMemStore(), {column_id: [] for column_id in range(1, 6)}
    commits = int(random.integers(1, 15))
    sets = [set(range(1, 6)), {1, 2, 3}, {2}, {4, 5}, {1, 2, 3, 4, 5}]
    for timestamp in range(1, commits + 1):
        columns = sets[int(random.integers(len(sets)))]
        rowids = random.integers(0, 20, int(random.integers(1, 30)))
        cells = {column_id: random.integers(0, 1000, len(rowids)) for column_id in columns}
        append(store, rowids, timestamp, cells)
        for column_id, values in cells.items():
            changes[column_id] += list(zip(rowids.tolist(), [timestamp] * len(rowids), values.tolist(), strict=True))
        if random.random() < 0.4:
            assert_reads(store, changes, 0, 20, int(random.integers(timestamp + 2)))
    for snapshot in range(commits + 1):
        first, last = sorted(random.integers(0, 21, 2).tolist())
        assert_reads(store, changes, first, last, snapshot)
    for column_id, run in store.until(store.counts()).items():
        entries = list(zip(run.rowids.tolist(), run.timestamps.tolist(), numbers(run.values), strict=True))
        assert entries == sorted(changes[column_id], key=lambda change: change[0])
        log = store.log(column_id)
        assert log and sum(len(run) for run in log.runs(5, 15)) == sum(5 <= row < 15 for row, _, _ in entries)


def assert_reads(store: DeltaMemStore, changes: dict[int, list[Change]], first: int, last: int, snapshot: int) -> None:
    for column_id, known in changes.items():
        expected = redo_of([change for change in known if first <= change[0] < last], snapshot)
        assert read(store, first, last, snapshot, column_id) == expected


def test_columns_that_change_together_share_their_rows():
    store, rows = DeltaMemStore(), np.arange(1000)
    for timestamp in (1, 2, 3):
        append(store, rows, timestamp, dict.fromkeys(range(1, 9), rows))
    logs = [store.log(column_id) for column_id in range(1, 9)]
    assert len({id(log.rows) for log in logs if log}) == 1
    append(store, rows, 4, {2: rows, 5: rows})
    apart = {column_id: store.log(column_id) for column_id in range(1, 9)}
    assert {column_id for column_id, log in apart.items() if log and len(log) == 4000} == {2, 5}
    assert len({id(log.rows) for log in apart.values() if log}) == 2


def test_a_log_that_columns_part_from_is_as_long_as_each_of_them_for_ever():
    """A reader may have found it just before, and sort it only now: it looks up a cell of its column for each entry."""
    store, rows = DeltaMemStore(), np.arange(1000)
    append(store, rows, 1, dict.fromkeys((1, 2, 3), rows))
    first, third = store.log(1), store.log(3)
    assert first and third
    found = first.rows
    append(store, rows, 2, {1: rows})
    for timestamp in (3, 4, 5):
        append(store, rows, timestamp, {2: rows, 3: rows})
    assert (found.count, [run.last for run in found.runs(9)]) == (1000, [1000])
    assert (len(first), len(third)) == (2000, 4000)
    log = store.log(2)
    assert log and log.rows is third.rows  # those that stayed together share one still
    assert [read(store, 0, 1, snapshot, 2) for snapshot in (0, 1, 2, 3)] == [{}, {0: 0}, {0: 0}, {0: 0}]


def test_reading_while_it_grows():
    """Readers at a snapshot see all of a commit that was there before, and nothing of those after it."""
    store, done, failures = DeltaMemStore(), threading.Event(), []
    visible = [0]

    def look() -> None:
        random = np.random.default_rng(threading.get_ident())
        while not done.is_set():
            snapshot = int(random.integers(visible[0] + 1))
            column_id = int(random.integers(1, 4))
            first, last = sorted(random.integers(0, 201, 2).tolist())
            touched = [t for t in range(1, snapshot + 1) if column_id in columns_of(t)]
            expected = dict.fromkeys(range(first, last), touched[-1] * 10 + column_id) if touched else {}
            if (found := read(store, first, last, snapshot, column_id)) != expected:
                failures.append((snapshot, column_id, first, last, found))
                return

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    rows = np.arange(200)
    for timestamp in range(1, 400):
        cells = {column_id: np.full(200, timestamp * 10 + column_id) for column_id in columns_of(timestamp)}
        append(store, rows, timestamp, cells)
        visible[0] = timestamp
    done.set()
    for reader in readers:
        reader.join()
    assert not failures, failures[0]


def columns_of(timestamp: int) -> tuple[int, ...]:
    return ((1, 2, 3), (1, 2, 3), (2,), (1, 3))[timestamp % 4] if timestamp > 100 else (1, 2, 3)


def test_a_mark_divides_what_was_there_from_what_came_after():
    store = DeltaMemStore()
    append(store, np.array([4, 2]), 10, {COLUMN: np.array([40, 20])}, lsn=7)
    mark = store.counts()
    append(store, np.array([2]), 11, {COLUMN: np.array([21])}, lsn=8)
    assert store.until(mark)[COLUMN].rowids.tolist() == [2, 4]
    assert numbers(store.between(mark, store.counts())[COLUMN].values) == [21]
    assert store.first_lsn == 7


def test_an_empty_store_holds_no_part_of_the_log():
    store = DeltaMemStore()
    assert not store
    assert store.first_lsn is None
    assert store.log(COLUMN) is None

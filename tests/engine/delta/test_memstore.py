"""The DeltaMemStore: reads between appends, in any order of rows, against a replay."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.memstore import DeltaMemStore
from nyala.engine.delta.run import merge_patches
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector, Vector

COLUMN = 3
ROWS = 5_000


def append(store: DeltaMemStore, rowids: np.ndarray, timestamp: int, values: np.ndarray, lsn: int) -> None:
    columns = {COLUMN: (PhysicalType.INT64, FixedVector(values.astype(np.int64)))}
    timestamps = FixedVector(np.full(len(rowids), timestamp, np.int64))
    store.append(FixedVector(rowids.astype(np.int32)), timestamps, columns, lsn)


def read(store: DeltaMemStore, first: int, last: int, snapshot: int) -> dict[int, int]:
    log = store.log(COLUMN)
    patch = merge_patches(log.patches(first, last, snapshot)) if log else None
    return {} if patch is None else dict(zip(patch.rowids.tolist(), numbers(patch.values), strict=True))


def numbers(vector: Vector) -> list[int]:
    assert isinstance(vector, FixedVector)
    return vector.values.tolist()


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=8))
def test_every_snapshot_of_a_growing_store(seed, sizes):
    random = np.random.default_rng(seed)
    store, current, history = DeltaMemStore(), {}, [{}]
    for timestamp, size in enumerate(sizes, start=1):
        rowids = random.choice(ROWS, size, replace=False)
        values = random.integers(-99, 99, size)
        append(store, rowids, timestamp, values, lsn=timestamp)
        current.update(zip(rowids.tolist(), values.tolist(), strict=True))
        history.append(dict(current))
        if random.random() < 0.5:  # reading moves the sorted prefix
            assert read(store, 0, ROWS, timestamp) == current
    for snapshot, expected in enumerate(history):
        first, last = sorted(random.integers(0, ROWS, 2).tolist())
        assert read(store, first, last, snapshot) == {r: v for r, v in expected.items() if first <= r < last}


def test_a_mark_divides_what_was_there_from_what_came_after():
    store = DeltaMemStore()
    append(store, np.array([4, 2]), 10, np.array([40, 20]), lsn=7)
    mark = store.counts()
    append(store, np.array([2]), 11, np.array([21]), lsn=8)
    assert store.until(mark)[COLUMN].rowids.tolist() == [2, 4]
    assert numbers(store.between(mark, store.counts())[COLUMN].values) == [21]
    assert store.first_lsn == 7


def test_an_empty_store_holds_no_part_of_the_log():
    store = DeltaMemStore()
    assert not store
    assert store.first_lsn is None
    assert store.log(COLUMN) is None

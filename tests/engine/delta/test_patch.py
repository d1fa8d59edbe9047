"""Patches put cells in the place of others: every type, with and without NULLs, in place and beside it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.delta.cells import DeltaCells
from nyala.engine.delta.patch import Patch, RowPlaces, apply_all
from nyala.engine.delta.sorted_rows import SortedDeltas, sort_rows
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, Vector
from tests.engine.delta.model import cells_of, vector_of

TYPES = [pa.bool_(), pa.int16(), pa.int32(), pa.float64(), pa.decimal128(30, 2), pa.string()]
FIRST = 1000


def cell(random: np.random.Generator, arrow_type: pa.DataType, nulls: bool) -> object:
    if nulls and random.random() < 0.3:
        return None
    number = int(random.integers(0, 12))
    if arrow_type == pa.bool_():
        return bool(number % 2)
    return "x" * number + str(number) if arrow_type == pa.string() else number


def copy_of(vector: Vector) -> Vector:
    return vector.take(np.arange(len(vector)))


def dictionary_of(cells: list[object]) -> Vector:
    vector = from_arrow(pa.array(cells, pa.string()).dictionary_encode(), PhysicalType.BYTES)
    assert isinstance(vector, DictionaryVector)
    return vector


@pytest.mark.parametrize("arrow_type", TYPES, ids=str)
@given(seed=st.integers(0, 2**32))
def test_a_later_patch_wins(arrow_type, seed):
    random = np.random.default_rng(seed)
    physical = physical_of(arrow_type)
    base_nulls, new_nulls, is_own = random.random(3) < 0.5
    base = [cell(random, arrow_type, base_nulls) for _ in range(30)]
    expected, patches = list(base), []
    for _ in range(int(random.integers(1, 4))):
        rowids = np.sort(random.choice(60, int(random.integers(0, 40)), replace=False)).astype(np.int32) + FIRST - 15
        cells = [cell(random, arrow_type, new_nulls) for _ in rowids]
        places = random.permutation(len(rowids)).astype(np.int32)
        by_place = [cells[at] for at in np.argsort(places)]
        source = vector_of(by_place, arrow_type, physical)
        patches.append(Patch(RowPlaces(rowids, places), DeltaCells(source)))
        for row, new in zip(rowids - FIRST, cells, strict=True):
            if 0 <= row < len(base):
                expected[row] = new
    vectors = [vector_of(base, arrow_type, physical)]
    if arrow_type == pa.string():
        vectors.append(dictionary_of(base))
    for vector in vectors:
        kept = cells_of(vector, arrow_type)
        found = apply_all(patches, copy_of(vector) if is_own else vector, FIRST, is_own)
        assert cells_of(found, arrow_type) == expected
        assert not isinstance(found, BytesVector) or found.valid is None or not found.lengths[~found.valid].any()
        assert cells_of(vector, arrow_type) == kept, "nobody's cells were written over"
        rows = np.sort(random.choice(30, 10, replace=False)).astype(np.int64)
        gathered = apply_all((patch.at(rows + FIRST) for patch in patches), vector.take(rows), 0, False)
        assert cells_of(gathered, arrow_type) == [expected[row] for row in rows]


def test_a_dictionary_is_kept_and_extended_once() -> None:
    base = dictionary_of(["red", "green", "red", "blue"])
    assert isinstance(base, DictionaryVector)
    rows, words = np.arange(2, dtype=np.int32), pa.array(["green", "black"])
    known = Patch(RowPlaces(rows, rows), DeltaCells(from_arrow(pa.array(["green", "blue"]), PhysicalType.BYTES)))
    found = known.apply(base, 0)
    assert isinstance(found, DictionaryVector) and found.dictionary is base.dictionary
    new = Patch(RowPlaces(rows, rows), DeltaCells(from_arrow(words, PhysicalType.BYTES)))
    one, other = new.apply(base, 0), new.apply(base, 0)
    assert isinstance(one, DictionaryVector) and isinstance(other, DictionaryVector)
    assert one.dictionary is other.dictionary
    assert cells_of(one.dictionary, pa.string()) == ["red", "green", "blue", "black"]
    assert cells_of(one, pa.string()) == ["green", "black", "red", "blue"]


def test_a_dictionary_that_would_grow_too_large_is_given_up() -> None:
    base = dictionary_of(["red"] * 70_000)
    rows = np.arange(70_000, dtype=np.int32)
    words = pa.array([f"word {number}" for number in range(70_000)])
    found = Patch(RowPlaces(rows, rows), DeltaCells(from_arrow(words, PhysicalType.BYTES))).apply(base, 0)
    assert isinstance(found, BytesVector)
    assert cells_of(found, pa.string()) == words.to_pylist()


@given(rows=st.lists(st.integers(0, 2**31 - 1), max_size=300))
def test_rows_are_sorted_stably(rows):
    found, places = sort_rows(np.array(rows, np.int32))
    order = sorted(range(len(rows)), key=lambda at: rows[at])
    assert places.tolist() == order and found.tolist() == [rows[at] for at in order]


def test_timestamps_are_not_asked_for_when_a_snapshot_sees_all() -> None:
    def asked() -> np.ndarray:
        raise AssertionError("the timestamps were asked for")

    rows = SortedDeltas(np.array([3, 3, 8], np.int32), np.arange(3, dtype=np.int32), (5, 9), asked)
    last = rows.redo(0, 10, 9)
    assert last is not None and (last.rowids.tolist(), last.places.tolist()) == ([3, 8], [1, 2])
    assert rows.redo(0, 10, 4) is None and rows.undo(0, 10, 9) is None
    with pytest.raises(AssertionError):
        rows.redo(0, 10, 8)


@pytest.mark.parametrize(("narrow", "wide"), [(pa.int16(), pa.int64()), (pa.float32(), pa.float64())])
def test_a_column_that_was_widened_reads_its_older_deltas(narrow: pa.DataType, wide: pa.DataType) -> None:
    base = from_arrow(pa.array([1, 2, 3, 4], wide), physical_of(wide))
    rows = np.array([1, 3], np.int32)
    older = DeltaCells(from_arrow(pa.array([-7, None], narrow), physical_of(narrow)))
    patch = Patch(RowPlaces(rows, np.arange(2, dtype=np.int32)), older)
    for _ in range(2):
        assert cells_of(patch.apply(base, 0), wide) == [1, -7, 3, None]

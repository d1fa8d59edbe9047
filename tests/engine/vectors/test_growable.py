"""Columns that grow: what was read stays, also while another thread appends."""

import gc
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors import growable
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.growable import GrowableColumn
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector

from .conftest import byte_strings, bytes_vector, cells_of, compiled, dictionary_vector

lists_of_strings = st.lists(st.lists(st.none() | byte_strings, max_size=20), max_size=8)
lists_of_integers = st.lists(st.lists(st.none() | st.integers(-128, 127), max_size=20), max_size=8)


@compiled
@given(lists_of_strings, st.booleans())
def test_strings_append_and_every_earlier_view_stays(batches, as_dictionary):
    column, views, rows = GrowableColumn(PhysicalType.BYTES), [], []
    make = dictionary_vector if as_dictionary else bytes_vector
    for batch in batches:
        column.append(make([b"before", *batch]).slice(1, len(batch) + 1))
        rows += batch
        assert len(column) == len(rows)
        views.append((column.view(len(rows)), list(rows)))
    for view, expected in views:
        assert cells_of(view) == expected


@compiled
@given(lists_of_integers)
def test_integers_append_and_every_earlier_view_stays(batches):
    column, views, rows = GrowableColumn(PhysicalType.INT8), [], []
    for batch in batches:
        column.append(from_arrow(pa.array(batch, pa.int8()), PhysicalType.INT8))
        rows += batch
        views.append((column.view(len(rows)), list(rows)))
    for view, expected in views:
        assert cells_of(view, pa.int8()) == expected


def test_nothing_is_copied_by_a_view_and_growth_is_amortised():
    column = GrowableColumn(PhysicalType.INT64)
    moves, place = 0, None
    for _ in range(2_000):
        column.append(FixedVector(np.arange(100)))
        view = column.view(len(column))
        assert isinstance(view, FixedVector)
        address = view.values.__array_interface__["data"][0]
        moves, place = moves + (address != place), address
    assert moves < 12
    assert 200_000 * 8 <= column.nbytes <= 2 * 200_000 * 8
    assert column.filled_bytes == 200_000 * 8


@pytest.mark.parametrize("is_reserved", [True, False])
def test_a_large_column_moves_seldom_and_counts_what_it_fills(monkeypatch, is_reserved):
    """Also on a system that promises no more memory than it has."""
    if not is_reserved:
        monkeypatch.setattr(growable.COLUMNS, "reserve", refused)
    column, numbers = GrowableColumn(PhysicalType.INT64), np.arange(100_000)
    places = set()
    for _ in range(100):
        column.append(FixedVector(numbers))
        view = column.view(len(column))
        assert isinstance(view, FixedVector)
        places.add(view.values.__array_interface__["data"][0])
        if is_reserved:
            assert column.nbytes <= 8 * len(column) + (2 << 20)
    assert np.array_equal(view.values, np.tile(numbers, 100))
    assert len(places) <= (6 if is_reserved else 12)


def refused(length):
    raise OSError(12, "cannot allocate memory")


def test_rows_survive_every_growth():
    strings, numbers = GrowableColumn(PhysicalType.BYTES), GrowableColumn(PhysicalType.INT16)
    cells = [None if row % 50 == 49 else b"row %d" % row for row in range(20_000)]
    rows = [None if cell is None else row for row, cell in enumerate(cells)]
    for first in range(0, len(cells), 333):
        strings.append(bytes_vector(cells[first : first + 333]))
        batch = pa.array(rows[first : first + 333], pa.int16())
        numbers.append(from_arrow(batch, PhysicalType.INT16))
    assert cells_of(strings.view(len(cells))) == cells
    assert cells_of(numbers.view(len(rows)), pa.int16()) == rows


def test_an_append_that_does_not_fit_changes_nothing(monkeypatch):
    monkeypatch.setattr(growable, "MAX_DATA_BYTES", 10)
    column = GrowableColumn(PhysicalType.BYTES)
    column.append(bytes_vector([b"123456", None]))
    with pytest.raises(OverflowError):
        column.append(bytes_vector([b"123456"]))
    assert len(column) == 2
    assert cells_of(column.view(2)) == [b"123456", None]


def test_an_interrupted_constructor_leaves_nothing_to_say(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    monkeypatch.setattr(growable, "allocate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        GrowableColumn(PhysicalType.INT64)
    gc.collect()
    assert not unraisable


def test_a_reader_beside_an_appender_sees_whole_rows():
    numbers, strings = GrowableColumn(PhysicalType.INT64), GrowableColumn(PhysicalType.BYTES)
    published = [0]
    done, failures = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            count = published[0]
            fixed, cells = numbers.view(count), strings.view(count)
            assert isinstance(fixed, FixedVector)
            assert isinstance(cells, BytesVector)
            expected = np.arange(count)
            filled = expected % 1000 != 777
            valid = np.ones(count, bool) if cells.valid is None else cells.valid
            whole = (fixed.values == expected).all() and (valid == filled).all()
            if not whole or (cells.lengths != expected % 7 * filled).any():
                failures.append(count)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for first in range(0, 60_000, 61):
        rows = range(first, first + 61)
        numbers.append(FixedVector(np.arange(first, first + 61)))
        cells = [None if row % 1000 == 777 else b"x" * (row % 7) for row in rows]
        vector = bytes_vector(cells)
        strings.append(vector)
        published[0] = first + 61
    done.set()
    for reader in readers:
        reader.join()
    assert not failures

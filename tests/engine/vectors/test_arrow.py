"""Arrays of every accepted type, sliced anywhere, there and back; what is refused."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.vectors import gather
from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.physical import PhysicalType, physical_of
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector

from .conftest import compiled


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    numbers = st.integers(-largest, largest) | st.sampled_from([-largest, largest])
    return numbers.map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale)))


CASES = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us"): st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.time32("ms"): st.times().map(lambda cell: cell.replace(microsecond=cell.microsecond // 1000 * 1000)),
    pa.time64("ns"): st.times(),
    pa.duration("us"): st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    pa.month_day_nano_interval(): st.tuples(*[st.integers(-9, 9)] * 3).map(pa.MonthDayNano),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 5): decimals(38, 5),
    pa.string(): st.text(max_size=20),
    pa.large_string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.large_binary(): st.binary(max_size=20),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["", "a", "bb"]),
    pa.dictionary(pa.int64(), pa.binary()): st.sampled_from([b"", b"a", b"bb"]),
}


@pytest.mark.parametrize("arrow_type", CASES, ids=str)
@compiled
@given(data=st.data())
def test_there_and_back(arrow_type, data):
    cells = data.draw(st.lists(st.none() | CASES[arrow_type], max_size=40))
    first = data.draw(st.integers(0, len(cells)))
    last = data.draw(st.integers(first, len(cells)))
    array = pa.array(cells, arrow_type).slice(first, last - first)
    vector = from_arrow(array, physical_of(arrow_type))
    back = to_arrow(vector, arrow_type)
    back.validate(full=True)
    assert back.to_pylist() == cells[first:last]
    assert len(vector) == last - first
    if array.null_count == 0:
        assert vector.valid is None


@pytest.mark.parametrize("arrow_type", [kind for kind in CASES if physical_of(kind).width], ids=str)
def test_what_arrow_leaves_under_nulls_is_cleared(arrow_type):
    garbage = np.full(3 * 16, 0xFF, np.uint8)
    bitmap = pa.py_buffer(np.array([0b101], np.uint8))
    array = pa.Array.from_buffers(arrow_type, 3, [bitmap, pa.py_buffer(garbage)])
    vector = from_arrow(array, physical_of(arrow_type))
    assert isinstance(vector, FixedVector)
    assert vector.values[1:2].tobytes() == bytes(vector.values.dtype.itemsize)
    assert vector.values[2:3].tobytes() != bytes(vector.values.dtype.itemsize)
    assert (garbage == 0xFF).all(), "the array itself was written to"


def test_strings_under_nulls_are_emptied():
    offsets = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    bitmap = pa.py_buffer(np.array([0b101], np.uint8))
    array = pa.Array.from_buffers(pa.string(), 3, [bitmap, offsets, pa.py_buffer(b"ab???c")])
    vector = from_arrow(array, PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    assert vector.lengths.tolist() == [2, 0, 1]
    assert vector.data.tobytes() == b"abc"


def test_codes_under_nulls_are_zero():
    codes = np.array([1, 7, 0], np.int32)
    bitmap = pa.py_buffer(np.array([0b101], np.uint8))
    indices = pa.Array.from_buffers(pa.int32(), 3, [bitmap, pa.py_buffer(codes)])
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["x", "y"]), safe=False)
    vector = from_arrow(array, PhysicalType.BYTES)
    assert isinstance(vector, DictionaryVector)
    assert vector.codes.tolist() == [1, 0, 0]


def test_fixed_widths_and_strings_are_not_copied():
    numbers = pa.array([1, 2, 3])
    strings = pa.array(["a", "bc"])
    for array, buffer in ((numbers, 1), (strings, 2)):
        vector = from_arrow(array, physical_of(array.type))
        back = to_arrow(vector, array.type)
        assert back.buffers()[buffer].address == array.buffers()[buffer].address
        if array is strings:
            assert back.buffers()[1].address == array.buffers()[1].address


def test_a_dictionary_comes_back_when_asked_for():
    array = pa.array(["a", None, "b", "a"]).dictionary_encode()
    vector = from_arrow(array, PhysicalType.BYTES)
    assert to_arrow(vector, pa.string(), dictionary=True).equals(array)
    assert to_arrow(vector, pa.string()).equals(array.dictionary_decode())


def test_a_dictionary_with_a_null_value_is_written_out():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    vector = from_arrow(array, PhysicalType.BYTES)
    assert to_arrow(vector, pa.string()).to_pylist() == ["a", None, None]


def test_a_dictionary_of_numbers_is_decoded():
    vector = from_arrow(pa.array([5, 6, 5]).dictionary_encode(), PhysicalType.INT64)
    assert isinstance(vector, FixedVector)
    assert vector.values.tolist() == [5, 6, 5]


@pytest.mark.parametrize("arrow_type", [pa.timestamp("ns"), pa.null(), pa.date64(), pa.binary(2)], ids=str)
def test_a_type_that_is_not_kept_is_refused_by_name(arrow_type):
    with pytest.raises(TypeError, match=str(arrow_type).replace("[", r"\[").split("<")[0]):
        physical_of(arrow_type)


def test_a_type_is_not_read_as_another():
    with pytest.raises(TypeError):
        from_arrow(pa.array([1.5]), PhysicalType.INT64)
    with pytest.raises(TypeError):
        from_arrow(pa.array([Decimal("1.0")], pa.decimal128(18, 1)), PhysicalType.INT32)


@pytest.mark.parametrize("low_high", [(2**31, 0), (-1, 0), (0, 1), (5, -1)])
def test_a_decimal_beyond_its_precision_is_refused(low_high):
    cells = pa.py_buffer(np.array(low_high, np.int64))
    array = pa.Array.from_buffers(pa.decimal128(9, 0), 1, [None, cells])
    with pytest.raises(OverflowError):
        from_arrow(array, PhysicalType.INT32)


def test_a_large_string_beyond_int32_is_refused(monkeypatch):
    monkeypatch.setattr(gather, "MAX_DATA_BYTES", 4)
    array = pa.array(["abc", "de"], pa.large_string())
    with pytest.raises(OverflowError):
        from_arrow(array, PhysicalType.BYTES)
    assert len(from_arrow(array.slice(1), PhysicalType.BYTES)) == 1


def test_misaligned_buffers_are_copied_to_aligned_ones():
    raw = np.zeros(8 * 4 + 1, np.uint8)
    raw[1:] = np.array([1, -2, 3, 4], np.int64).view(np.uint8)
    array = pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(raw[1:])])
    vector = from_arrow(array, PhysicalType.INT64)
    assert isinstance(vector, FixedVector)
    assert vector.values.flags.aligned
    assert vector.values.tolist() == [1, -2, 3, 4]


def test_an_empty_array_may_have_empty_buffers():
    nothing = pa.py_buffer(b"")
    for arrow_type in (pa.string(), pa.large_binary(), pa.int32(), pa.bool_()):
        buffers = [None, nothing]
        if physical_of(arrow_type) is PhysicalType.BYTES:
            buffers = [None, None, nothing]
        array = pa.Array.from_buffers(arrow_type, 0, buffers)
        vector = from_arrow(array, physical_of(arrow_type))
        assert to_arrow(vector, arrow_type).to_pylist() == []


def test_a_message_has_nothing_of_what_lies_behind_the_strings():
    """Arrow pads a message from what the buffer has; columns of a MemRowSet have memory that other rows had before."""
    data = np.frombuffer(b"abc" + b"of another table" * 100, np.uint8)
    for offsets in ([0, 1, 3], [1, 2, 3]):
        array = to_arrow(BytesVector(np.array(offsets, np.int32), data, None), pa.string())
        assert "".join(array.to_pylist()) == "abc"[offsets[0] : offsets[-1]]
        batch = pa.record_batch([array], ["s"])
        with pa.ipc.new_stream(sink := pa.BufferOutputStream(), batch.schema) as writer:
            writer.write_batch(batch)
        assert b"another" not in sink.getvalue().to_pybytes()
        assert array.buffers()[2].size == offsets[-1] - offsets[0]

"""Nested arrays of any types as byte strings, and back; strings that are none."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.nested import MalformedCellError, nested_sizes
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, Vector, concat, patch

from .nested_values import arrays

DOSE = settings(deadline=None)


def bytes_of(array: pa.Array) -> BytesVector:
    vector = from_arrow(array, PhysicalType.BYTES)
    assert isinstance(vector, BytesVector)
    return vector


def array_of(vector: Vector, kind: pa.DataType) -> pa.Array:
    array = to_arrow(vector, kind)
    array.validate(full=True)
    return array


@DOSE
@given(array=arrays())
def test_there_and_back(array):
    vector = bytes_of(array)
    back = array_of(vector, array.type)
    assert back.equals(array)
    assert back.type == array.type
    assert nested_sizes(array).tolist() == vector.lengths.tolist()


@DOSE
@given(array=arrays(), data=st.data())
def test_rows_may_be_taken_joined_and_patched(array, data):
    vector = bytes_of(array)
    rows = np.array(data.draw(st.lists(st.integers(0, max(len(array) - 1, 0)), max_size=8 if len(array) else 0)), int)
    taken = vector.take(rows)
    assert array_of(taken, array.type).equals(array.take(pa.array(rows)))
    joined = concat([vector, taken, vector.slice(0, len(array) // 2)])
    assert len(array_of(joined, array.type)) == len(joined)
    if len(array):
        places = np.unique(rows)
        patched = patch(vector, places, vector.slice(0, 1).take(np.zeros(len(places), int)))
        expected = [array[0] if row in places else array[row] for row in range(len(array))]
        assert array_of(patched, array.type).to_pylist() == [cell.as_py() for cell in expected]


@DOSE
@given(array=arrays(), data=st.data())
def test_equal_cells_have_equal_bytes(array, data):
    """Whatever lies under NULL, and wherever the items lie."""
    shuffled = array.take(pa.array(np.arange(len(array))[::-1].copy())).take(
        pa.array(np.arange(len(array))[::-1].copy())
    )
    one, other = bytes_of(array), bytes_of(shuffled)
    assert one.offsets.tolist() == other.offsets.tolist()
    assert one.data.tobytes() == other.data.tobytes()


@DOSE
@given(array=arrays(depth=3, rows=3), data=st.data())
def test_bytes_that_are_no_cell_are_refused_or_are_another_cell(array, data):
    """No flipped byte, and no cut, makes a kernel read what lies outside of the cell."""
    vector = bytes_of(array)
    if not vector.data_bytes:
        return
    cells = vector.data[: vector.offsets[-1]].copy()
    place = data.draw(st.integers(0, len(cells) - 1))
    cells[place] = data.draw(st.integers(0, 255))
    try:
        to_arrow(BytesVector(vector.offsets, cells, vector.valid), array.type)
    except MalformedCellError as error:
        assert str(array.type).partition("<")[0] in str(error) or "is not a" in str(error)


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (pa.list_(pa.int32()), "0100"),  # no count
        (pa.list_(pa.int32()), "01000000 0000"),  # an item is cut
        (pa.list_(pa.int32()), "01000000 00000000 00"),  # a byte too many
        (pa.list_(pa.int32()), "ffffff7f"),  # items that are not there
        (pa.list_(pa.string()), "01000000 05000000 61"),  # a text is cut
        (pa.list_(pa.string()), "01000080 00 01000000 61"),  # a NULL with bytes
        (pa.list_(pa.int8(), 2), "01000000 05"),  # one item instead of two
        (pa.struct([("a", pa.int8())]), "01"),  # no field
        (pa.struct([("a", pa.string())]), "01 02000000 61"),  # a text is cut
        (pa.struct([("a", pa.string())]), "00 01000000 61"),  # a NULL with bytes
        (pa.map_(pa.string(), pa.int8()), "01000000 02000000 0300"),  # a pair without its head
    ],
)
def test_a_cell_that_contradicts_itself_is_refused(kind, cell):
    data = np.frombuffer(bytes.fromhex(cell), np.uint8)
    with pytest.raises(MalformedCellError, match="is not a"):
        to_arrow(BytesVector(np.array([0, len(data)], np.int32), data), kind)


@pytest.mark.parametrize(
    "cell",
    ["01000000 07000000 02 00000000 0100", "01000080 00 00000000"],
    ids=["a key is NULL", "a pair is NULL"],
)
@pytest.mark.parametrize("depth", [0, 1])
def test_a_map_without_a_key_is_refused(cell: str, depth: int) -> None:
    """Arrow ends the process if it is given such a map."""
    kind, data = pa.map_(pa.string(), pa.int16()), bytes.fromhex(cell)
    for _ in range(depth):
        kind, data = pa.list_(kind), b"\x01\0\0\0" + len(data).to_bytes(4, "little") + data
    cells = np.frombuffer(data, np.uint8)
    with pytest.raises(MalformedCellError, match="a key is NULL"):
        to_arrow(BytesVector(np.array([0, len(cells)], np.int32), cells), kind)

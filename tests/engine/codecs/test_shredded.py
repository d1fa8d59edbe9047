"""Nested cells taken apart: they come back as they were, and damaged pages are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.shredded import ShreddedCodec
from nyala.engine.vectors.arrow import from_arrow, to_arrow
from nyala.engine.vectors.nested import MalformedCellError
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector
from nyala.schemas.cells.types import LogicalType
from tests.engine.vectors.nested_values import arrays

DOSE = settings(deadline=None)
BYTES = PhysicalType.BYTES


def cells_of(array: pa.Array) -> BytesVector:
    vector = from_arrow(array, BYTES)
    assert isinstance(vector, BytesVector)
    return BytesVector(vector.offsets, vector.data)


def payload_of(array: pa.Array) -> np.ndarray:
    return ShreddedCodec(str(LogicalType.of(array.type))).encode(cells_of(array), BYTES)


def parts_of(vector: BytesVector) -> list[bytes]:
    return [vector.data[first:last].tobytes() for first, last in zip(vector.offsets, vector.offsets[1:], strict=False)]


@DOSE
@given(array=arrays(), data=st.data())
def test_cells_come_back(array, data):
    cells, payload, rows = cells_of(array), payload_of(array), len(array)
    codec = ShreddedCodec()
    codec.check(payload, BYTES, rows)
    first = data.draw(st.integers(0, rows))
    last = data.draw(st.integers(first, rows))
    assert parts_of(codec.decode(payload, BYTES, rows, first, last)) == parts_of(cells)[first:last]
    picked = data.draw(st.lists(st.integers(0, max(rows - 1, 0)), max_size=5 if rows else 0))
    found = codec.gather(payload, BYTES, rows, np.array(picked, np.int64))
    assert parts_of(found) == [parts_of(cells)[row] for row in picked]
    assert list(codec.ranges_of_row(payload, BYTES, rows, 0)) == [(0, len(payload))]


@DOSE
@given(array=arrays(depth=3, rows=4), data=st.data())
def test_a_damaged_page_is_refused_or_has_other_cells(array, data):
    """A forged page, with a right checksum, makes no kernel read or write outside of it."""
    payload = payload_of(array).copy()
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    payload = payload[
        : data.draw(st.sampled_from([len(payload), len(payload), data.draw(st.integers(0, len(payload)))]))
    ]
    rows = data.draw(st.sampled_from([len(array), len(array), len(array) + 1]))
    codec = ShreddedCodec()
    try:
        codec.check(payload, BYTES, rows)
        cells = codec.decode(payload, BYTES, rows, 0, rows)
        assert len(cells) == rows
        valid = cells.lengths > 0
        to_arrow(BytesVector(cells.offsets, cells.data, valid), array.type)
    except (CorruptPageError, MalformedCellError):
        pass


def test_a_map_without_a_key_is_refused():
    """Arrow ends the process if it is given such a map. The third stream is the validity of the keys."""
    payload = payload_of(pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int16())))
    count, text = 7, payload[: 2 + int(payload[:2].view(np.uint16)[0])].tobytes()
    directory = payload[len(text) : len(text) + 4 * count].tobytes()
    streams = payload[len(text) + 4 * count :].tobytes()
    ends = np.frombuffer(directory, np.uint32).copy()
    assert ends[2] == ends[1]
    ends[2:] += 1
    forged = b"".join([text, ends.tobytes(), streams[: ends[1]], b"\0", streams[ends[1] :]])
    with pytest.raises(CorruptPageError, match="a key of a map is NULL"):
        ShreddedCodec().decode(np.frombuffer(forged, np.uint8), BYTES, 1, 0, 1)


def test_many_items_are_stored_in_pieces():
    array = pa.array([list(range(70_000)), None, list(range(70_000, 140_000))])
    payload = payload_of(array)
    assert len(payload) < array.nbytes / 2
    assert parts_of(ShreddedCodec().decode(payload, BYTES, 3, 0, 3)) == parts_of(cells_of(array))


@pytest.mark.parametrize("text", ["int64", "list<nothing>", "struct<a: int8", "\udcff"])
def test_a_page_of_no_nested_type_is_refused(text):
    name = text.encode(errors="surrogateescape")
    payload = np.frombuffer(np.array([len(name)], np.uint16).tobytes() + name + bytes(64), np.uint8)
    with pytest.raises(CorruptPageError, match="type"):
        ShreddedCodec().check(payload, BYTES, 1)

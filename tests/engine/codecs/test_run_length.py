"""Both forms of a run-length page, and runs as numpy finds them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.plain import PlainCodec
from nyala.engine.codecs.run_length import RunLengthCodec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import FixedVector

CODEC = RunLengthCodec()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-128, 127), st.integers(1, 200)), min_size=1, max_size=40),
    st.sampled_from(["int8", "int16", "int32", "int64"]),
)
def test_runs_are_those_of_the_cells(runs, name):
    physical = PhysicalType(name)
    cells, lengths = zip(*runs, strict=True)
    values = np.repeat(np.array(cells, physical.dtype), lengths)
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    payload = CODEC.encode(FixedVector(values), physical)
    count = int(payload[:4].view("<u4")[0])
    if count == 0:  # many short runs: stored plain
        assert len(ends) * (2 + physical.width) >= values.nbytes
        return
    assert count == len(ends)
    assert payload[4 : 4 + 2 * count].view("<u2").tolist() == ends.tolist()
    assert payload[4 + 2 * count :].view(physical.dtype).tolist() == values[ends].tolist()


@pytest.mark.parametrize("rows", [0, 1, 1000, 65_536])
@pytest.mark.parametrize("physical", [PhysicalType.BOOL, PhysicalType.INT64])
def test_never_more_than_four_bytes_above_plain(physical, rows):
    values = np.random.default_rng(rows).integers(0, 2, rows).astype(physical.dtype)
    values += (np.arange(rows) % 2).astype(physical.dtype) * (physical is PhysicalType.INT64)
    vector = FixedVector(values)
    plain = PlainCodec().encode(vector, physical)
    assert len(CODEC.encode(vector, physical)) <= 4 + len(plain)


def test_a_page_of_one_run_is_a_few_bytes():
    vector = FixedVector(np.full(65_536, -5, np.int64))
    assert len(CODEC.encode(vector, PhysicalType.INT64)) == 4 + 2 + 8


@pytest.mark.parametrize(
    ("last", "value", "why"),
    [([4, 4, 9], [0, 1, 0], "ascending"), ([4, 6, 8], [0, 1, 0], "row 8"), ([4, 6, 9], [0, 2, 0], "0 nor 1")],
)
def test_runs_that_contradict_the_page_are_refused(last, value, why):
    payload = np.concatenate(
        [
            np.array([3], "<u4").view(np.uint8),
            np.array(last, "<u2").view(np.uint8),
            np.array(value, np.uint8),
        ]
    )
    with pytest.raises(CorruptPageError, match=why):
        CODEC.check(payload, PhysicalType.BOOL, 10)

"""The checksum of rows: by what it may and may not change, and by numbers worked out another way."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.clients.jobs.backup.row_hash import Sums, row_hashes

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & MASK
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def word(value: object) -> int:
    """The word of a cell, by the table in the docstring of row_hash."""
    if isinstance(value, float):
        return 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value))[0]
    if isinstance(value, int):
        return value & MASK
    data = value.encode() if isinstance(value, str) else value
    assert isinstance(data, bytes)
    words = struct.unpack(f"<{(len(data) + 7) // 8}Q", data + bytes(-len(data) % 8))
    return mix(sum(mix((each + (i + 1) * GOLDEN) & MASK) for i, each in enumerate(words)) + len(data) * GOLDEN & MASK)


def slow_hash(row: dict[str, object]) -> int:
    total = 0
    for name, value in row.items():
        seed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
        total += mix(mix(seed + 1 & MASK)) if value is None else mix(word(value) ^ seed)
    return mix(total & MASK)


CELLS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        "b": st.none() | st.floats(),
        "c": st.none() | st.text(max_size=30),
        "d": st.none() | st.binary(max_size=30),
    }
)
ROW = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string()), ("d", pa.binary())])


@given(st.lists(CELLS, max_size=20), st.integers(0, 5))
def test_hashes_are_those_of_the_definition(rows: list[dict[str, object]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=ROW).slice(start)
    assert row_hashes(batch).tolist() == [slow_hash(row) for row in rows[start:]]


def one(values: pa.Array, name: str = "a") -> int:
    return int(row_hashes(pa.record_batch([values], names=[name]))[0])


def test_what_is_equal_has_one_hash() -> None:
    assert one(pa.array([-5], pa.int8())) == one(pa.array([-5], pa.int64()))
    assert one(pa.array([0.5], pa.float32())) == one(pa.array([0.5], pa.float64()))
    assert one(pa.array(["x"])) == one(pa.array(["x"], pa.large_string()))
    other_nan = np.frombuffer(struct.pack("<Q", 0xFFF8000000000123), "<f8")
    assert one(pa.array([float("nan")])) == one(pa.array(other_nan))
    narrow = pa.array(["-1.25"]).cast(pa.decimal128(5, 2))
    assert one(narrow) == one(narrow.cast(pa.decimal128(30, 2)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([None], pa.int64()), pa.array([0], pa.int64())),
        (pa.array([None], pa.string()), pa.array([""])),
        (pa.array(["a"]), pa.array(["a\0"])),
        (pa.array(["a" * 8 + "b" * 8]), pa.array(["b" * 8 + "a" * 8])),
        (pa.array(["1"]).cast(pa.decimal128(38, 0)), pa.array(["-1"]).cast(pa.decimal128(38, 0))),
    ],
)
def test_what_differs_has_two(left: pa.Array, right: pa.Array) -> None:
    assert one(left) != one(right)


def test_values_may_not_change_columns() -> None:
    there = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "b"])
    swapped = pa.record_batch([pa.array([2]), pa.array([1])], names=["a", "b"])
    assert row_hashes(there)[0] != row_hashes(swapped)[0]
    assert row_hashes(there)[0] == row_hashes(there.select(["b", "a"]))[0]


def test_sums_depend_on_no_order() -> None:
    batch = pa.record_batch([pa.array(range(1000)), pa.array([str(i) for i in range(1000)])], names=["id", "text"])
    whole, parts = Sums(), Sums()
    whole.add(batch, ["id"])
    for start in (600, 0):
        part = Sums()
        part.add(batch.slice(start, 600 if start == 0 else None), ["id"])
        parts.merge(part)
    assert (whole.count, whole.text) == (parts.count, parts.text) == (1000, whole.text)
    assert (whole.sums == parts.sums).all()

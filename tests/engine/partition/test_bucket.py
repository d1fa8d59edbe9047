"""Buckets are Spark's: values of ``xxhash64`` on every type that a key may have."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.partition.bucket import _big_integers, bucket_of, buckets_of
from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.physical import physical_of
from nyala.engine.vectors.raw_cell import raw_cell
from nyala.engine.vectors.vector import FixedVector
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.table.column import ColumnSchema
from nyala.schemas.table.partition_schema import HashSchema

EVERYTHING = 1 << 62
"""So many buckets that two hashes differ where their buckets do."""

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def lane(accumulator: int, word: int) -> int:
    return rotated((accumulator + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes, seed: int) -> int:
    """The algorithm as its specification says it, in numbers without end."""
    rest = data
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while len(rest) >= 32:
            words = [int.from_bytes(rest[8 * i : 8 * i + 8], "little") for i in range(4)]
            lanes = [lane(old, word) for old, word in zip(lanes, words, strict=True)]
            rest = rest[32:]
        state = sum(rotated(each, bits) for each, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for each in lanes:
            state = ((state ^ lane(0, each)) * _P1 + _P4) & _MASK
    else:
        state = (seed + _P5) & _MASK
    state = (state + len(data)) & _MASK
    while len(rest) >= 8:
        state = (rotated(state ^ lane(0, int.from_bytes(rest[:8], "little")), 27) * _P1 + _P4) & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        state = (rotated(state ^ (int.from_bytes(rest[:4], "little") * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        rest = rest[4:]
    for byte in rest:
        state = rotated(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ (state >> 33)) * _P2 & _MASK
    state = (state ^ (state >> 29)) * _P3 & _MASK
    return state ^ (state >> 32)


def test_the_specification_is_the_one_that_is_published() -> None:
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999


def column(number: int, kind: str) -> ColumnSchema:
    return ColumnSchema(id=number, name=f"c{number}", type=kind, nullable=False, encoding="plain", compression="none")


def hashed(*columns: tuple[str, list], buckets: int = EVERYTHING, seed: int = 0) -> list[int]:
    schemas = [column(number, kind) for number, (kind, _) in enumerate(columns, 1)]
    cells = {}
    for schema, (kind, values) in zip(schemas, columns, strict=True):
        arrow = LogicalType.parse(kind).arrow
        cells[schema.id] = from_arrow(pa.array(values, arrow), physical_of(arrow))
    level = HashSchema(columns=tuple(schema.id for schema in schemas), buckets=buckets, seed=seed)
    together = buckets_of(level, cells, schemas).tolist()
    rows = [[raw_cell(cells[schema.id], row) for schema in schemas] for row in range(len(together))]
    assert [bucket_of(level, row, schemas) for row in rows] == together, "a row alone has the same bucket"
    return together


def test_the_example_of_sparks_documentation() -> None:
    """``SELECT xxhash64('Spark', array(123), 2)`` is 5602566077635097486; an array is hashed cell by cell."""
    assert hashed(("string", ["Spark"]), ("int32", [123]), ("int32", [2])) == [5602566077635097486 % EVERYTHING]


def signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


TEXTS = ["", "a", "abc", "abcd", "seven77", "eight888", "x" * 31, "y" * 32, "z" * 33, "\u96ea" * 30, "q" * 64, "\0"]
CELLS = {
    "int8": ([-128, -1, 0, 127], lambda cell: cell.to_bytes(4, "little", signed=True)),
    "int16": ([-32768, -1, 0, 32767], lambda cell: cell.to_bytes(4, "little", signed=True)),
    "int32": ([-(1 << 31), -1, 0, (1 << 31) - 1], lambda cell: cell.to_bytes(4, "little", signed=True)),
    "int64": ([-(1 << 63), -1, 0, (1 << 63) - 1], lambda cell: cell.to_bytes(8, "little", signed=True)),
    "date": (
        [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2013, 1, 2)],
        lambda cell: (cell - dt.date(1970, 1, 1)).days.to_bytes(4, "little", signed=True),
    ),
    "timestamp[us]": (
        [dt.datetime(1969, 1, 1), dt.datetime(2013, 1, 2, 3, 4, 5, 6)],
        lambda cell: ((cell - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)).to_bytes(
            8, "little", signed=True
        ),
    ),
    "decimal(4,2)": (
        [Decimal("-99.99"), Decimal("0.01")],
        lambda cell: int(cell.scaleb(2)).to_bytes(8, "little", signed=True),
    ),
    "decimal(18,0)": ([Decimal(10**18 - 1), Decimal(-7)], lambda cell: int(cell).to_bytes(8, "little", signed=True)),
    "decimal(38,0)": (
        [Decimal(value) for value in (0, 1, -1, 127, 128, -128, -129, 1 << 64, -(10**37), 10**37)],
        lambda cell: int(cell).to_bytes(
            (int(cell) if cell >= 0 else ~int(cell)).bit_length() // 8 + 1, "big", signed=True
        ),
    ),
    "string": (TEXTS, str.encode),
    "varchar(70)": (TEXTS, str.encode),
    "binary": ([text.encode() for text in TEXTS], bytes),
}


@pytest.mark.parametrize("kind", CELLS)
def test_every_type_is_hashed_as_spark_does(kind: str) -> None:
    values, as_bytes = CELLS[kind]
    assert hashed((kind, values)) == [signed(xxh64(as_bytes(value), 42)) % EVERYTHING for value in values]


def test_columns_are_chained_and_a_seed_goes_before_them() -> None:
    state = xxh64((7).to_bytes(4, "little"), 42)
    state = xxh64(b"LAX", state)
    state = xxh64((5).to_bytes(8, "little"), state)
    assert hashed(("string", ["LAX"]), ("int64", [5]), seed=7) == [signed(state) % EVERYTHING]


def test_buckets_are_floor_modulo_and_even() -> None:
    found = hashed(("int64", list(range(-5000, 5000))), buckets=7)
    counts = np.bincount(found, minlength=7)
    assert len(counts) == 7 and counts.min() > 1300


def test_big_integers_have_no_needless_bytes() -> None:
    values = [0, -1, 1, 127, 128, -128, -129, 255, 256, 1 << 63, -(1 << 63), 10**38 - 1, 1 - 10**38]
    array = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0))
    vector = from_arrow(array, physical_of(array.type))
    assert isinstance(vector, FixedVector)
    strings = _big_integers(vector.values)
    for row, value in enumerate(values):
        length = (value if value >= 0 else ~value).bit_length() // 8 + 1
        cell = strings.data[strings.offsets[row] : strings.offsets[row + 1]].tobytes()
        assert cell == value.to_bytes(length, "big", signed=True)

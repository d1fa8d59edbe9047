"""The bytes of rows in column-aware encoding, worked out by hand: docs/format/row.md draws the first of them."""

import numpy as np
import pytest

from nyala.engine.codecs.row import WantedColumn, check, decode, encode
from nyala.engine.vectors.physical import INT128_DTYPE, PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector


def cell(physical: str, value: object) -> Vector:
    if physical == "bytes":
        assert isinstance(value, bytes)
        return BytesVector(np.array([0, len(value)], np.int32), np.frombuffer(value, np.uint8))
    return FixedVector(np.array([value], PhysicalType(physical).dtype))


NULL = FixedVector(np.zeros(1, np.int64), np.zeros(1, np.bool_))

LONG = b"n" * 252  # with its length 256 bytes: the next datum starts where one byte cannot say
VERY_LONG = b"n" * 65_532

# Spaces stand between: flags, N, ids, offsets, datums.
ROWS: dict[str, tuple[dict[int, tuple[str, object]], str]] = {
    "three columns": (
        {1: ("int32", 7), 3: ("bytes", b"nyala"), 4: ("bool", 1)},
        "85 03 010304 040d 07000000 05000000 6e79616c61 01",
    ),
    "one column": ({2: ("int64", -2)}, "85 01 02 feffffffffffffff"),
    "nothing but NULL": ({}, "85 00"),
    "fixed widths": (
        {
            1: ("int8", -1),
            2: ("int16", 258),
            3: ("int128", (1, -1)),
            4: ("float32", 1.5),
            5: ("float64", -0.0),
            6: ("bytes", b""),
        },
        "85 06 010203040506 010313171f ff 0201 0100000000000000 ffffffffffffffff 0000c03f 0000000000000080 00000000",
    ),
    "wide: an id above 255": ({255: ("int8", 1), 256: ("int8", 2)}, "89 0200 ff00 0001 01 01 02"),
    "very wide: an id above 65,535": ({65_536: ("int8", 1)}, "8d 01000000 00000100 01"),
    "the last id of one byte": ({255: ("int8", 1)}, "85 01 ff 01"),
    "big: an offset above 255": (
        {1: ("bytes", LONG), 2: ("int8", 5)},
        "86 02 0102 0001 fc000000" + LONG.hex() + "05",
    ),
    "very big: an offset above 65,535": (
        {1: ("bytes", VERY_LONG), 2: ("int8", 5)},
        "87 02 0102 00000100 fcff0000" + VERY_LONG.hex() + "05",
    ),
    "not big: only the start of the last datum counts": (
        {1: ("int8", 5), 2: ("bytes", LONG)},
        "85 02 0102 01 05 fc000000" + LONG.hex(),
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_written_bytes(case: str):
    columns, pinned = ROWS[case]
    cells: dict[int, Vector] = {column_id: cell(*what) for column_id, what in columns.items()}
    assert encode(cells, 1).data.tobytes().hex() == pinned.replace(" ", "")
    assert encode({**cells, 9: NULL}, 1).data.tobytes().hex() == pinned.replace(" ", "")


@pytest.mark.parametrize("case", ROWS)
def test_pinned_bytes_are_read(case: str):
    columns, pinned = ROWS[case]
    data = np.frombuffer(bytes.fromhex(pinned), np.uint8)
    rows = BytesVector(np.array([0, len(data)], np.int32), data)
    check(rows)
    found = decode(rows, [WantedColumn(column_id, PhysicalType(kind)) for column_id, (kind, _) in columns.items()])
    for vector, what in zip(found, columns.values(), strict=True):
        expected = cell(*what)
        assert vector.valid is None and type(vector) is type(expected)
        assert encode({1: vector}, 1).data.tobytes() == encode({1: expected}, 1).data.tobytes()


def test_128_bits_come_back_whole():
    data = np.frombuffer(bytes.fromhex("85 01 01 0100000000000000 ffffffffffffffff"), np.uint8)
    (vector,) = decode(BytesVector(np.array([0, 19], np.int32), data), [WantedColumn(1, PhysicalType.INT128)])
    assert isinstance(vector, FixedVector) and vector.values.tolist() == np.array([(1, -1)], INT128_DTYPE).tolist()

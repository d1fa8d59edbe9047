"""Rows in column-aware encoding: they come back, whatever the schema is now, and damage is told."""

import numpy as np
import pytest

from nyala.engine.codecs.codec import CorruptPageError
from nyala.engine.codecs.row import WantedColumn, check, decode, encode
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector, Vector, as_bytes, zeros

from .conftest import byte_strings, fixed_cells, strings

ROWS = 300


def cells(vector: Vector) -> list[bytes | None]:
    """Return the bytes of each cell, None for NULL."""
    valid = np.ones(len(vector), np.bool_) if vector.valid is None else vector.valid
    if isinstance(vector, FixedVector):
        raw = vector.values.tobytes()
        width = vector.values.dtype.itemsize
        found = [raw[i : i + width] for i in range(0, len(raw), width)]
    else:
        vector = as_bytes(vector)
        data = vector.data.tobytes()
        found = [data[a:b] for a, b in zip(vector.offsets, vector.offsets[1:], strict=False)]
    return [cell if there else None for cell, there in zip(found, valid, strict=True)]


def column(physical: PhysicalType, rows: int, kind: str, seed: int, nulls: float) -> Vector:
    """Return cells with a share of NULLs, zero or empty underneath as in all vectors."""
    valid = np.random.default_rng(seed).random(rows) >= nulls
    if physical is PhysicalType.BYTES:
        made = byte_strings(rows, kind, seed)
        kept = [cell if there else b"" for cell, there in zip(cells(made), valid, strict=True)]
        return BytesVector(*_parts(strings(kept)), valid)  # pyright: ignore[reportArgumentType]
    values = fixed_cells(physical, rows, kind, seed).values.copy()
    values[~valid] = np.zeros((), values.dtype)
    return FixedVector(values, valid)


def _parts(vector: BytesVector) -> tuple[np.ndarray, np.ndarray]:
    return vector.offsets, vector.data


@pytest.mark.parametrize("kind", ["random", "extremes", "equal"])
@pytest.mark.parametrize("nulls", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("ids", ["narrow", "wide", "very wide"])
def test_every_type_comes_back(kind: str, nulls: float, ids: str):
    first = {"narrow": 0, "wide": 300, "very wide": (1 << 32) - 9}[ids]
    columns = {first + i: column(kind_, ROWS, kind, i, nulls) for i, kind_ in enumerate(PhysicalType)}
    rows = encode(columns, ROWS)
    check(rows)
    wanted = [WantedColumn(first + i, kind_) for i, kind_ in enumerate(PhysicalType)]
    for place, vector in zip(wanted[::-1], decode(rows, wanted[::-1]), strict=True):
        assert cells(vector) == cells(columns[place.column_id])


def test_wide_schemas_and_long_rows():
    columns: dict[int, Vector] = {i: FixedVector(np.arange(3) + i) for i in range(1, 900)}
    columns[70_000] = strings([b"x" * 100_000, b"", b"y"])
    columns[70_001] = FixedVector(np.array([7, 8, 9], np.int8))
    rows = encode(columns, 3)
    check(rows)
    wanted = [WantedColumn(899, PhysicalType.INT64), WantedColumn(70_001, PhysicalType.INT8)]
    found, last = decode(rows, wanted)
    assert isinstance(found, FixedVector) and found.values.tolist() == [899, 900, 901]
    assert isinstance(last, FixedVector) and last.values.tolist() == [7, 8, 9]


def test_256_columns_from_0_on_need_a_wide_count():
    rows = encode({i: FixedVector(np.array([i], np.int16)) for i in range(256)}, 1)
    check(rows)
    found = decode(rows, [WantedColumn(i, PhysicalType.INT16) for i in range(256)])
    assert [int(vector.values[0]) for vector in found if isinstance(vector, FixedVector)] == list(range(256))


def test_dictionaries_slices_and_no_rows():
    dictionary = strings([b"red", b"green"])
    coded = DictionaryVector(np.array([1, 0, 0], np.int32), dictionary, np.array([True, False, True]))
    rows = encode({4: coded, 9: strings([b"a", b"bc", b"", b"d"]).slice(1, 4)}, 3)
    check(rows)
    color, word = decode(rows, [WantedColumn(4, PhysicalType.BYTES), WantedColumn(9, PhysicalType.BYTES)])
    assert (cells(color), cells(word)) == ([b"green", None, b"red"], [b"bc", b"", b"d"])
    part = rows.slice(1, 3)
    check(part)
    assert cells(decode(part, [WantedColumn(9, PhysicalType.BYTES)])[0]) == [b"", b"d"]
    nothing = encode({}, 0)
    check(nothing)
    assert len(decode(nothing, [WantedColumn(1, PhysicalType.INT8)])[0]) == 0


def test_columns_come_and_go_and_grow():
    """Dropped columns are passed over; added ones show their default; what was widened is read wide."""
    rows = encode({1: FixedVector(np.array([-3, 4], np.int16)), 2: FixedVector(np.array([1.5, -0.0], np.float32))}, 2)
    default = FixedVector(np.array([42], np.int32))
    wanted = [
        WantedColumn(1, PhysicalType.INT64),
        WantedColumn(1, PhysicalType.INT128),
        WantedColumn(2, PhysicalType.FLOAT64),
        WantedColumn(3, PhysicalType.INT32, default),
        WantedColumn(3, PhysicalType.BYTES, strings([b"new"])),
        WantedColumn(4, PhysicalType.BOOL),
    ]
    long, wide, double, added, word, absent = decode(rows, wanted)
    assert isinstance(long, FixedVector) and long.values.tolist() == [-3, 4]
    assert isinstance(wide, FixedVector) and wide.values.tolist() == [((1 << 64) - 3, -1), (4, 0)]
    assert cells(double) == cells(FixedVector(np.array([1.5, -0.0])))
    assert isinstance(added, FixedVector) and added.values.tolist() == [42, 42]
    assert cells(word) == [b"new", b"new"]
    assert cells(absent) == [None, None]


def test_a_cell_of_another_type_is_corruption():
    rows = encode({1: FixedVector(np.array([7, 300])), 2: strings([b"abc", b""]), 3: zeros(PhysicalType.INT8, 2)}, 2)
    for column_id, physical in ((1, "int32"), (1, "bytes"), (2, "int64"), (3, "float32"), (3, "bytes"), (1, "float32")):
        with pytest.raises(CorruptPageError, match=f"row 0: the cell of column {column_id} is not a valid {physical}"):
            decode(rows, [WantedColumn(column_id, PhysicalType(physical))])
    with pytest.raises(CorruptPageError, match="neither true nor false"):
        decode(encode({1: FixedVector(np.array([2], np.int8))}, 1), [WantedColumn(1, PhysicalType.BOOL)])


def test_ids_out_of_bounds_are_refused():
    for column_id in (-1, 1 << 32):
        with pytest.raises(ValueError, match="column ids"):
            encode({column_id: zeros(PhysicalType.INT8, 1)}, 1)


@pytest.mark.parametrize(
    "row",
    [
        "",
        "85",  # no number of datums
        "05 00",  # not marked
        "95 00",  # a flag that there is not
        "81 00",  # ids of no width
        "84 00",  # offsets of no width
        "85 01",  # an id is missing
        "85 00 00",  # a datum too many
        "85 02 01 01 01 07 08",  # the same id twice
        "85 02 02 01 01 07 08",  # ids fall
        "85 02 01 02 03 07 08",  # an offset behind the end
        "85 03 01 02 03 02 01 07 08",  # offsets fall
        "8d ffffffff 01",  # more datums than bytes
    ],
)
def test_rows_that_contradict_themselves(row: str, guarded):
    good = bytes.fromhex("85 01 01 07")
    data = good + bytes.fromhex(row)
    offsets = np.array([0, len(good), len(data)], np.int32)
    with pytest.raises(CorruptPageError, match="the lengths in row 1 contradict each other"):
        check(BytesVector(offsets, guarded(np.frombuffer(data, np.uint8))))


@pytest.mark.parametrize("offsets", [[], [-1, 4], [0, 5], [0, 4, 3, 4]])
def test_rows_that_do_not_lie_in_their_bytes(offsets: list[int]):
    with pytest.raises(CorruptPageError):
        check(BytesVector(np.array(offsets, np.int32), np.frombuffer(bytes.fromhex("85010107"), np.uint8)))


def test_flipped_bits_never_touch_foreign_memory(guarded):
    """Memory ends where the rows do: a read past it would end the process."""
    random = np.random.default_rng(3)
    columns = {i: column(kind, 40, "small", i, 0.3) for i, kind in enumerate(PhysicalType)}
    rows = encode(columns, 40)
    data = guarded(rows.data)
    wanted = [WantedColumn(i, kind) for i, kind in enumerate(PhysicalType)]
    refused = 0
    for _ in range(4000):
        place, bit = random.integers(0, len(data)), np.uint8(1 << random.integers(0, 8))
        data[place] ^= bit
        try:
            damaged = BytesVector(rows.offsets, data)
            check(damaged)
            assert all(len(vector) == 40 for vector in decode(damaged, wanted))
        except CorruptPageError:
            refused += 1
        data[place] ^= bit
    assert refused > 1000
    check(BytesVector(rows.offsets, data))

"""Casts: what a store makes of which types, and what it leaves to its clients."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nyala.schemas.cells.casts import FITTING, is_castable, kind_of

TYPES = {
    "bool": [pa.bool_()],
    "integer": [pa.int8(), pa.uint64()],
    "floating": [pa.float16(), pa.float64()],
    "decimal": [pa.decimal128(10, 2), pa.decimal256(40, 2)],
    "date": [pa.date32(), pa.date64()],
    "timestamp": [pa.timestamp("ns"), pa.timestamp("us", "UTC")],
    "text": [pa.string(), pa.large_string(), pa.string_view()],
    "binary": [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)],
    "null": [pa.null()],
    "time": [pa.time64("us"), pa.time32("s")],
    "duration": [pa.duration("s"), pa.duration("ns")],
    "interval": [pa.month_day_nano_interval()],
    "list": [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)],
    "struct": [pa.struct([("a", pa.int8())])],
    "map": [pa.map_(pa.string(), pa.int8())],
    "other": [pa.dense_union([pa.field("a", pa.int8())])],
}
BY_STORE = {
    "bool": ["bool"],
    "integer": ["integer", "floating", "decimal"],
    "floating": ["integer", "floating"],
    "decimal": ["integer", "decimal"],
    "date": ["date"],
    "timestamp": ["date", "timestamp"],
    "text": ["text"],
    "binary": ["binary"],
    "time": ["time"],
    "duration": ["duration"],
    "interval": ["interval"],
    "list": ["list"],
    "struct": ["struct"],
    "map": ["map"],
}


@pytest.mark.parametrize("kind", TYPES)
def test_kinds_look_through_what_wraps_cells(kind: str) -> None:
    for each in TYPES[kind]:
        assert kind_of(each) == kind
        if not pa.types.is_nested(each):
            assert kind_of(pa.dictionary(pa.int8(), each)) == kind_of(pa.run_end_encoded(pa.int32(), each)) == kind


@pytest.mark.parametrize("column", BY_STORE)
def test_what_a_store_casts(column: str) -> None:
    target = TYPES[column][0]
    made = [kind for kind, types in TYPES.items() if all(is_castable(each, target) for each in types)]
    assert sorted(made) == sorted([*BY_STORE[column], "null"])
    assert set(BY_STORE[column]) <= set(FITTING[column])
    others = set(TYPES) - set(made)
    assert not [each for kind in others for each in TYPES[kind] if is_castable(each, target)]


@pytest.mark.parametrize(
    "wild",
    [pa.decimal128(10, 93), pa.decimal128(10, 39), pa.decimal128(10, -90), pa.decimal256(10, 77), pa.decimal32(9, 10)],
)
def test_decimals_whose_scale_arrow_has_no_power_of_ten_for_never_fit(wild: pa.DataType) -> None:
    for given in (wild, pa.dictionary(pa.int32(), wild), pa.run_end_encoded(pa.int32(), wild)):
        assert not is_castable(given, pa.decimal128(10, 2)) and not is_castable(given, pa.int64())
    assert is_castable(pa.decimal256(76, 76), pa.decimal128(38, 38))

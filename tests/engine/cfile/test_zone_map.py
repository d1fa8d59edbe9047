"""Bounds must never exclude a cell, and must say so when they are only bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.cfile.footer import PageEntry, ZoneEntry, page_entry, zone_map_from
from nyala.engine.cfile.zone_map import MAX_VALUE_BYTES, ZoneMap, raised_prefix, zone_map_of
from nyala.engine.vectors.physical import INT128_DTYPE, PhysicalType
from nyala.engine.vectors.vector import BytesVector, DictionaryVector, FixedVector, nulls


def fixed(physical, cells, valid=None):
    return FixedVector(np.array(cells, physical.dtype), None if valid is None else np.array(valid))


def strings(cells, valid=None):
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    data = np.frombuffer(b"".join(cells), np.uint8)
    return BytesVector(offsets, data, None if valid is None else np.array(valid))


def test_integers_ignore_the_zero_under_a_null():
    vector = fixed(PhysicalType.INT32, [5, 0, -3, 9], [True, False, True, True])
    assert zone_map_of(vector, PhysicalType.INT32) == ZoneMap(-3, 9, 1, 4, True)


def test_bool_is_an_int():
    zone = zone_map_of(fixed(PhysicalType.BOOL, [1, 1]), PhysicalType.BOOL)
    assert (zone.min, zone.max) == (1, 1)


@pytest.mark.parametrize("physical", PhysicalType)
def test_a_page_of_nulls_has_no_bounds(physical):
    assert zone_map_of(nulls(physical, 7), physical) == ZoneMap(None, None, 7, 7, True)


def test_nan_is_flagged_and_not_compared():
    zone = zone_map_of(fixed(PhysicalType.FLOAT64, [math.nan, 2.5, -1.0]), PhysicalType.FLOAT64)
    assert zone == ZoneMap(-1.0, 2.5, 0, 3, True, has_nan=True)
    zone = zone_map_of(fixed(PhysicalType.FLOAT32, [math.nan, math.nan]), PhysicalType.FLOAT32)
    assert zone == ZoneMap(None, None, 0, 2, True, has_nan=True)


@pytest.mark.parametrize("cells", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_is_widened_to_both_signs(cells):
    zone = zone_map_of(fixed(PhysicalType.FLOAT64, cells), PhysicalType.FLOAT64)
    assert math.copysign(1, zone.min) == -1 and math.copysign(1, zone.max) == 1


@given(st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1))
def test_int128_compares_both_words(cells):
    values = np.zeros(len(cells), INT128_DTYPE)
    for row, cell in enumerate(cells):
        values[row] = (cell & (2**64 - 1), cell >> 64)
    zone = zone_map_of(FixedVector(values), PhysicalType.INT128)
    assert (zone.min, zone.max) == (min(cells), max(cells))


@given(st.lists(st.tuples(st.binary(max_size=4), st.booleans()), min_size=1))
def test_bytes_skip_nulls(cells):
    kept = [cell if valid else b"" for cell, valid in cells]
    zone = zone_map_of(strings(kept, [valid for _, valid in cells]), PhysicalType.BYTES)
    valid = [cell for cell, is_valid in cells if is_valid]
    assert (zone.min, zone.max) == ((min(valid), max(valid)) if valid else (None, None))
    assert zone.exact and zone.null_count == len(cells) - len(valid)


def test_a_slice_of_bytes_is_bounded_by_its_own_cells():
    zone = zone_map_of(strings([b"a", b"m", b"n", b"z"]).slice(1, 3), PhysicalType.BYTES)
    assert (zone.min, zone.max) == (b"m", b"n")


def test_a_dictionary_counts_only_codes_in_use():
    codes = np.array([1, 1, 2, 0], np.int32)
    vector = DictionaryVector(codes, strings([b"a", b"k", b"q", b"z"]), np.array([True, True, True, False]))
    zone = zone_map_of(vector, PhysicalType.BYTES)
    assert (zone.min, zone.max, zone.null_count) == (b"k", b"q", 1)


@given(st.binary(min_size=MAX_VALUE_BYTES + 1, max_size=MAX_VALUE_BYTES + 8))
def test_long_bytes_are_cut_so_that_they_still_bound(cell):
    zone = zone_map_of(strings([cell]), PhysicalType.BYTES)
    assert not zone.exact and zone.min == cell[:MAX_VALUE_BYTES]
    assert zone.max is None or (zone.max > cell and len(zone.max) <= MAX_VALUE_BYTES)


def test_a_raised_prefix_drops_what_cannot_be_raised():
    assert raised_prefix(b"ab" + b"\xff" * 70) == b"ac"
    assert raised_prefix(b"x" * 80) == b"x" * 63 + b"y"
    assert raised_prefix(b"\xff" * 80) is None


@pytest.mark.parametrize(
    ("physical", "low", "high"),
    [
        (PhysicalType.INT64, -(2**63), 2**63 - 1),
        (PhysicalType.INT128, -(2**127), 2**127 - 1),
        (PhysicalType.FLOAT64, -math.inf, 0.1),
        (PhysicalType.FLOAT32, 5e-324, 1.7976931348623157e308),
        (PhysicalType.BYTES, b"", b"\x00\xff"),
        (PhysicalType.BYTES, b"\xff" * 64, None),
        (PhysicalType.FLOAT64, None, None),
    ],
)
def test_bounds_survive_json(physical, low, high):
    zone = ZoneMap(low, high, 1, 9, False, physical is PhysicalType.FLOAT64)
    entry = PageEntry.model_validate_json(page_entry(0, 0, zone, True).model_dump_json())
    assert entry.zone is not None and zone_map_from(entry, entry.zone, physical) == zone


@pytest.mark.parametrize(
    ("physical", "low", "high"),
    [
        (PhysicalType.INT64, 0, 2**63),
        (PhysicalType.INT64, -(2**63) - 1, 0),
        (PhysicalType.INT8, 100, 200),
        (PhysicalType.INT128, 0, 2**127),
        (PhysicalType.BOOL, 0, 2),
        (PhysicalType.INT32, 2, 1),
        (PhysicalType.INT32, None, 1),
        (PhysicalType.INT32, 1, None),
        (PhysicalType.INT32, "AA==", "AA=="),
        (PhysicalType.FLOAT64, "nan", "inf"),
        (PhysicalType.FLOAT64, "0x0p+0", "nan"),
        (PhysicalType.FLOAT32, "0x1p+1", "0x1p+0"),
        (PhysicalType.FLOAT64, "0x0p+0", "0x1p+99999"),
        (PhysicalType.FLOAT64, 1, 2),
        (PhysicalType.BYTES, "Yg==", "YQ=="),
        (PhysicalType.BYTES, None, "YQ=="),
    ],
)
def test_what_are_no_bounds_is_refused(physical, low, high):
    page = PageEntry(offset=0, length=0, row_count=9)
    with pytest.raises(ValueError, match=r"bound|float"):
        zone_map_from(page, ZoneEntry(min=low, max=high, exact=True), physical)


def test_a_negative_zero_survives_json():
    entry = page_entry(0, 0, ZoneMap(-0.0, 0.0, 0, 1, True), True)
    assert entry.zone is not None
    zone = zone_map_from(entry, entry.zone, PhysicalType.FLOAT64)
    assert math.copysign(1, zone.min) == -1 and math.copysign(1, zone.max) == 1

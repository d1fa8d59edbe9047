"""Compiled filters: remembered by schema and text, and never taken for those of another schema."""

import pytest

from nyala.engine.filter.bound import Compare
from nyala.engine.filter.compiled import CompiledFilter, FilterCache
from nyala.engine.vectors.keys.keys import KeyEncoder
from nyala.engine.vectors.physical import PhysicalType
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from tests.engine.filter.model import table_of

LIMITS = Limits()
INTEGERS = table_of([("id", "int64", False), ("x", "int32", True)])
TEXTS = table_of([("id", "int64", False), ("x", "string", True)])
ENCODER = KeyEncoder([PhysicalType.INT64])


def test_a_filter_is_compiled_once_for_each_schema_and_text():
    filters = FilterCache(LIMITS)
    first = filters.compiled("x = 1 AND id = 7", INTEGERS, ENCODER)
    assert filters.compiled("x = 1 AND id = 7", INTEGERS, ENCODER) is first
    assert filters.compiled("x = 1 AND id = 8", INTEGERS, ENCODER).points != first.points
    assert filters.compiled("x = '1'", TEXTS, ENCODER).bound != filters.compiled("x = 1", INTEGERS, ENCODER).bound
    with pytest.raises(InvalidArgumentError, match="'x' has the type string"):
        filters.compiled("x = 1 AND id = 7", TEXTS, ENCODER)


def test_an_equal_schema_is_another_one():
    """A column that was dropped and added again has the same name and type, but another id."""
    filters = FilterCache(LIMITS)
    old = filters.compiled("x = 1", INTEGERS, ENCODER)
    again = table_of([("id", "int64", False), ("between", "int8", True), ("x", "int32", True)])
    assert filters.compiled("x = 1", again, ENCODER).bound.column_ids != old.bound.column_ids


def test_trees_and_long_texts_are_compiled_each_time():
    filters = FilterCache(LIMITS)
    for where in ({"op": "=", "column": "x", "value": 1}, f"x IN ({','.join(map(str, range(1_000)))})"):
        first, second = (filters.compiled(where, INTEGERS, ENCODER) for _ in range(2))
        assert first is not second
        assert first.bound == second.bound


def test_the_filters_used_last_are_kept():
    filters = FilterCache(LIMITS)
    kept, left = (filters.compiled(f"x = {number}", INTEGERS, ENCODER) for number in (-1, -2))
    for number in range(300):
        filters.compiled(f"x = {number}", INTEGERS, ENCODER)
        assert filters.compiled("x = -1", INTEGERS, ENCODER) is kept
    assert filters.compiled("x = -2", INTEGERS, ENCODER) is not left


def test_what_is_wrong_is_refused_each_time():
    filters = FilterCache(LIMITS)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="no column 'nothing'; the columns are id, x"):
            filters.compiled("nothing = 1", INTEGERS, ENCODER)


def test_an_inverse_reads_no_other_columns():
    assert CompiledFilter.of("x > 1", INTEGERS, ENCODER, LIMITS, 0).inverse
    assert CompiledFilter.of("id = 1 OR x > 10000000000", INTEGERS, ENCODER, LIMITS, 0).inverse is None
    assert CompiledFilter.of(None, INTEGERS, ENCODER, LIMITS, 0).inverse is None


def test_now_is_that_of_each_scan():
    filters = FilterCache(LIMITS)
    day = 86_400_000_000
    table = table_of([("id", "int64", False), ("at", "timestamp[us]", True)])
    for now in (3 * day, 5 * day):
        root = filters.compiled("at > now() - INTERVAL '1' DAY", table, ENCODER, now).bound.root
        assert isinstance(root, Compare) and (root.op, root.cell) == (">", now - day)

"""partition_by: what its words mean, and what is refused."""

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pytest

from nyala import InvalidArgumentError
from nyala import hash as by_hash
from nyala import range as by_range
from nyala.schemas.limits.limits import Limits
from nyala.schemas.table.partition_schema import PartitionSchema
from nyala.schemas.table.table import TableDefinition, TableSchema

FIELDS = [("host", pa.string()), ("time", pa.int64()), ("day", pa.date32()), ("price", pa.decimal128(6, 2))]


def create(*levels, limits=Limits(), fields=FIELDS):  # noqa: B008
    schema = pa.schema([*fields, ("value", pa.float64())])
    definition = TableDefinition.from_arrow("t", schema, [name for name, _ in fields], partition_by=levels)
    read = TableDefinition.model_validate_json(definition.model_dump_json())
    assert read == definition
    table = TableSchema.create(definition, limits)
    return PartitionSchema.create(definition.partition_by, table, limits), table


def bounds_of(level):
    return [(each.lower, each.upper) for each in create(level)[0].ranges]


def test_a_table_without_levels_is_one_tablet() -> None:
    made, table = create()
    assert made.tablet_count == 1 and made.described(table) == []


def test_every_level_multiplies_the_tablets() -> None:
    made, table = create(by_hash("host", buckets=4), by_range("time", splits=[1, 2]), by_hash("day", buckets=3, seed=7))
    assert made.tablet_count == len(list(made.tablets())) == 4 * 3 * 3
    again, _ = create(*made.described(table))
    assert again == made


def test_a_range_may_have_hash_levels_of_its_own() -> None:
    bounds = [(None, 5), {"lower": 5, "upper": 9, "hash": [by_hash("day", buckets=3), by_hash("host", buckets=2)]}]
    made, table = create(by_hash("host", buckets=2), by_range("time", bounds=bounds))
    assert made.tablet_count == 2 + 6
    again, _ = create(*made.described(table))
    assert again == made


def test_the_hash_levels_of_all_ranges() -> None:
    """Buckets of a tablet can be compared with others as far as all ranges begin with the same levels."""
    by_two = [by_hash("host", buckets=2), by_hash("day", buckets=3, seed=1)]
    own = [by_hash("host", buckets=2), by_hash("day", buckets=3)]
    split = by_range("time", bounds=[(None, 5), {"lower": 5, "upper": 9, "hash": own}])
    for levels, common in (
        ([], []),
        (by_two, by_two),
        ([*by_two, by_range("time", splits=[5])], by_two),
        ([*by_two, split], by_two[:1]),
        ([by_two[1], split], []),
        ([split], []),
    ):
        made, table = create(*levels)
        assert made.common_hash(table) == common


def test_splits_cut_the_ranges_they_fall_in() -> None:
    assert bounds_of(by_range("time", bounds=[(1, 9), (20, None)], splits=[3, 30])) == [
        ((1,), (3,)),
        ((3,), (9,)),
        ((20,), (30,)),
        ((30,), ()),
    ]


@pytest.mark.parametrize(
    ("column", "value", "after"),
    [
        ("host", "a", "a\0"),
        ("time", 5, 6),
        ("day", dt.date(2024, 2, 29), "2024-03-01"),
        ("price", Decimal("1.99"), "2.00"),
    ],
)
def test_bounds_may_be_exclusive_below_and_inclusive_above(column: str, value: object, after: object) -> None:
    assert bounds_of(by_range(column, bounds=[{"lower": value, "lower_inclusive": False}])) == [((after,), ())]
    assert bounds_of(by_range(column, bounds=[{"upper": value, "upper_inclusive": True}])) == [((), (after,))]


def test_what_follows_the_greatest_value_is_the_next_of_the_column_before() -> None:
    greatest = (1 << 63) - 1
    assert bounds_of(by_range("time", bounds=[{"upper": greatest, "upper_inclusive": True}])) == [((), ())]
    level = by_range("host", "time", bounds=[{"upper": ("a", greatest), "upper_inclusive": True}])
    assert bounds_of(level) == [((), ("a\0",))]


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([by_hash("value", buckets=2)], "'value' is not"),
        ([by_hash("host", "host", buckets=2)], "twice"),
        ([by_hash("host", buckets=2), by_hash("time", "host", buckets=2)], "'host' is in two hash levels"),
        ([by_range("time"), by_range("day")], "two range levels"),
        ([by_range("gone")], "'gone' is not"),
        ([by_range("time", bounds=[(5, 5)])], "empty"),
        ([by_range("time", bounds=[(1, 5), (4, None)])], "overlap"),
        ([by_range("time", bounds=[(None, None), (4, 5)])], "overlap"),
        ([by_range("time", bounds=[(1, 5)], splits=[5])], "lies outside all ranges"),
        ([by_range("time", splits=[3, 3])], "lies outside all ranges"),
        ([by_range("time", bounds=[("x", None)])], "is not a valid int64"),
        ([by_range("time", bounds=[((1, 2), None)])], "is not a bound"),
        ([by_range("time", bounds=[{"lower": (1 << 63) - 1, "lower_inclusive": False}])], "no value lies above"),
        ([by_hash("host", buckets=200), by_hash("time", buckets=200)], "40,000 tablets"),
    ],
)
def test_what_cannot_be_is_refused(levels: list, says: str) -> None:
    with pytest.raises(InvalidArgumentError, match=says):
        create(*levels)


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_hash("host", buckets=1),
        lambda: by_hash(buckets=2),
        lambda: by_hash("host", buckets=2, seed=-1),
        lambda: by_range("time", bounds=[{"lower": 1, "upper": 2, "hash": [5]}]),
        lambda: by_range("time", bounds=[{"lower": 1, "above": 2}]),
        lambda: by_range("time", splits=[None]),
        lambda: by_range("time", bounds=[(object(), None)]),
    ],
)
def test_words_that_mean_nothing_are_refused_at_once(make) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


def test_bounds_of_timestamps_outside_the_calendar_compare_with_those_inside() -> None:
    made, _ = create(by_range("at", splits=[2**62, 0, -(2**62)]), fields=[("at", pa.timestamp("us"))])
    ends = [(), (-(2**62),), ("1970-01-01T00:00:00",), (2**62,), ()]
    assert [(each.lower, each.upper) for each in made.ranges] == list(pairwise(ends))

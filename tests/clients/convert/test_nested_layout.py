"""Nested cells of any layout become those of a column, and nothing but the cells."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.convert.casting import cast
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.errors import InvalidArgumentError

TIMES = [dt.time(1), None]
PAIRS = pa.list_(pa.time32("s"), 2)
GIVEN = pa.large_list(pa.time32("s"))


@pytest.mark.parametrize(
    ("given", "becomes", "cells"),
    [
        (GIVEN, PAIRS, [TIMES, None, TIMES]),
        (GIVEN, PAIRS, [None]),
        (pa.list_(pa.time32("s")), PAIRS, [None, TIMES]),
        (PAIRS, PAIRS, [None, TIMES]),
        (pa.dictionary(pa.int8(), GIVEN), PAIRS, [None, TIMES, None]),
        (pa.list_(GIVEN), pa.list_(PAIRS), [[None, TIMES], None, [None], []]),
        (pa.list_(GIVEN), pa.list_(PAIRS, 1), [[None], None, [TIMES]]),
        (pa.map_(pa.string(), GIVEN), pa.map_(pa.string(), PAIRS), [[("a", None), ("b", TIMES)], None]),
        (pa.struct([("x", GIVEN)]), pa.struct([("x", PAIRS)]), [{"x": None}, None, {"x": TIMES}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_null_has_no_remains_of_the_memory(
    given: pa.DataType, becomes: pa.DataType, cells: list[Any], first: int
) -> None:
    """Under a NULL of lists of one length there are items, too: they are NULL."""
    if isinstance(given, pa.DictionaryType):
        places = [None if cell is None else 0 for cell in cells]
        array = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), pa.array([TIMES], given.value_type))
    else:
        array = pa.array(cells, given)
    column = cast(array.slice(first), LogicalType.from_arrow(pa.field("v", becomes)), "v")
    column.validate(full=True)
    assert column.type == becomes and column.to_pylist() == cells[first:]
    lists = column
    while lists.type != PAIRS:
        lists = lists.field(0) if pa.types.is_struct(lists.type) else getattr(lists, "items", lists.values)
    assert lists.values.null_count == 2 * lists.null_count + len(lists.drop_null())


@pytest.mark.parametrize("first", [0, 1])
def test_views_inside_of_lists_of_one_length_that_are_null(first: int) -> None:
    """As polars gives texts in its arrays: Arrow takes no views."""
    words = pa.array(["a", "b", None, "long enough for a buffer", "x", "y"], pa.string_view())
    pairs = pa.FixedSizeListArray.from_arrays(words, 2, mask=pa.array([False, False, True]))
    expected = [["a", "b"], [None, "long enough for a buffer"], None][first:]
    for becomes in (pa.list_(pa.string(), 2), pa.list_(pa.string())):
        column = cast(pairs.slice(first), LogicalType.from_arrow(pa.field("v", becomes)), "v")
        assert column.type == becomes and column.to_pylist() == expected
    inside = pa.StructArray.from_arrays([pairs], ["x"]).slice(first)
    kind = pa.struct([("x", pa.list_(pa.string(), 2))])
    assert cast(inside, LogicalType.from_arrow(pa.field("v", kind)), "v").to_pylist() == [
        {"x": each} for each in expected
    ]


def test_lists_of_another_length_are_refused() -> None:
    for cells in ([None, TIMES, []], [[dt.time(1)]]):
        with pytest.raises(InvalidArgumentError, match="does not fit fixed_size_list"):
            cast(pa.array(cells, GIVEN), LogicalType.from_arrow(pa.field("v", PAIRS)), "v")


MOMENTS = [dt.datetime(1969, 12, 31), None, dt.datetime(2020, 1, 2)]
KATHMANDU = pa.timestamp("us", "Asia/Kathmandu")


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns"), KATHMANDU], ids=str)
def test_a_timestamp_with_a_time_is_no_date(kind: pa.DataType) -> None:
    """Also inside of lists, structs and maps. A moment with a zone is one of UTC; what lies under a NULL is none."""
    late = [*MOMENTS[:2], dt.datetime(2020, 1, 1, 23, 30)]
    days = [each and each.date() for each in MOMENTS]
    wraps = [
        (kind, pa.date32(), lambda cell: cell),
        (pa.list_(kind), pa.list_(pa.date32()), lambda cell: [cell]),
        (pa.list_(kind, 1), pa.list_(pa.date32(), 1), lambda cell: [cell]),
        (pa.struct([("x", kind)]), pa.struct([("x", pa.date32())]), lambda cell: {"x": cell}),
        (pa.map_(pa.string(), kind), pa.map_(pa.string(), pa.date32()), lambda cell: [("k", cell)]),
        (pa.list_(pa.struct([("x", kind)])), pa.list_(pa.struct([("x", pa.date32())])), lambda cell: [{"x": cell}]),
    ]
    for given, becomes, wrap in wraps:
        target = LogicalType.from_arrow(pa.field("v", becomes))
        good, bad = (pa.array([wrap(cell) for cell in cells], given) for cells in (MOMENTS, late))
        assert cast(good, target, "v").to_pylist() == [wrap(day) for day in days]
        with pytest.raises(InvalidArgumentError, match=r"does not fit .*: 2020-01-01 23:30:00.* is not midnight"):
            cast(bad, target, "v")
        if given == kind:
            assert cast(good.dictionary_encode(), target, "v").to_pylist() == days
    lists = pa.FixedSizeListArray.from_arrays(pa.array(late[::2], kind), 1, mask=pa.array([False, True]))
    assert cast(lists, LogicalType.from_arrow(pa.field("v", wraps[2][1])), "v").to_pylist() == [[days[0]], None]

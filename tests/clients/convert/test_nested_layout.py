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

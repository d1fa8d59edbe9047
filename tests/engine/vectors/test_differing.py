"""Which cells of two vectors differ."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.vectors.arrow import from_arrow
from nyala.engine.vectors.differing import differing
from nyala.engine.vectors.physical import physical_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "one", "other", "differ"),
    [
        (pa.int8(), [1, 2, None, None, 0], [1, 3, None, 0, 0], [False, True, False, True, False]),
        (pa.bool_(), [True, False, None], [True, True, None], [False, True, False]),
        (pa.float16(), [NAN, 0.0, 1.0, None], [NAN, -0.0, 1.0, 0.0], [False, True, False, True]),
        (pa.float64(), [NAN, 0.0, 1.0, None], [NAN, -0.0, 1.0, 0.0], [False, True, False, True]),
        (pa.decimal128(38, 0), [Decimal(2**64), Decimal(-1)], [Decimal(2**65), Decimal(-1)], [True, False]),
        (pa.month_day_nano_interval(), [(1, 2, 3), (1, 2, 3)], [(1, 2, 3), (1, 2, 4)], [False, True]),
        (pa.string(), ["", "a", None, "b"], ["", "b", "", "b"], [False, True, True, False]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b", None], ["a", "a", None], [False, True, False]),
        (pa.list_(pa.int8()), [[1], [], None, [None]], [[1], None, None, [1]], [False, True, False, True]),
        (pa.int32(), [], [], []),
        (pa.string(), [], [], []),
    ],
    ids=str,
)
def test_cells_differ_as_they_are_stored(kind: pa.DataType, one: list[Any], other: list[Any], differ: list) -> None:
    vectors = [from_arrow(pa.array(cells, kind), physical_of(kind)) for cells in (one, other)]
    assert differing(*vectors).tolist() == differ
    assert differing(*vectors[::-1]).tolist() == differ

"""Random nested types and values of them, as Hypothesis draws them."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

DEPTH = 4

FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.floats(width=16, allow_nan=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(5, 2): st.integers(-(10**5) + 1, 10**5 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal128(20, 3): st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us"): st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    pa.time32("s"): st.integers(0, 86_399).map(lambda n: time(n // 3600, n // 60 % 60, n % 60)),
    pa.time32("ms"): st.integers(0, 86_399_999).map(lambda n: (datetime(1, 1, 1) + timedelta(milliseconds=n)).time()),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),  # Python's have microseconds
    pa.duration("s"): st.integers(-(10**9), 10**9).map(lambda n: timedelta(seconds=n)),
    pa.duration("us"): st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
    pa.duration("ns"): st.integers(-(2**62), 2**62),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
}
KEYS = (pa.string(), pa.int32(), pa.date32())
NAMES = ("a", "b", "\u00c4rger", "two words", 'quo"te', "x:y", "s<t>", "k,l")


@st.composite
def nested_types(draw: st.DrawFn, depth: int = DEPTH) -> pa.DataType:
    """Draw a nested type, at most so deep."""
    inner = types(depth - 1)
    match draw(st.integers(0, 4)):
        case 0:
            return pa.list_(draw(inner))
        case 1:
            return pa.large_list(draw(inner))
        case 2:
            return pa.list_(draw(inner), draw(st.integers(1, 3)))
        case 3:
            return pa.map_(draw(st.sampled_from(KEYS)), draw(inner))
        case _:
            names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
            return pa.struct([(name, draw(inner)) for name in names])


def types(depth: int) -> st.SearchStrategy[pa.DataType]:
    """Draw a type, flat or nested, at most so deep."""
    flat = st.sampled_from(list(FLAT))
    return flat if depth <= 0 else st.one_of(flat, nested_types(depth))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Draw a value of a type, or None."""
    return st.none() | present_values(kind)


def present_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Draw a value of a type."""
    is_ = pa.types
    if is_.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if is_.is_map(kind):
        return st.lists(st.tuples(present_values(kind.key_type), values(kind.item_type)), max_size=3)
    if is_.is_fixed_size_list(kind):
        return st.lists(values(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    return st.lists(values(kind.value_type), max_size=4) if is_.is_nested(kind) else FLAT[kind]


@st.composite
def arrays(draw: st.DrawFn, depth: int = DEPTH, rows: int = 12) -> pa.Array:
    """Draw an array of a nested type, perhaps a slice of a longer one."""
    kind = draw(nested_types(depth))
    cells = draw(st.lists(values(kind), max_size=rows))
    first = draw(st.integers(0, len(cells)))
    return pa.array(cells, kind).slice(first, draw(st.integers(0, len(cells) - first)))

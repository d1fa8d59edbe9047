"""Casts: which Arrow types fit which columns. Clients make some of these casts; the store makes the others by row."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from .. import compute as pc
from .wrapped import bare_type

ROUND_IT = "round it, as with pandas' dt.round('us')"
"""The advice for timestamps with fractions of a microsecond."""
FITTING = {
    "bool": ("bool",),
    "integer": ("integer", "floating", "decimal"),
    "floating": ("floating", "integer"),
    "decimal": ("decimal", "integer", "text"),
    "date": ("date", "timestamp", "text"),
    "timestamp": ("timestamp", "date", "text"),
    "time": ("time", "text"),
    "duration": ("duration",),
    "interval": ("interval", "binary"),
    "text": ("text",),
    "binary": ("binary", "text"),
    "list": ("list",),
    "struct": ("struct",),
    "map": ("map",),
}
"""The kinds of data that each kind of column accepts; each value must also fit. Whole floats become integers, since
pandas turns integers with gaps into floats."""
_NESTED = ("list", "struct", "map")
_BY_CLIENT_ALONE = {
    ("decimal", "text"),
    ("date", "timestamp"),
    ("date", "text"),
    ("timestamp", "text"),
    ("time", "text"),
    ("binary", "text"),
    ("interval", "binary"),
}
"""Casts (column, data) that clients make instead of the store; they reject all rows if one value does not fit."""

_WHOLE = pa.decimal128(38, 0)
_DIGITS = {4: 9, 8: 18, 16: 38, 32: 76}
"""The most digits of decimals, by their bytes."""
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_LISTS = (
    pa.list_(pa.null()),
    pa.large_list(pa.null()),
    pa.list_(pa.null(), 1),
    pa.list_view(pa.null()),
    pa.large_list_view(pa.null()),
)
_KINDS = {
    "null": (pa.null(),),
    "bool": (pa.bool_(),),
    "integer": _INTEGERS,
    "floating": (pa.float16(), pa.float32(), pa.float64()),
    "decimal": (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
    "date": (pa.date32(), pa.date64()),
    "timestamp": (pa.timestamp("us"),),
    "time": (pa.time32("s"), pa.time64("us")),
    "duration": (pa.duration("us"),),
    "interval": (pa.month_day_nano_interval(),),
    "text": (pa.string(), pa.large_string(), pa.string_view()),
    "binary": (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
    "list": _LISTS,
    "struct": (pa.struct([]),),
    "map": (pa.map_(pa.string(), pa.null()),),
}
_KIND_BY_ID = {example.id: kind for kind, examples in _KINDS.items() for example in examples}


def kind_of(given: pa.DataType) -> str:
    """Return the kind of the cells of an Arrow type: a word of ``FITTING``, or "null" (no values), or "other" (never
    fits)."""
    return _KIND_BY_ID.get(bare_type(given).id, "other")


def times_of_text(text: pa.Array) -> pa.Array:
    """Return ISO text as times of a day in nanoseconds, which Arrow reads only behind a date. Raises pa.ArrowInvalid:
    it is no time."""
    return pc.binary_join_element_wise("1970-01-01T", text, "").cast(pa.timestamp("ns")).cast(pa.time64("ns"))


def days_of_moments(moments: pa.Array) -> pa.Array:
    """Return timestamps at midnight, of UTC if they have a zone, as dates. Raises pa.ArrowInvalid: one has a time."""
    moments = moments.cast(pa.timestamp(moments.type.unit))
    days = moments.cast(pa.date32())
    late = moments.filter(pc.not_equal(days.cast(moments.type), moments))
    if len(late):
        raise pa.ArrowInvalid(f"{late[:1].cast(pa.string())[0]} is not midnight")
    return days


def comparable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as which Arrow compares cells: the same, or one with the same order for the types that it does not
    compare."""
    if pa.types.is_duration(kind):
        return pa.int64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether the store casts cells to a column's type, refusing only values that do not fit."""
    kind, given = kind_of(target), kind_of(source)
    if kind in _NESTED:
        return given == "null" or nested_misfit(source, target, is_castable) is None
    if given == "decimal" and kind in ("decimal", "integer"):
        return _is_rescalable(bare_type(source), target if kind == given else _WHOLE)
    return given == "null" or (given in FITTING.get(kind, ()) and (kind, given) not in _BY_CLIENT_ALONE)


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether cells of an Arrow type can be cast to a column's type, by a client or by the store."""
    kind, given = kind_of(target), kind_of(source)
    if kind in _NESTED:
        return given == "null" or nested_misfit(bare_type(source), target, fits) is None
    return given == "null" or given in FITTING.get(kind, ())


def nested_misfit(
    source: pa.DataType, target: pa.DataType, is_fit: Callable[[pa.DataType, pa.DataType], bool]
) -> tuple[str, pa.DataType, pa.DataType | None] | None:
    """Return the first part of a nested type which does not fit that of a column: its path, its type, and the column's
    there, None if there is no such field; None if all fit. The store takes no views, nor what wraps other types."""
    kind, given = kind_of(target), kind_of(source)
    if given == "null":
        return None
    if (is_fit is is_castable and not _is_plain(source)) or (kind in _NESTED and given != kind):
        return "", source, target
    if kind not in _NESTED:
        return None if is_fit(source, target) else ("", source, target)
    if kind == "list":
        return _at("[]", nested_misfit(source.value_type, target.value_type, is_fit))
    if kind == "map":
        keys = nested_misfit(source.key_type, target.key_type, is_fit)
        return _at(".key", keys) or _at(".value", nested_misfit(source.item_type, target.item_type, is_fit))
    fields = {target.field(i).name: target.field(i).type for i in range(target.num_fields)}
    names = [source.field(i).name for i in range(source.num_fields)]
    for i, name in enumerate(names):
        if name not in fields or names.count(name) > 1:
            return f".{name}", source.field(i).type, None
        if misfit := _at(f".{name}", nested_misfit(source.field(i).type, fields[name], is_fit)):
            return misfit
    return None


def _at(
    path: str, misfit: tuple[str, pa.DataType, pa.DataType | None] | None
) -> tuple[str, pa.DataType, pa.DataType | None] | None:
    return (path + misfit[0], *misfit[1:]) if misfit else None


def _is_plain(kind: pa.DataType) -> bool:
    """Whether cells are there as often as they occur."""
    is_ = pa.types
    views = is_.is_list_view, is_.is_large_list_view, is_.is_string_view, is_.is_binary_view
    return bare_type(kind) == kind and not any(is_view(kind) for is_view in views)


def _is_rescalable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow has the power of ten between two decimal types: without a check, it reads past the last."""
    return target.scale - _DIGITS[16] <= source.scale <= _DIGITS[source.byte_width]

"""Casts: which Arrow types fit which columns. Clients make some of these casts; the store makes the others by row."""

from __future__ import annotations

import pyarrow as pa

from .wrapped import bare_type

ROUND_IT = "round it, as with pandas' dt.round('us')"
"""The advice for timestamps with fractions of a microsecond."""
FITTING = {
    "bool": ("bool",),
    "integer": ("integer", "floating"),
    "floating": ("floating", "integer"),
    "decimal": ("decimal", "integer", "text"),
    "date": ("date", "timestamp", "text"),
    "timestamp": ("timestamp", "date", "text"),
    "text": ("text",),
    "binary": ("binary", "text"),
}
"""The kinds of data that each kind of column accepts; each value must also fit. Whole floats become integers, since
pandas turns integers with gaps into floats."""
_BY_CLIENT_ALONE = {
    ("decimal", "text"),
    ("date", "timestamp"),
    ("date", "text"),
    ("timestamp", "text"),
    ("binary", "text"),
}
"""Casts (column, data) that clients make instead of the store; they reject all rows if one value does not fit."""

_DIGITS = {4: 9, 8: 18, 16: 38, 32: 76}
"""The most digits of decimals, by their bytes."""
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_KINDS = {
    "null": (pa.null(),),
    "bool": (pa.bool_(),),
    "integer": _INTEGERS,
    "floating": (pa.float16(), pa.float32(), pa.float64()),
    "decimal": (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
    "date": (pa.date32(), pa.date64()),
    "timestamp": (pa.timestamp("us"),),
    "text": (pa.string(), pa.large_string(), pa.string_view()),
    "binary": (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)),
}
_KIND_BY_ID = {example.id: kind for kind, examples in _KINDS.items() for example in examples}


def kind_of(given: pa.DataType) -> str:
    """Return the kind of the cells of an Arrow type: a word of ``FITTING``, or "null" (no values), or "other" (never
    fits)."""
    return _KIND_BY_ID.get(bare_type(given).id, "other")


def is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether the store casts cells to a column's type, refusing only values that do not fit."""
    kind, given = kind_of(target), kind_of(source)
    if given == kind == "decimal":
        return _is_rescalable(bare_type(source), target)
    return given == "null" or (given in FITTING.get(kind, ()) and (kind, given) not in _BY_CLIENT_ALONE)


def _is_rescalable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow has the power of ten between two decimal types: without a check, it reads past the last."""
    return target.scale - _DIGITS[16] <= source.scale <= _DIGITS[source.byte_width]

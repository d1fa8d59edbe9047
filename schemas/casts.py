"""Casts: which Arrow types may become which column. Clients cast some of them; a store the rest, row by row."""

from __future__ import annotations

import pyarrow as pa

from .wrapped import bare_type

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
"""What each kind of column takes from a user; then still each value must fit. Floats become integers where they are
whole, since that is what pandas makes of integers with gaps."""
_BY_CLIENT_ALONE = {
    ("decimal", "text"),
    ("date", "timestamp"),
    ("date", "text"),
    ("timestamp", "text"),
    ("binary", "text"),
}
"""Those (column, data) that a store does not make, but its clients, who refuse all rows where one does not fit."""

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
    """Return the kind of an Arrow type: a word of ``FITTING``, or "null" (no values), or "other" (never fits)."""
    return _KIND_BY_ID.get(bare_type(given).id, "other")


def is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a store casts cells to the type of a column, and refuses only the values that do not fit."""
    kind, given = kind_of(target), kind_of(source)
    return given == "null" or (given in FITTING.get(kind, ()) and (kind, given) not in _BY_CLIENT_ALONE)

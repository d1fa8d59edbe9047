"""The types of PostgreSQL's columns: what the store has for each, and how text and copied cells become those of the
store."""

from __future__ import annotations

import binascii
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ....schemas import compute as pc
from ....schemas.cells.casts import times_of_text
from ....schemas.cells.moment import DAY_MICROSECONDS, FIRST_MICROSECOND, LAST_MICROSECOND
from ....schemas.cells.types import LogicalType
from ....schemas.errors import InvalidArgumentError
from ..source import SourceChangedError
from .array_text import lists_of_text

NUMERIC = 1700
_WORDS = {
    16: "bool",
    17: "binary",
    18: "string",  # "char"
    19: "string",  # name
    20: "int64",
    21: "int16",
    23: "int32",
    25: "string",
    26: "int64",  # oid
    114: "string",  # json
    142: "string",  # xml
    650: "string",  # cidr
    700: "float",
    701: "double",
    829: "string",  # macaddr
    869: "string",  # inet
    1042: "string",  # char(n)
    1043: "string",  # varchar(n)
    1082: "date",
    1083: "time64[us]",
    1114: "timestamp[us]",
    1184: "timestamp[us]",  # with time zone: in UTC
    2950: "string",  # uuid
    3802: "string",  # jsonb
}
_ITEMS = {
    1000: 16,
    1005: 21,
    1007: 23,
    1009: 25,
    1014: 1042,
    1015: 1043,
    1016: 20,
    1021: 700,
    1022: 701,
    1115: 1114,
    1182: 1082,
    1183: 1083,
    1185: 1184,
    1231: NUMERIC,
    2951: 2950,
}
"""The types of the items of arrays."""
_TZ = 1184
_NATIVE = {
    16: "bool",
    17: "bytea",
    20: "int8",
    21: "int2",
    23: "int4",
    26: "int8",
    700: "float4",
    701: "float8",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
}
"""Types that a copy reads as they are, and what domains of them are cast to."""
_ADDRESSES = {650: "cidr_out", 869: "inet_out"}
"""Their casts to text add the length of the network."""
_PADDED = 1042
"""A cast to text takes the blanks of char(n) away."""
_TEXTS = frozenset({25, 1043})
_WIDER = frozenset({(21, 23), (21, 20), (23, 20), (700, 701)})
_WITH_FRACTIONS = frozenset({1083, 1114, _TZ})
"""Times, whose modifier says how many digits seconds have."""
_TRUE = "t"
_HEX = 2
"""The length of the mark before the digits of a bytea."""


def word_of(oid: int, modifier: int) -> str | None:
    """Return the store's name for a type of PostgreSQL; None if there is none."""
    if oid in _ITEMS:
        item = word_of(_ITEMS[oid], modifier)
        return None if item is None else f"list<{item}>"
    if oid == NUMERIC:
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        fits = modifier >= 4 and precision <= 38 and scale <= precision
        return f"decimal({precision},{scale})" if fits else None
    return _WORDS.get(oid)


def grows(was: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether values stay as they are when the type of a PostgreSQL column, with its modifier, becomes another one."""
    (old, old_modifier), (new, new_modifier) = was, now
    if was == now or {old, new} <= _TEXTS or (old, new) in _WIDER:
        return True
    if old != new:
        return False
    if old == NUMERIC:
        same_scale = (old_modifier - 4) & 0x7FF == (new_modifier - 4) & 0x7FF
        return same_scale and new_modifier >= old_modifier
    return old in _WITH_FRACTIONS and (new_modifier < 0 or 0 <= old_modifier <= new_modifier)


def refusal(table: str, column: str, type_name: str) -> InvalidArgumentError:
    """Return the error of a PostgreSQL column whose type the store lacks."""
    hint = (
        "give it a precision of at most 38 digits, as in numeric(18,4)"
        if type_name.startswith("numeric")
        else ("mirror a copy of the table without this column, or change its type, for example to text")
    )
    return InvalidArgumentError(
        f"{table}: column {column!r} has the type {type_name}, which cannot be mirrored: {hint}"
    )


def cells_of_text(text: pa.Array, oid: int, word: str, table: str, column: str) -> pa.Array:
    """Return cells of the store from the text that PostgreSQL writes them as; NULL stays NULL.

    Raises:
        SourceChangedError: a value does not fit the store's type, such as the numeric NaN and the date infinity.
    """
    kind = LogicalType.parse(word)
    try:
        if oid in _ITEMS:
            items, offsets, nulls = lists_of_text(text)
            cells = _cast(items, _ITEMS[oid], kind.arrow.value_type)
            return pa.ListArray.from_arrays(offsets, cells, type=kind.arrow, mask=nulls)
        return _cast(text, oid, kind.arrow)
    except (pa.ArrowInvalid, ValueError) as error:
        raise _not_fitting(table, column, word, str(error).partition("\n")[0][:200]) from None


def _not_fitting(table: str, column: str, word: str, why: str) -> SourceChangedError:
    return SourceChangedError(
        f"{table}: a value of the column {column!r} does not fit the type {word} ({why}); all earlier transactions are "
        "applied: correct the value in the source, and copy the tables again with --again"
    )


def sent_as(oid: int, column: str) -> str:
    """Return the expression by which a copy asks for a quoted column: as it is, or as the text that the stream has."""
    if oid in _ADDRESSES:
        return f"textin({_ADDRESSES[oid]}({column}))"
    return column if oid == _PADDED else f"{column}::{_NATIVE.get(oid, 'text')}"


def cells_of_sent(cells: pa.ChunkedArray, oid: int, word: str, table: str, column: str) -> pa.ChunkedArray:
    """Return the cells of a copied column, which came as ``sent_as`` has it. Raises as ``cells_of_text``."""
    kind = LogicalType.parse(word).arrow
    if oid not in _NATIVE:
        parts = [cells_of_text(part, oid, word, table, column) for part in cells.chunks]
        return pa.chunked_array(parts, kind)
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type):
        _check_years(cells, word, table, column)
    return cells.cast(kind)


def _check_years(cells: pa.ChunkedArray, word: str, table: str, column: str) -> None:
    """Refuse infinity, which the driver gives as some moment, and years that the stream refuses, too."""
    is_date = pa.types.is_date(cells.type)
    first, last = (moment // (DAY_MICROSECONDS if is_date else 1) for moment in (FIRST_MICROSECOND, LAST_MICROSECOND))
    bounds = pc.min_max(cells.cast(pa.int32() if is_date else pa.int64())).as_py()
    if bounds["min"] is not None and not first <= bounds["min"] <= bounds["max"] <= last:
        raise _not_fitting(table, column, word, "infinity, or a year that is not between 1 and 9999")


def _cast(text: pa.Array, oid: int, kind: pa.DataType) -> pa.Array:
    if special := _SPECIAL.get(oid):
        return special(text)
    return text if kind == pa.string() else text.cast(kind)


def _booleans(text: pa.Array) -> pa.Array:
    return pc.equal(text, _TRUE)


def _times(text: pa.Array) -> pa.Array:
    return times_of_text(text).cast(pa.time64("us"))


def _moments(text: pa.Array) -> pa.Array:
    """Return moments with a zone, which the session has as UTC, as moments of UTC."""
    return text.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def _bytes(text: pa.Array) -> pa.Array:
    """Return the bytes of ``\\x`` and hexadecimal digits."""
    digits = pc.utf8_slice_codeunits(text.fill_null("\\x"), _HEX)
    offsets = np.frombuffer(digits.buffers()[1], np.int32, len(digits) + 1, digits.offset * 4)
    data = digits.buffers()[2]
    whole = b"" if data is None else memoryview(data)[offsets[0] : offsets[-1]]
    halves = ((offsets - offsets[0]) // 2).astype(np.int32)
    valid = np.packbits(text.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(halves), pa.py_buffer(binascii.unhexlify(whole))]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers, null_count=-1)


_SPECIAL: dict[int, Callable[[pa.Array], pa.Array]] = {16: _booleans, 17: _bytes, 1083: _times, _TZ: _moments}

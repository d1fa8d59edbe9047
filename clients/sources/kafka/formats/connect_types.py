"""The schemas of Kafka Connect, as Debezium writes them: what the store has for each type, and how cells become Arrow.

A cell comes in its raw type: that of JSON, where bytes are text in base64, or that of Avro. The name of a field's type
says what the raw cell means.
"""

from __future__ import annotations

import base64
import decimal
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .....schemas import compute as pc
from .....schemas.cells.types import LogicalType
from .....schemas.errors import InvalidArgumentError
from ....convert.json_cell import json_text
from ...source import SourceColumn

Convert = Callable[[pa.Array], pa.Array]
_SIMPLE = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_DIGITS_MAX = 38
_UNAVAILABLE = "__debezium_unavailable_value"
"""In the place of a large value that an update left as it is, and that the database did not say again."""
_UNAVAILABLE_BYTES = _UNAVAILABLE.encode()
_PLAIN = (_UNAVAILABLE, base64.b64encode(_UNAVAILABLE_BYTES).decode(), _UNAVAILABLE_BYTES)
_MAP = {_UNAVAILABLE: _UNAVAILABLE}
UNAVAILABLE: tuple[Any, ...] = (
    *_PLAIN,
    json.dumps(_MAP),
    json.dumps(_MAP, separators=(",", ":")),
    *([each] for each in _PLAIN),
    [str(uuid.UUID(bytes=hashlib.md5(_UNAVAILABLE_BYTES, usedforsecurity=False).digest(), version=3))],
    list(_UNAVAILABLE_BYTES),
    _MAP,
)
"""The same in all forms: of text and bytes, of arrays of these, of UUIDs and of integers, and of hstore."""
_LENGTHS = [1, len(_UNAVAILABLE_BYTES)]
_WHOLE = 1_000


@dataclass(frozen=True)
class ConnectField:
    """A field of a struct in a message, as Kafka Connect describes it."""

    name: str
    raw: pa.DataType
    word: str
    """The name of its type in the store."""
    convert: Convert
    """Makes cells of the store of raw ones. Raises pa.ArrowInvalid or ValueError: one has no place there."""

    @property
    def column(self) -> SourceColumn:
        """The column that the store has for it."""
        return SourceColumn(name=self.name, type=self.word)


def fields_of(struct: Mapping[str, Any], is_json: bool) -> list[ConnectField]:
    """Return the fields of a message's schema of the type struct; ``is_json``: cells are JSON's.

    Raises:
        InvalidArgumentError: it is no such schema.
    """
    try:
        if struct["type"] != "struct":
            raise InvalidArgumentError(f"its schema is a {struct['type']}, not a struct")
        return [_field(each["field"], each, is_json) for each in struct["fields"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"its schema is not valid for Kafka Connect: {type(error).__name__} {error}"
        ) from None


def struct_of(fields: Sequence[ConnectField]) -> pa.DataType:
    """Return the type of the raw rows that Debezium's messages have."""
    return pa.struct([(each.name, each.raw) for each in fields])


def rows_of(structs: pa.StructArray, fields: Sequence[ConnectField]) -> pa.RecordBatch:
    """Return the raw rows of Debezium's messages as cells of the store.

    Raises:
        InvalidArgumentError: a value does not fit the type of its column.
    """
    columns: dict[str, pa.Array] = {}
    for each in fields:
        raw = structs.field(each.name)
        try:
            columns[each.name] = each.convert(raw)
        except (pa.ArrowException, ValueError, ArithmeticError, TypeError) as error:
            why = str(error).partition("\n")[0][:200]
            raise InvalidArgumentError(
                f"field {each.name!r} has a value that is not of type {each.word}: {why}"
            ) from None
    return pa.RecordBatch.from_pydict(columns)


def absent_of(structs: pa.StructArray) -> dict[str, np.ndarray]:
    """Return for each field that some of Debezium's messages bring no value of, since it is large and unchanged, which
    rows."""
    masks = {each.name: _is_unavailable(structs.field(each.name)) for each in structs.type}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _is_unavailable(cells: pa.Array) -> np.ndarray:
    kind, is_ = cells.type, pa.types
    if is_.is_string(kind) or is_.is_binary(kind):
        marks = [mark for mark in UNAVAILABLE if isinstance(mark, str if is_.is_string(kind) else bytes)]
        return pc.is_in(cells, pa.array(marks, kind)).to_numpy(zero_copy_only=False)
    mask = np.zeros(len(cells), np.bool_)
    if is_.is_list(kind) or is_.is_map(kind):
        lists = cells if is_.is_list(kind) else cells.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        places = np.flatnonzero(pc.is_in(pc.list_value_length(lists), pa.array(_LENGTHS, pa.int32())))
        values = cells.take(pa.array(places)).to_pylist(maps_as_pydicts="lossy")
        mask[[place for place, value in zip(places, values, strict=True) if value in UNAVAILABLE]] = True
    return mask


def without_marks(structs: pa.StructArray, absent: Mapping[str, np.ndarray]) -> pa.StructArray:
    """Return the raw rows of Debezium's messages with NULL in the place of absent cells: the mark is no value of most
    types."""
    if not absent:
        return structs
    names = [structs.type.field(at).name for at in range(structs.type.num_fields)]
    columns = [
        pc.if_else(pa.array(absent[name]), pa.scalar(None, cells.type), cells) if name in absent else cells
        for name, cells in ((name, structs.field(name)) for name in names)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(structs.type), mask=structs.is_null())


def _field(name: str, schema: Mapping[str, Any], is_json: bool) -> ConnectField:
    kind, meaning = schema["type"], schema.get("name") or ""
    parameters = schema.get("parameters") or {}
    if kind == "bytes":
        return _of_bytes(name, meaning, parameters, is_json)
    if meaning in _MEANINGS:
        word, convert = _MEANINGS[meaning]
        return ConnectField(name, _SIMPLE[kind], word, convert)
    if kind in _SIMPLE:
        raw = _SIMPLE[kind]
        return ConnectField(name, raw, str(LogicalType.from_arrow(pa.field(name, raw))), _same)
    if meaning == "io.debezium.data.VariableScaleDecimal":
        raw = pa.struct([("scale", pa.int32()), ("value", pa.string() if is_json else pa.binary())])
        return ConnectField(name, raw, "string", _variable_decimals)
    if kind == "array":
        item = _field("item", schema["items"], is_json)
        if not pa.types.is_nested(item.raw):
            return ConnectField(name, pa.list_(item.raw), f"list<{item.word}>", _lists(item))
    return ConnectField(name, _nested(schema, is_json), "json", _json)


def _nested(schema: Mapping[str, Any], is_json: bool) -> pa.DataType:
    """Return the raw type of a field that the store has as JSON."""
    kind = schema["type"]
    if kind == "struct":
        return pa.struct([(each["field"], _nested(each, is_json)) for each in schema["fields"]])
    if kind == "array":
        return pa.list_(_nested(schema["items"], is_json))
    if kind == "map":
        if is_json:
            raise InvalidArgumentError("a field of its schema is a map, which JSON does not describe: use Avro")
        return pa.map_(pa.string(), _nested(schema["values"], is_json))
    return pa.string() if kind == "bytes" and is_json else pa.binary() if kind == "bytes" else _SIMPLE[kind]


def _same(cells: pa.Array) -> pa.Array:
    return cells


def _of_bytes(name: str, meaning: str, parameters: Mapping[str, Any], is_json: bool) -> ConnectField:
    raw = pa.string() if is_json else pa.binary()
    if meaning == "org.apache.kafka.connect.data.Decimal":
        scale = int(parameters.get("scale", 0))
        digits = int(parameters.get("connect.decimal.precision", _DIGITS_MAX))
        if 0 <= scale <= digits <= _DIGITS_MAX:
            return ConnectField(name, raw, f"decimal({digits},{scale})", _decimals(digits, scale))
        return ConnectField(name, raw, "string", _decimal_text(scale))
    return ConnectField(name, raw, "binary", _bytes)


def _bytes(cells: pa.Array) -> pa.Array:
    return pa.array([_raw_bytes(each) for each in cells.to_pylist()], pa.binary())


def _raw_bytes(cell: str | bytes | None) -> bytes | None:
    return base64.b64decode(cell, validate=True) if isinstance(cell, str) else cell


def _number(cell: str | bytes | None, scale: int) -> decimal.Decimal | None:
    """Return a number from the big-endian bytes of its digits."""
    data = _raw_bytes(cell)
    if data is None:
        return None
    return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _CONTEXT)


_CONTEXT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _decimals(digits: int, scale: int) -> Convert:
    kind = pa.decimal128(digits, scale)
    return lambda cells: pa.array([_number(each, scale) for each in cells.to_pylist()], kind)


def _decimal_text(scale: int) -> Convert:
    return lambda cells: pa.array([_digits(_number(each, scale)) for each in cells.to_pylist()], pa.string())


def _variable_decimals(cells: pa.Array) -> pa.Array:
    numbers = [None if each is None else _number(each["value"], each["scale"]) for each in cells.to_pylist()]
    return pa.array(list(map(_digits, numbers)), pa.string())


def _digits(number: decimal.Decimal | None) -> str | None:
    return None if number is None else f"{number:f}"


def _times(factor: int, word: str) -> Convert:
    """Return the conversion of a count of units, each of ``factor`` of those of the type."""
    kind = LogicalType.parse(word).arrow

    def convert(cells: pa.Array) -> pa.Array:
        counts = cells.cast(pa.int64())
        return (pc.multiply_checked(counts, pa.scalar(factor, pa.int64())) if factor > 1 else counts).cast(kind)

    return convert


def _cut(cells: pa.Array) -> pa.Array:
    """Return nanoseconds as moments, whose finest unit is a microsecond."""
    counts = cells.cast(pa.int64()).to_numpy(zero_copy_only=False) if not cells.null_count else None
    if counts is None:
        counts = np.array(cells.fill_null(0), np.int64)
    return pa.array(counts // _WHOLE, pa.int64(), mask=cells.is_null().to_numpy(zero_copy_only=False)).cast(
        pa.timestamp("us")
    )


def _zoned(cells: pa.Array) -> pa.Array:
    """Return moments as text, whose finest unit is a microsecond, as moments."""
    cells = pc.replace_substring_regex(cells, r"(\.[0-9]{6})[0-9]+", r"\1")
    return cells.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def _dates(cells: pa.Array) -> pa.Array:
    return cells.cast(pa.int32()).cast(pa.date32())


def _json(cells: pa.Array) -> pa.Array:
    values = cells.to_pylist(maps_as_pydicts="strict")
    return pa.array([None if each is None else json_text(each) for each in values], pa.string())


def _lists(item: ConnectField) -> Convert:
    def convert(cells: pa.Array) -> pa.Array:
        items = item.convert(cells.flatten())
        lengths = pc.fill_null(pc.list_value_length(cells), 0).to_numpy(zero_copy_only=False)
        offsets = np.zeros(len(cells) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=cells.is_null())

    return convert


_DATE, _MILLIS = ("date", _dates), ("timestamp[us]", _times(1_000, "timestamp[us]"))
_MEANINGS: dict[str, tuple[str, Convert]] = {
    "io.debezium.time.Date": _DATE,
    "org.apache.kafka.connect.data.Date": _DATE,
    "io.debezium.time.Timestamp": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": ("timestamp[us]", _times(1, "timestamp[us]")),
    "io.debezium.time.NanoTimestamp": ("timestamp[us]", _cut),
    "io.debezium.time.Time": ("time64[us]", _times(1_000, "time64[us]")),
    "org.apache.kafka.connect.data.Time": ("time64[us]", _times(1_000, "time64[us]")),
    "io.debezium.time.MicroTime": ("time64[us]", _times(1, "time64[us]")),
    "io.debezium.time.NanoTime": ("time64[ns]", _times(1, "time64[ns]")),
    "io.debezium.time.ZonedTimestamp": ("timestamp[us]", _zoned),
    "io.debezium.time.MicroDuration": ("duration[us]", _times(1, "duration[us]")),
    "io.debezium.time.NanoDuration": ("duration[ns]", _times(1, "duration[ns]")),
    "io.debezium.data.Json": ("json", _same),
}
"""By the names of types: the store's type, and the conversion."""

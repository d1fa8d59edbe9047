"""The logical types of columns: their names, their Arrow types, and what is rejected.

bool int8 int16 int32 int64 date timestamp[us] float double decimal(p,s) string varchar(n) binary
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from ..errors import InvalidArgumentError
from .wrapped import bare_type

TYPE_METADATA = b"nyala.type"
"""Key of the Arrow field metadata that carries a type which Arrow lacks (varchar)."""

_SIMPLE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "date": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
}
_BY_ARROW = {arrow: word for word, arrow in _SIMPLE.items()}
_ALIASES = {
    "bigint": "int64",
    "blob": "binary",
    "boolean": "bool",
    "bytea": "binary",
    "date32": "date",
    "double precision": "double",
    "float32": "float",
    "float64": "double",
    "int": "int32",
    "integer": "int32",
    "real": "float",
    "smallint": "int16",
    "text": "string",
    "timestamp": "timestamp[us]",
    "tinyint": "int8",
    "varbinary": "binary",
    "varchar": "string",
}
"""SQL's names, and other ones, by ours. ``numeric`` stands for ``decimal``, whose digits are 18 and 3 as in DuckDB."""
_DECIMAL = re.compile(r"(?:decimal|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_VARCHAR = re.compile(r"varchar\(\s*(\d+)\s*\)")
_INTEGERS = frozenset({"int8", "int16", "int32", "int64"})


@dataclass(frozen=True, slots=True)
class LogicalType:
    """One column type. ``str()`` returns its name, ``parse`` reads it.

    >>> str(LogicalType.parse("decimal(10, 2)"))
    'decimal(10,2)'
    """

    name: str
    precision: int = 0
    scale: int = 0
    length: int = 0

    @classmethod
    def parse(cls, word: str) -> LogicalType:
        """Parse a type's name, or SQL's name for it, in any case.

        Raises:
            InvalidArgumentError: it is not a type, or a precision, scale or length is out of range.
        """
        return _parse(word.strip())

    @classmethod
    def decimal(cls, precision: int, scale: int) -> LogicalType:
        """Return decimal(precision,scale). Raises InvalidArgumentError if they are out of range."""
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise InvalidArgumentError(
                f"decimal({precision},{scale}) is out of range: the precision must be 1 to 38, the scale 0 to the "
                "precision"
            )
        return cls("decimal", precision=precision, scale=scale)

    @classmethod
    def varchar(cls, length: int) -> LogicalType:
        """Return varchar(length). Raises InvalidArgumentError if it is out of range."""
        if not 1 <= length <= 65_535:
            raise InvalidArgumentError(f"varchar({length}) is out of range: the length must be 1 to 65535 characters")
        return cls("varchar", length=length)

    @classmethod
    def from_arrow(cls, field: pa.Field) -> LogicalType:
        """Return the type of an Arrow field.

        Raises:
            InvalidArgumentError: the store lacks the type; the message names the nearest one that works.
        """
        kind = field.type
        if pa.types.is_string(kind) and field.metadata and TYPE_METADATA in field.metadata:
            return cls.parse(field.metadata[TYPE_METADATA].decode())
        if found := _held(kind):
            return found
        raise InvalidArgumentError(
            f"column {field.name!r} has the type {kind}, which a table cannot hold; "
            f"the nearest type that works is {nearest(kind)}"
        )

    @classmethod
    def of(cls, kind: pa.DataType) -> LogicalType | None:
        """Return the type whose cells have an Arrow type; None if there is none."""
        return _held(kind)

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return f"varchar({self.length})" if self.name == "varchar" else self.name

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its cells in requests and results."""
        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        return pa.string() if self.name == "varchar" else _SIMPLE[self.name]

    def field(self, name: str, nullable: bool) -> pa.Field:
        """The Arrow field of a column of this type."""
        metadata = {TYPE_METADATA: str(self).encode()} if self.name == "varchar" else None
        return pa.field(name, self.arrow, nullable=nullable, metadata=metadata)

    @property
    def is_integer(self) -> bool:
        return self.name in _INTEGERS

    @property
    def is_floating(self) -> bool:
        return self.name in ("float", "double")

    @property
    def is_text(self) -> bool:
        return self.name in ("string", "varchar")

    @property
    def is_variable(self) -> bool:
        """Whether cells differ in length: string, varchar and binary."""
        return self.is_text or self.name == "binary"

    @property
    def may_be_key(self) -> bool:
        """Whether a primary key may hold it: everything but bool and the floating types."""
        return self.name != "bool" and not self.is_floating


@lru_cache(maxsize=1024)
def _parse(text: str) -> LogicalType:
    name = text.lower()
    name = _ALIASES.get(name, name)
    if name in _SIMPLE:
        return LogicalType(name)
    if match := _DECIMAL.fullmatch(name):
        return LogicalType.decimal(int(match[1] or 18), int(match[2] or (0 if match[1] else 3)))
    if match := _VARCHAR.fullmatch(name):
        return LogicalType.varchar(int(match[1]))
    raise InvalidArgumentError(f"unknown column type {text!r}; known: {', '.join(type_words())}")


def type_words() -> list[str]:
    """All names of column types, with p, s and n for the numbers."""
    return [*_SIMPLE, "decimal(p,s)", "varchar(n)"]


def _held(kind: pa.DataType) -> LogicalType | None:
    """Return the type whose Arrow type is ``kind``; None if there is none."""
    if isinstance(kind, pa.BaseExtensionType):  # some are not even hashable
        return None
    if kind in _BY_ARROW:
        return LogicalType(_BY_ARROW[kind])
    return LogicalType.decimal(kind.precision, kind.scale) if pa.types.is_decimal128(kind) and kind.scale >= 0 else None


def holder(kind: pa.DataType) -> LogicalType | None:
    """Return the column type that holds every cell of an Arrow type; None if there is none.

    Nanosecond timestamps count as held by timestamp[us]: cells with parts of a microsecond are refused when they are
    written. Wrapped Arrow types (extensions, dictionaries, run-end encoding) count as the types inside.
    """
    is_, kind = pa.types, bare_type(kind)
    if found := _held(kind):
        return found
    if is_.is_decimal(kind):
        precision, scale = _digits(kind)
        return LogicalType.decimal(precision, scale) if precision <= 38 else None
    words = {
        "int16": is_.is_uint8(kind),
        "int32": is_.is_uint16(kind),
        "int64": is_.is_uint32(kind),
        "decimal(20,0)": is_.is_uint64(kind),
        "timestamp[us]": is_.is_timestamp(kind),
        "date": is_.is_date64(kind),
        "float": is_.is_float16(kind),
        "string": is_.is_large_string(kind) or is_.is_string_view(kind),
        "binary": is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or is_.is_binary_view(kind),
    }
    return next((LogicalType.parse(word) for word, holds in words.items() if holds), None)


def nearest(kind: pa.DataType) -> str:
    """Return the name of the column type that holds most of what ``kind`` holds, and how to convert to it."""
    is_, bare = pa.types, bare_type(kind)
    if is_.is_decimal(bare) and (digits := _digits(bare))[0] > 38:
        return f"decimal(38,{min(digits[1], 38)}), if its values fit"
    if is_.is_time(bare) or is_.is_duration(bare):
        return "int32" if is_.is_time32(bare) else "int64"  # Arrow casts to the integer of the same size only
    if is_.is_nested(bare):
        return "string (as JSON)"
    word = str(holder(bare) or "string")
    if is_.is_dictionary(kind) and word in ("string", "binary"):
        return f"{word} (dictionary encoding is a column option)"
    return f"{word} (without a time zone, in UTC)" if is_.is_timestamp(bare) and bare.tz is not None else word


def nearest_word(kind: pa.DataType) -> str:
    """Return the name of the column type that holds most of what ``kind`` holds."""
    return nearest(kind).partition(" (")[0].partition(", if")[0]


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return precision and scale of a decimal; a negative scale counts zeros before the point."""
    return kind.precision + max(-kind.scale, 0), max(kind.scale, 0)

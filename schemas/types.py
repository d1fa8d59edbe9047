"""The logical types of a column: their words, their Arrow types, and what is refused.

bool int8 int16 int32 int64 date timestamp[us] float double decimal(p,s) string varchar(n) binary
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from .errors import InvalidArgumentError

TYPE_METADATA = b"nyala.type"
"""Key of the Arrow field metadata that carries a type which Arrow has no word for (varchar)."""

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
_ALIASES = {"timestamp": "timestamp[us]", "float32": "float", "float64": "double", "date32": "date"}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_VARCHAR = re.compile(r"varchar\(\s*(\d+)\s*\)")
_INTEGERS = frozenset({"int8", "int16", "int32", "int64"})


@dataclass(frozen=True, slots=True)
class LogicalType:
    """One column type. ``str()`` gives its word, ``parse`` reads it back.

    >>> str(LogicalType.parse("decimal(10, 2)"))
    'decimal(10,2)'
    """

    name: str
    precision: int = 0
    scale: int = 0
    length: int = 0

    @classmethod
    def parse(cls, word: str) -> LogicalType:
        """Read a type's word.

        Raises:
            InvalidArgumentError: for a word that is no type, or a precision, scale or length out of range.
        """
        return _parse(word.strip())

    @classmethod
    def decimal(cls, precision: int, scale: int) -> LogicalType:
        """Return decimal(precision,scale). Raises InvalidArgumentError when they are out of range."""
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise InvalidArgumentError(
                f"decimal({precision},{scale}) is out of range: the precision is 1 to 38, the scale 0 to the precision"
            )
        return cls("decimal", precision=precision, scale=scale)

    @classmethod
    def varchar(cls, length: int) -> LogicalType:
        """Return varchar(length). Raises InvalidArgumentError when it is out of range."""
        if not 1 <= length <= 65_535:
            raise InvalidArgumentError(f"varchar({length}) is out of range: the length is 1 to 65535 characters")
        return cls("varchar", length=length)

    @classmethod
    def from_arrow(cls, field: pa.Field) -> LogicalType:
        """Return the type of an Arrow field.

        Raises:
            InvalidArgumentError: for a type that the store does not have; the text names the nearest that works.
        """
        kind = field.type
        if pa.types.is_string(kind) and field.metadata and TYPE_METADATA in field.metadata:
            return cls.parse(field.metadata[TYPE_METADATA].decode())
        if found := _held(kind):
            return found
        raise InvalidArgumentError(
            f"column {field.name!r} has the type {kind}, which a table cannot hold; "
            f"the nearest that works is {nearest(kind)}"
        )

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return f"varchar({self.length})" if self.name == "varchar" else self.name

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which cells go in and out."""
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
    name = _ALIASES.get(text, text)
    if name in _SIMPLE:
        return LogicalType(name)
    if match := _DECIMAL.fullmatch(name):
        return LogicalType.decimal(int(match[1]), int(match[2]))
    if match := _VARCHAR.fullmatch(name):
        return LogicalType.varchar(int(match[1]))
    raise InvalidArgumentError(f"{text!r} is no column type; the types are {', '.join(type_words())}")


def type_words() -> list[str]:
    """All types as words, with p, s and n for the numbers."""
    return [*_SIMPLE, "decimal(p,s)", "varchar(n)"]


def _held(kind: pa.DataType) -> LogicalType | None:
    """Return the type whose Arrow type ``kind`` is; None when there is none."""
    if isinstance(kind, pa.BaseExtensionType):  # some cannot even be hashed
        return None
    if kind in _BY_ARROW:
        return LogicalType(_BY_ARROW[kind])
    return LogicalType.decimal(kind.precision, kind.scale) if pa.types.is_decimal128(kind) and kind.scale >= 0 else None


def nearest(kind: pa.DataType) -> str:
    """Return the word of the type that holds most of what ``kind`` holds."""
    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _word_of(kind.storage_type)
    if is_.is_dictionary(kind):
        word = _word_of(kind.value_type)
        return f"{word} (dictionary encoding is a column option)" if word in ("string", "binary") else word
    if is_.is_run_end_encoded(kind):
        return _word_of(kind.value_type)
    if is_.is_decimal(kind):
        return _nearest_decimal(kind.precision, kind.scale)
    rules: list[tuple[bool, str]] = [
        (is_.is_uint8(kind), "int16"),
        (is_.is_uint16(kind), "int32"),
        (is_.is_uint32(kind), "int64"),
        (is_.is_uint64(kind), "decimal(20,0)"),
        (is_.is_timestamp(kind) and kind.tz is not None, "timestamp[us] (without a time zone, in UTC)"),
        (is_.is_timestamp(kind), "timestamp[us]"),
        (is_.is_date64(kind), "date"),
        (is_.is_time(kind) or is_.is_duration(kind), "int64"),
        (is_.is_float16(kind), "float"),
        (is_.is_large_string(kind) or kind == pa.string_view(), "string"),
        (
            is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or kind == pa.binary_view(),
            "binary",
        ),
        (is_.is_nested(kind), "string (as JSON)"),
    ]
    return next((word for applies, word in rules if applies), "string")


def _word_of(kind: pa.DataType) -> str:
    return str(found) if (found := _held(kind)) else nearest(kind)


def _nearest_decimal(precision: int, scale: int) -> str:
    """Return the decimal of the same digits: a negative scale counts zeros before the point."""
    precision, scale = precision + max(-scale, 0), max(scale, 0)
    if precision <= 38:
        return f"decimal({precision},{scale})"
    return f"decimal(38,{min(scale, 38)}), if its digits suffice"

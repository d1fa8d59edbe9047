"""The logical types of columns: their names, their Arrow types, and what is rejected.

bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 date timestamp[us] time32[s|ms] time64[us|ns]
duration[s|ms|us|ns] month_day_nano_interval float16 float double decimal(p,s) string varchar(n) json binary
list<T> large_list<T> fixed_size_list<T>[n] struct<name: T, ...> map<K, V>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from ..errors import InvalidArgumentError
from .nested_names import nested_name, struct_text
from .wrapped import bare_type

TYPE_METADATA = b"nyala.type"
"""Key of the Arrow field metadata that carries a type whose cells are strings in Arrow: varchar, json."""

TIMES = {str(kind): kind for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))}
DURATIONS = {str(kind): kind for kind in map(pa.duration, ("s", "ms", "us", "ns"))}
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
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    **TIMES,
    **DURATIONS,
    "month_day_nano_interval": pa.month_day_nano_interval(),
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
    "halffloat": "float16",
    "interval": "month_day_nano_interval",
    "jsonb": "json",
    "real": "float",
    "smallint": "int16",
    "text": "string",
    "time": "time64[us]",
    "timestamp": "timestamp[us]",
    "tinyint": "int8",
    "ubigint": "uint64",
    "uinteger": "uint32",
    "usmallint": "uint16",
    "utinyint": "uint8",
    "varbinary": "binary",
    "varchar": "string",
}
"""SQL's names, and other ones, by ours. ``numeric`` stands for ``decimal``, whose digits are 18 and 3 as in DuckDB."""
_DECIMAL = re.compile(r"(?:decimal|numeric)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_VARCHAR = re.compile(r"varchar\(\s*(\d+)\s*\)")
INTEGERS = {f"{sign}int{bits}": (sign, bits) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_MAY_BE_KEYS = frozenset(
    {"int8", "int16", "int32", "int64", "date", "timestamp[us]", "decimal", "string", "varchar", "binary"}
)
_NESTED = frozenset({"list", "large_list", "fixed_size_list", "struct", "map"})
NESTED_IDS = frozenset(
    kind.id
    for kind in (
        pa.list_(pa.null()),
        pa.large_list(pa.null()),
        pa.list_(pa.null(), 1),
        pa.list_view(pa.null()),
        pa.large_list_view(pa.null()),
        pa.struct([]),
        pa.map_(pa.string(), pa.null()),
        pa.dense_union([]),
        pa.sparse_union([]),
    )
)
"""The numbers of Arrow's nested types."""
ORDERLESS_IDS = NESTED_IDS | {pa.month_day_nano_interval().id}
"""Those of types whose cells cannot be compared, sorted and grouped."""
_TEXTS = ("string", "varchar", "json")
_INSTEAD = {"varchar": "string", "json": "string", "month_day_nano_interval": "duration[us]"}
"""By the types that are none inside of nested ones, others that are."""
DEPTH_MAX = 32
"""Types inside of each other, at most."""
ITEMS_MAX = 65_535
"""Of lists that all have one length."""


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
    fields: tuple[tuple[str, LogicalType], ...] = ()
    """Name and type of each field of a struct; of the items of a list ("item"); of a map's keys and values ("key",
    "value")."""

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
        if self.name == "struct":
            return struct_text(self.fields)
        if self.fields:
            parts = ", ".join(str(kind) for _, kind in self.fields)
            return f"{self.name}<{parts}>" + (f"[{self.length}]" if self.name == "fixed_size_list" else "")
        return f"varchar({self.length})" if self.name == "varchar" else self.name

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its cells in requests and results."""
        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.fields:
            return _nested_arrow(self)
        return pa.string() if self.name in _TEXTS else _SIMPLE[self.name]

    def field(self, name: str, nullable: bool) -> pa.Field:
        """The Arrow field of a column of this type."""
        metadata = {TYPE_METADATA: str(self).encode()} if self.name in ("varchar", "json") else None
        return pa.field(name, self.arrow, nullable=nullable, metadata=metadata)

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS

    @property
    def bounds(self) -> tuple[int, int]:
        """The least integer of an integer type, and the first one past the greatest."""
        sign, bits = INTEGERS[self.name]
        return (0, 1 << bits) if sign else (-(1 << (bits - 1)), 1 << (bits - 1))

    @property
    def sum_is_wide(self) -> bool:
        """Whether sums of an integer type may need more than 64 bits."""
        return self.name in ("int64", "uint32", "uint64")

    @property
    def has_order(self) -> bool:
        """Whether cells can be compared, sorted and grouped: those of all types but the nested ones and intervals of
        months."""
        return not self.fields and self.name != "month_day_nano_interval"

    @property
    def is_floating(self) -> bool:
        return self.name in ("float16", "float", "double")

    @property
    def is_text(self) -> bool:
        return self.name in _TEXTS

    @property
    def is_variable(self) -> bool:
        """Whether cells differ in length: text and binary."""
        return self.is_text or self.name == "binary"

    @property
    def is_nested(self) -> bool:
        """Whether cells are lists, structs or maps."""
        return bool(self.fields)

    @property
    def may_be_key(self) -> bool:
        """Whether a primary key may hold it: signed integers, dates, timestamps, decimals, strings and binary."""
        return self.name in _MAY_BE_KEYS


@lru_cache(maxsize=1024)
def _nested_arrow(kind: LogicalType) -> pa.DataType:
    kinds = [inner.arrow for _, inner in kind.fields]
    if kind.name == "struct":
        return pa.struct([pa.field(name, inner) for (name, _), inner in zip(kind.fields, kinds, strict=True)])
    if kind.name == "fixed_size_list":
        return pa.list_(kinds[0], kind.length)
    return {"list": pa.list_, "large_list": pa.large_list, "map": pa.map_}[kind.name](*kinds)


@lru_cache(maxsize=1024)
def _parse(text: str, depth: int = 0) -> LogicalType:
    name = text.lower()
    name = _ALIASES.get(name, name)
    if name in _SIMPLE or name == "json":
        return LogicalType(name)
    if match := _DECIMAL.fullmatch(name):
        return LogicalType.decimal(int(match[1] or 18), int(match[2] or (0 if match[1] else 3)))
    if match := _VARCHAR.fullmatch(name):
        return LogicalType.varchar(int(match[1]))
    if depth > DEPTH_MAX:
        raise InvalidArgumentError(f"more than {DEPTH_MAX} types are nested in each other")
    if nested := nested_name(text):
        parts = [(name, _parse(part, depth + 1)) for name, part in nested.parts]
        return _nested(nested.name, parts, nested.length)
    raise InvalidArgumentError(f"unknown column type {text!r}; known: {', '.join(type_words())}")


def type_words() -> list[str]:
    """All names of column types, with p, s and n for the numbers."""
    nested = ("list<T>", "large_list<T>", "fixed_size_list<T>[n]", "struct<name: T, ...>", "map<K, V>")
    return [*_SIMPLE, "decimal(p,s)", "varchar(n)", "json", *nested]


def _nested(name: str, fields: Sequence[tuple[str, LogicalType]], length: int = 0) -> LogicalType:
    """Return a nested type. Raises InvalidArgumentError if there is none of these fields."""
    names = [field for field, _ in fields]
    if not all(names) or len(set(names)) < len(names):
        raise InvalidArgumentError(f"the fields of a struct need different names: {', '.join(map(repr, names))}")
    if name == "fixed_size_list" and not 1 <= length <= ITEMS_MAX:
        raise InvalidArgumentError(f"lists of {length:,} items are out of range: 1 to {ITEMS_MAX:,} items are possible")
    for _, kind in fields:
        if kind.name in _INSTEAD:
            raise InvalidArgumentError(f"a {name} cannot hold {kind}: use {_INSTEAD[kind.name]}")
    return LogicalType(name, length=length, fields=tuple(fields))


def _held(kind: pa.DataType) -> LogicalType | None:
    """Return the type whose Arrow type is ``kind``; None if there is none."""
    if isinstance(kind, pa.JsonType):
        return LogicalType("json")
    if isinstance(kind, pa.BaseExtensionType):  # some are not even hashable
        return None
    if kind.id in NESTED_IDS:
        return _nested_of(kind, _held)
    if kind in _BY_ARROW:
        return LogicalType(_BY_ARROW[kind])
    return LogicalType.decimal(kind.precision, kind.scale) if pa.types.is_decimal128(kind) and kind.scale >= 0 else None


def _is_too_deep(kind: pa.DataType) -> bool:
    """Whether more types are nested in an Arrow type than a column may have; without recursion."""
    waiting = [(kind, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > DEPTH_MAX:
            return True
        if pa.types.is_nested(each):
            waiting += [(each.field(i).type, depth + 1) for i in range(each.num_fields)]
    return False


def _nested_of(kind: pa.DataType, of: Callable[[pa.DataType], LogicalType | None]) -> LogicalType | None:
    """Return a nested type whose parts are ``of`` the parts of an Arrow type; None if there is none."""
    is_, length = pa.types, 0
    if _is_too_deep(kind):
        return None
    if is_.is_struct(kind):
        name, fields = "struct", [(kind.field(i).name, kind.field(i).type) for i in range(kind.num_fields)]
    elif is_.is_map(kind):
        name, fields = "map", [("key", kind.key_type), ("value", kind.item_type)]
    elif is_.is_union(kind):
        return None
    else:
        name, fields = "list", [("item", kind.value_type)]
        if is_.is_fixed_size_list(kind):
            name, length = "fixed_size_list", kind.list_size
        elif is_.is_large_list(kind):
            name = "large_list"
        elif not is_.is_list(kind) and of is _held:  # a view
            return None
    parts = [(each, inner) for each, part in fields if (inner := of(part))]
    if len(parts) < len(fields) or not parts:
        return None
    try:
        return _nested(name, parts, length)
    except InvalidArgumentError:
        return None


def holder(kind: pa.DataType) -> LogicalType | None:
    """Return the column type that holds every cell of an Arrow type; None if there is none.

    Nanosecond timestamps count as held by timestamp[us]: cells with parts of a microsecond are refused when they are
    written. Wrapped Arrow types (extensions but for JSON, dictionaries, run-end encoding) count as the types inside.
    """
    if isinstance(kind, pa.JsonType):
        return LogicalType("json")
    is_, kind = pa.types, bare_type(kind)
    if found := _held(kind):
        return found
    if is_.is_nested(kind):
        return _nested_of(kind, holder)
    if is_.is_decimal(kind):
        precision, scale = _digits(kind)
        return LogicalType.decimal(precision, scale) if precision <= 38 else None
    words = {
        "timestamp[us]": is_.is_timestamp(kind),
        "date": is_.is_date64(kind),
        "string": is_.is_large_string(kind) or is_.is_string_view(kind),
        "binary": is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or is_.is_binary_view(kind),
    }
    return next((LogicalType.parse(word) for word, holds in words.items() if holds), None)


def key_type(kind: LogicalType) -> LogicalType:
    """Return the type of a key column that holds every cell of ``kind``: a key has no unsigned integers."""
    words = {"uint8": "int16", "uint16": "int32", "uint32": "int64", "uint64": "decimal(20,0)"}
    return LogicalType.parse(words[kind.name]) if kind.name in words else kind


def nearest(kind: pa.DataType) -> str:
    """Return the name of the column type that holds most of what ``kind`` holds, and how to convert to it."""
    is_, bare = pa.types, bare_type(kind)
    if is_.is_decimal(bare) and (digits := _digits(bare))[0] > 38:
        return f"decimal(38,{min(digits[1], 38)}), if its values fit"
    if is_.is_nested(bare) and not holder(bare):
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

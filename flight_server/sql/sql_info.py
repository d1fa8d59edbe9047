"""What Flight SQL's SqlInfo says of this server: every id of the specification, since JDBC asks for nearly all."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from ...clients.sql.functions import FUNCTIONS
from ...clients.sql.statement import TEXT_MAX

_TEXT, _INT = pa.string(), pa.int32()
_CHOICES: dict[str, pa.DataType] = {
    "string_value": _TEXT,
    "bool_value": pa.bool_(),
    "bigint_value": pa.int64(),
    "int32_bitmask": _INT,
    "string_list": pa.list_(_TEXT),
    "int32_to_int32_list_map": pa.map_(_INT, pa.list_(_INT)),
}
_TRANSACTION_MS = 600_000
_TIMES = (
    *("current_date", "current_time", "current_timestamp", "date_bin", "date_format", "date_part", "date_trunc"),
    *("from_unixtime", "make_date", "make_time", "now", "to_char", "to_date", "to_local_time", "to_time"),
    *("to_timestamp", "to_timestamp_micros", "to_timestamp_millis", "to_unixtime", "today"),
)
_NUMBERS = (
    *("abs", "acos", "asin", "atan", "atan2", "cbrt", "ceil", "cos", "cot", "degrees", "exp", "factorial", "floor"),
    *("gcd", "lcm", "ln", "log", "log10", "log2", "pi", "power", "radians", "random", "round", "signum", "sin", "sqrt"),
    *("tan", "trunc"),
)
_STRINGS = (
    *("ascii", "bit_length", "btrim", "char_length", "chr", "concat", "concat_ws", "contains", "ends_with", "initcap"),
    *("left", "length", "lower", "ltrim", "md5", "octet_length", "overlay", "position", "regexp_like", "regexp_match"),
    *("regexp_replace", "replace", "reverse", "right", "rtrim", "sha256", "split_part", "starts_with", "strpos"),
    *("substr", "substring", "to_hex", "translate", "trim", "upper"),
)
_KEYWORDS = ("changes", "for system_time as of", "ilike", "merge", "partition by", "truncate")
# The numbers of SqlSupportsConvert: bigint, date, decimal, float, integer, real, smallint, timestamp, tinyint, varchar.
_CONVERTED = (0, 4, 5, 6, 7, 13, 14, 16, 17, 19)


def _bits(*places: int) -> tuple[str, int]:
    return "int32_bitmask", sum(1 << place for place in places)


def _enum(number: int) -> tuple[str, int]:
    """An ordinal. Drivers read it where they read sets of bits."""
    return "int32_bitmask", number


def _long(number: int) -> tuple[str, int]:
    return "bigint_value", number


def _text(value: str) -> tuple[str, str]:
    return "string_value", value


def _listed(values: Iterable[str]) -> tuple[str, list[str]]:
    return "string_list", sorted(values)


_YES, _NO = ("bool_value", True), ("bool_value", False)
_UNLIMITED = (541, 542, 543, 544, 545, 546, 547, 548, 549, 550, 551, 552, 553, 554, 555, 558, 559, 560, 561)
"""The ids of limits of names, columns and rows."""
_VALUES: dict[int, tuple[str, Any]] = {
    0: _text("nyala"),
    1: _text(version("nyala")),
    2: _text(pa.__version__),
    3: _NO,  # read only
    4: _YES,  # SQL
    5: _NO,  # Substrait, and its versions
    6: _text(""),
    7: _text(""),
    8: _enum(1),  # transactions, without savepoints
    9: _YES,  # cancel
    10: _YES,  # ingest
    11: _NO,  # ingest in a transaction
    100: _enum(0),
    101: _enum(_TRANSACTION_MS),
    500: _NO,  # CREATE CATALOG, CREATE SCHEMA, CREATE TABLE
    501: _NO,
    502: _YES,
    503: _enum(3),  # names are in lower case
    504: _text('"'),
    505: _enum(0),  # but for those in quotes: the specification has no word for "as written"
    506: _NO,  # all tables that are listed can be selected from
    507: _enum(0),  # NULL is greater than all values
    508: _listed(_KEYWORDS),
    509: _listed(FUNCTIONS.intersection(_NUMBERS)),
    510: _listed(FUNCTIONS.intersection(_STRINGS)),
    511: _listed(FUNCTIONS.intersection(("coalesce", "nullif", "uuid", "arrow_typeof"))),
    512: _listed(FUNCTIONS.intersection(_TIMES)),
    513: _text("\\"),
    514: _text(""),
    515: _YES,  # AS
    516: _YES,
    517: ("int32_to_int32_list_map", [(number, list(_CONVERTED)) for number in _CONVERTED]),
    518: _YES,
    519: _NO,
    520: _YES,
    521: _YES,
    522: _bits(0, 1),
    523: _YES,
    524: _YES,
    525: _bits(0, 1, 2),
    526: _bits(0, 1),
    527: _NO,
    528: _bits(1, 2),  # outer joins
    529: _text("schema"),
    530: _text("procedure"),
    531: _text("catalog"),
    532: _YES,
    533: _bits(),
    534: _bits(),
    535: _bits(),
    536: _NO,
    537: _NO,
    538: _bits(0, 1, 2, 3),
    539: _YES,
    540: _bits(0, 1),
    **dict.fromkeys(_UNLIMITED, _long(0)),
    556: _YES,
    557: _long(TEXT_MAX),
    562: _long(3),  # snapshots: repeatable reads
    563: _YES,
    564: _bits(2, 3),
    565: _NO,
    566: _NO,
    567: _bits(0, 1),  # results are read once, forward
    568: _bits(0, 1),
    569: _bits(0, 1),
    570: _bits(),
    571: _bits(),
    572: _YES,  # batches of parameters
    573: _NO,
    574: _NO,
    575: _NO,
    576: _NO,
}
"""Each id with the kind of its value, and the value."""


def schema() -> pa.Schema:
    """Return the columns of the answer to GetSqlInfo."""
    value = pa.dense_union([pa.field(name, kind) for name, kind in _CHOICES.items()])
    return pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", value, False)])


def sql_info(asked: Iterable[int]) -> pa.Table:
    """Answer GetSqlInfo for these ids, or for all; those that nobody knows are left out."""
    ids = [each for each in asked if each in _VALUES] or ([] if list(asked) else list(_VALUES))
    names = list(_CHOICES)
    kinds: list[int] = []
    places: list[int] = []
    cells: list[list[Any]] = [[] for _ in names]
    for each in ids:
        name, value = _VALUES[each]
        kind = names.index(name)
        kinds.append(kind)
        places.append(len(cells[kind]))
        cells[kind].append(value)
    children = [pa.array(mine, kind) for mine, kind in zip(cells, _CHOICES.values(), strict=True)]
    union = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(places, _INT), children, names)
    return pa.Table.from_arrays([pa.array(ids, pa.uint32()), union], schema=schema())

"""The tables of the model, and the few cells that make them interesting: small enough for keys to meet often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.partition import HashLevel, RangeLevel
from nyala.schemas.table.partition import hash as by_hash
from nyala.schemas.table.partition import range as by_range
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.options import columns
from tests.campaigns.options import table as table_options

from .oracle import REQUIRED, Key, ModelSchema, Row
from .ranges import UNRANGED, Ranges

TABLE = "t"


@dataclass(frozen=True)
class Shape:
    """``cells`` has what each column may hold; None is added where NULL is a legal cell or a worthwhile error."""

    arrow: pa.Schema
    model: ModelSchema
    cells: dict[str, Sequence[Any]]
    column_options: dict[str, ColumnOptions]
    filtered: tuple[str, ...]
    """Columns whose order the model knows: no floating type with its NaN."""
    history_seconds: int = 7 * 24 * 3600
    key_index_bytes: int | None = None
    """Of the store; None is more than any table here needs, 0 leaves every look-up to Bloom filters and searches."""
    partition_by: tuple[HashLevel | RangeLevel, ...] = ()
    """Without gaps, of which the model knows nothing."""
    whole_rows: bool = False
    cell_bytes_max: int | None = None
    ranges: Ranges = UNRANGED
    """Those of ``partition_by``, if it has any: they are divided and emptied then."""

    @property
    def definition(self) -> TableDefinition:
        return TableDefinition.from_arrow(
            TABLE,
            self.arrow,
            list(self.model.key),
            columns(self.arrow, self.column_options),
            options=table_options(
                history_max_age_seconds=self.history_seconds,
                order_by=self.model.order,
                row_column=self.whole_rows or None,
                cell_bytes_max=self.cell_bytes_max,
                ttl=self.model.ttl and (self.model.ttl[0], f"{self.model.ttl[1] // timedelta(seconds=1)}s"),
            ),
            partition_by=self.partition_by,
        )

    def batch(self, columns: Sequence[str], rows: Sequence[Row]) -> pa.RecordBatch:
        """Return rows as a batch that lets NULL through everywhere: to refuse it is the store's task."""
        fields = [self.arrow.field(name).with_nullable(True) for name in columns]
        return pa.RecordBatch.from_pylist(list(rows), pa.schema(fields))

    def keys(self, keys: Sequence[Key]) -> pa.RecordBatch:
        return self.batch(self.model.key, [dict(zip(self.model.key, key, strict=True)) for key in keys])


U64 = Shape(
    arrow=pa.schema(
        [
            pa.field("k", pa.int64(), False),
            pa.field("v", pa.int32()),
            pa.field("s", pa.string()),
            pa.field("must", pa.int16(), False),
            pa.field("preset", pa.int32()),
        ]
    ),
    model=ModelSchema(
        key=("k",),
        defaults={"v": None, "s": None, "must": REQUIRED, "preset": 5},
        not_null=frozenset({"k", "must"}),
    ),
    cells={
        "k": (0, 1, 2, 3, -1, -(1 << 63), (1 << 63) - 1),
        "v": (None, 0, 1, 2, -(1 << 31)),
        "s": (None, "", "a", "ab", "\u00e4'"),
        "must": (0, 1, 7, None),
        "preset": (None, 0, 5),
    },
    column_options={"preset": ColumnOptions(write_default=5)},
    filtered=("k", "v", "s", "must", "preset"),
)

SHORT_HISTORY = replace(U64, history_seconds=10)
NO_INDEX = replace(SHORT_HISTORY, key_index_bytes=0)
SMALL_INDEX = replace(SHORT_HISTORY, key_index_bytes=1 << 10)
"""Some rowsets are in the index, others are not."""
IMMUTABLE = replace(
    SHORT_HISTORY,
    model=replace(U64.model, immutable=frozenset({"s", "must"})),
    column_options=U64.column_options | {name: ColumnOptions(immutable=True) for name in ("s", "must")},
)

STRING_KEY = replace(
    U64,
    arrow=U64.arrow.set(0, pa.field("k", pa.string(), False)),
    cells=U64.cells | {"k": ("", "a", "a\0", "a\0b", "ab", "long enough ", "long enough to go on", "\u00e4")},
    history_seconds=10,
)
ORDERED = replace(U64, model=replace(U64.model, order="v"))
ORDERED_BY_TEXT = replace(
    STRING_KEY, model=replace(STRING_KEY.model, order="s"), history_seconds=U64.history_seconds, key_index_bytes=1 << 10
)
ORDERED_IMMUTABLE = replace(IMMUTABLE, model=replace(IMMUTABLE.model, order="v"), history_seconds=U64.history_seconds)
"""The history lasts: after it, a deleted row's place in the order is forgotten, at a moment that nobody knows."""
STRING_KEY_NO_INDEX = replace(STRING_KEY, key_index_bytes=0)
"""One key column, of any length: encoded keys are bytes without an end mark."""

_BEGIN = datetime(2023, 11, 14, 22, 13, 20)
"""When the clock of a test begins."""
EXPIRING = replace(
    U64,
    arrow=U64.arrow.append(pa.field("until", pa.timestamp("us"))),
    model=replace(U64.model, defaults={**U64.model.defaults, "until": None}, ttl=("until", timedelta(seconds=3))),
    cells=U64.cells
    | {"until": (None, *(_BEGIN + timedelta(seconds=seconds) for seconds in (-900, -2, 0, 4, 9, 15, 30, 900)))},
    filtered=(*U64.filtered, "until"),
)
EXPIRING_SHORT_HISTORY = replace(EXPIRING, history_seconds=6)
EXPIRING_ORDERED = replace(EXPIRING, model=replace(EXPIRING.model, order="v"))
EXPIRING_KEY = replace(
    EXPIRING,
    arrow=pa.schema([pa.field("until", pa.timestamp("us"), False), *U64.arrow]),
    model=replace(
        U64.model, key=("until", "k"), not_null=U64.model.not_null | {"until"}, ttl=("until", timedelta(seconds=3))
    ),
    cells=EXPIRING.cells | {"until": EXPIRING.cells["until"][1:5], "k": (0, 1)},
    history_seconds=6,
)
"""The moment is in the key."""

_WHO = pa.struct([("name", pa.string()), ("at", pa.list_(pa.float64(), 2))])
NESTED = replace(
    U64,
    arrow=pa.schema(
        [
            *U64.arrow,
            pa.field("tags", pa.list_(pa.string())),
            pa.field("who", _WHO),
            pa.field("labels", pa.map_(pa.string(), pa.list_(pa.uint16()))),
            pa.field("tiny", pa.uint8()),
            pa.field("most", pa.uint64()),
            pa.field("took", pa.duration("ms")),
        ]
    ),
    model=replace(
        U64.model,
        defaults={**U64.model.defaults, "tags": ["new"], **dict.fromkeys(("who", "labels", "tiny", "most", "took"))},
    ),
    cells=U64.cells
    | {
        "tags": (None, [], ["a"], ["a", None, "", "long enough to go on"] * 3),
        "who": (None, {"name": None, "at": None}, {"name": "Ada", "at": [0.5, None]}),
        "labels": (None, [], [("k", None), ("l", [1, None, 65_535])]),
        "tiny": (None, 0, 255),
        "most": (None, 0, (1 << 63) - 1, (1 << 64) - 1),
        "took": (None, timedelta(0), timedelta(days=-3), timedelta(milliseconds=1)),
    },
    column_options=U64.column_options
    | {"tags": ColumnOptions(write_default=["new"]), "labels": ColumnOptions(encoding="shredded")},
    filtered=(*U64.filtered, "tiny", "most", "took"),
    history_seconds=10,
)
NESTED_IN_WHOLE_ROWS = replace(NESTED, whole_rows=True, history_seconds=U64.history_seconds)
LONG_CELLS = replace(
    U64,
    arrow=U64.arrow.append(pa.field("raw", pa.binary())),
    model=replace(U64.model, defaults={**U64.model.defaults, "raw": None}),
    cells=U64.cells
    | {
        "k": (0, 1, 2),
        "s": (None, "", "a", "x" * 65_537, "ab" * 150_000, "y" * (1 << 20)),
        "raw": (None, b"", bytes(range(256)) * 300, b"\xff" * (1 << 20)),
    },
    filtered=("k", "v", "must", "preset"),
    history_seconds=10,
    cell_bytes_max=1 << 20,
)
"""Strings and bytes that are longer than those of other tables; filters do not take literals as long."""
LONG_CELLS_IN_WHOLE_ROWS = replace(LONG_CELLS, whole_rows=True, history_seconds=U64.history_seconds)


def _added(old: Any, new: Any) -> Any:
    return old if new is None else new if old is None else old + new


def _greater(old: Any, new: Any) -> Any:
    return old if new is None else new if old is None else max(old, new)


MERGED = replace(
    U64,
    arrow=U64.arrow.append(pa.field("tags", pa.list_(pa.string()))).append(pa.field("twice", pa.int64())),
    model=replace(
        U64.model,
        defaults={**U64.model.defaults, "tags": None, "twice": None},
        merges={
            "v": _added,
            "s": _added,
            "preset": _greater,
            "tags": lambda old, new: None if old is None or new is None else old + new,
        },
        computed={"twice": lambda row: None if row["v"] is None else row["v"] * 2 + row["must"]},
    ),
    cells=U64.cells
    | {"v": (None, 0, 1, -3), "tags": (None, [], ["a"], ["b", None]), "twice": (None, 0, 99), "k": (0, 1, 2, -1)},
    column_options={
        "v": ColumnOptions(merge="sum"),
        "s": ColumnOptions(merge="append"),
        "preset": ColumnOptions(write_default=5, merge="max"),
        "tags": ColumnOptions(merge="tags || excluded.tags"),
        "twice": ColumnOptions(default_expression="v * 2 + must"),
    },
    filtered=(*U64.filtered, "twice"),
    history_seconds=10,
)
"""Columns that merges combine in any grouping of the rows, and a default that is computed."""
MERGED_IN_TURN = replace(
    MERGED,
    model=replace(
        MERGED.model,
        merges={**MERGED.model.merges, "must": lambda old, new: new - old, "tags": lambda old, new: new or old},
    ),
    column_options={
        **MERGED.column_options,
        "must": ColumnOptions(merge="excluded.must - must"),
        "tags": ColumnOptions(merge="CASE WHEN length(excluded.tags) > 0 THEN excluded.tags ELSE tags END"),
    },
    history_seconds=U64.history_seconds,
)
"""Rows of one key apply one after the other."""
COUNTED = replace(
    U64,
    model=replace(U64.model, merges={"v": _added, "preset": _greater}),
    cells=U64.cells | {"v": (None, 0, 1, -3), "k": (0, 1, 2)},
    column_options={"v": ColumnOptions(merge="sum"), "preset": ColumnOptions(write_default=5, merge="max")},
)
"""Single rows are merged without a batch."""
MERGED_IN_ORDER = replace(
    ORDERED,
    model=replace(ORDERED.model, merges={"s": _added, "must": lambda old, new: new - old}),
    column_options=ORDERED.column_options
    | {"s": ColumnOptions(merge="append"), "must": ColumnOptions(merge="excluded.must - must")},
)

_NULLABLE = ("flag", "tiny", "small", "big", "day", "seen", "single", "real", "price", "total", "huge", "code", "note")

ALL_TYPES = Shape(
    arrow=pa.schema(
        [
            pa.field("name", pa.string(), False),
            pa.field("unit", pa.int32(), False),
            pa.field("at", pa.timestamp("us"), False),
            pa.field("flag", pa.bool_()),
            pa.field("tiny", pa.int8()),
            pa.field("small", pa.int16()),
            pa.field("big", pa.int64()),
            pa.field("day", pa.date32()),
            pa.field("seen", pa.timestamp("us")),
            pa.field("single", pa.float32()),
            pa.field("real", pa.float64()),
            pa.field("price", pa.decimal128(5, 2)),
            pa.field("total", pa.decimal128(15, 3)),
            pa.field("huge", pa.decimal128(38, 4)),
            pa.field("code", pa.string()),
            pa.field("note", pa.string()),
            pa.field("raw", pa.binary(), False),
        ]
    ),
    model=ModelSchema(
        key=("name", "unit", "at"),
        defaults=dict.fromkeys(_NULLABLE) | {"raw": REQUIRED},
        not_null=frozenset({"name", "unit", "at", "raw"}),
        lengths={"code": 3},
    ),
    cells={
        "name": ("", "a", "a\0", "b"),
        "unit": (0, -1, 1),
        "at": (datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        "flag": (None, True, False),
        "tiny": (None, -128, 0, 127),
        "small": (None, 0, 300),
        "big": (None, -(1 << 63), 0, 1 << 40),
        "day": (None, date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)),
        "seen": (None, datetime(1, 1, 1), datetime(2024, 5, 1, 12, 0, 0, 1)),
        "single": (None, 0.0, -0.0, 1.5, math.inf, math.nan),
        "real": (None, 0.0, -0.0, 0.1, -math.inf, math.nan),
        "price": (None, Decimal("0.00"), Decimal("-999.99"), Decimal("1.50")),
        "total": (None, Decimal("0.000"), Decimal("123456789012.345")),
        "huge": (None, Decimal("0.0000"), Decimal("-" + "9" * 34 + ".9999"), Decimal("18446744073709551.6160")),
        "code": (None, "", "abc", "\u00e4\u00f6\u00fcx", "long text"),
        "note": (None, "", "x" * 40, "\U0001f98c"),
        "raw": (b"", b"\0", b"\xff" * 20, None),
    },
    column_options={
        "code": ColumnOptions(type="varchar(3)", encoding="dictionary"),
        "note": ColumnOptions(encoding="prefix", compression="lz4"),
        "big": ColumnOptions(encoding="run_length"),
        "real": ColumnOptions(encoding="plain", compression="zstd"),
    },
    filtered=("name", "unit", "at", "tiny", "big", "day", "price", "huge", "note"),
)

PARTITIONED = replace(
    STRING_KEY,
    partition_by=(by_hash(*STRING_KEY.model.key, buckets=2), by_range(STRING_KEY.model.key[0], splits=["a\0", "b"])),
    ranges=Ranges(((None, ("a\0",)), (("a\0",), ("b",)), (("b",), None)), True),
)
"""Tablets by hash and range, so that most batches touch several."""

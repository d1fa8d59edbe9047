"""Every type on the whole way: write, flush, update, time travel, look-up, filter, restart, verify."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.cells.encoding import encodings_for
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.table import TableDefinition

INFINITY, NAN = math.inf, math.nan


def decimals(precision: int, scale: int) -> list[Decimal]:
    """Return the smallest, the largest and those next to 0, without rounding on the way."""
    nines = (9,) * precision
    return [
        Decimal((sign, digits, -scale)) for sign, digits in ((1, nines), (1, (1,)), (0, (0,)), (0, (1,)), (0, nines))
    ]


TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-(2**7), -1, 0, 2**7 - 1]),
    "int16": (pa.int16(), [-(2**15), -1, 0, 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "date": (pa.date32(), [-719_162, -1, 0, 2_932_896]),
    "timestamp": (pa.timestamp("us"), [-(2**62), -1, 0, 2**62]),
    "float": (pa.float32(), [-INFINITY, -1.5, -0.0, 0.0, 1.5, INFINITY, NAN]),
    "double": (pa.float64(), [-INFINITY, -1.1, -0.0, 0.0, 5e-324, INFINITY, NAN]),
    "decimal of 4 bytes": (pa.decimal128(9, 2), decimals(9, 2)),
    "decimal of 8 bytes": (pa.decimal128(18, 6), decimals(18, 6)),
    "decimal of 16 bytes": (pa.decimal128(38, 10), decimals(38, 10)),
    "string": (pa.string(), ["", "a", "\u00e9\U0001f600", "long " * 100, "\0"]),
    "varchar": (pa.string(), ["", "abc", "\u00e9" * 3, "\U0001f600" * 3]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 70, b"a\0b"]),
}


def cells_of(name: str) -> pa.Array:
    """Return the type's cells, NULL between them, so often that mini-blocks fill."""
    kind, values = TYPES[name]
    mixed = [cell for value in values for cell in (value, None, value)]
    integers = {"date": pa.int32(), "timestamp": pa.int64()}.get(name)
    array = pa.array(mixed, integers).view(kind) if integers else pa.array(mixed, kind)
    return pa.concat_arrays([array] * (2500 // len(mixed)))


def words(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return cells in a form where equal means the same bits: NaN is NaN and -0.0 is not 0.0."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    if pa.types.is_floating(kind):
        return [None if cell is None else (str(cell), math.copysign(1, cell)) for cell in array.to_pylist()]
    return array.to_pylist()


class Typed:
    """A table (k, c, d): c is the column under test, d changes beside it."""

    def __init__(self, name: str, encoding: str | None) -> None:
        self.fs = MemoryFileSystem()
        options = ColumnOptions(type="varchar(3)" if name == "varchar" else None, encoding=encoding)
        self.schema = pa.schema([pa.field("k", pa.int64(), False), ("c", TYPES[name][0]), ("d", pa.int64())])
        self.store = self.open()
        self.store.create_table(TableDefinition.from_arrow("t", self.schema, ["k"], {"c": options}))

    def open(self) -> Store:
        return Store.open(self.fs, StoreOptions(maintenance="off", scan_batch_bytes=1 << 14))

    def upsert(self, keys: range, cells: pa.Array) -> int:
        batch = pa.record_batch({"k": pa.array(keys, pa.int64()), "c": cells})
        result = self.store.write(WriteCommand(table="t", op=Operation.UPSERT), batch)
        assert result.applied == len(keys)
        return result.timestamp

    def scan(self, **spec: Any) -> pa.Table:
        return self.store.scan(ScanSpec(table="t", ordered=True, **spec)).to_reader().read_all()


ENCODINGS = [
    (name, encoding)
    for name, (kind, _) in TYPES.items()
    for encoding in encodings_for(
        LogicalType.varchar(3) if name == "varchar" else LogicalType.from_arrow(pa.field("c", kind))
    )
]


@pytest.mark.parametrize(("name", "encoding"), ENCODINGS, ids=[f"{name}-{encoding}" for name, encoding in ENCODINGS])
def test_cells_come_back_bit_for_bit(name: str, encoding: str) -> None:
    typed = Typed(name, encoding)
    cells = cells_of(name)
    count = len(cells)
    changed = pa.concat_arrays([cells[7:], cells[:7]])
    first = typed.upsert(range(count), cells)
    assert words(typed.scan()["c"]) == words(cells), "in memory"
    typed.store.maintain("t", "flush")
    assert words(typed.scan()["c"]) == words(cells), "on disk"
    second = typed.upsert(range(100), changed[:100])
    expected = [*words(changed[:100]), *words(cells)[100:]]
    for _ in range(3):
        assert words(typed.scan(columns=["c"])["c"]) == expected
        assert words(typed.scan(as_of=first)["c"]) == words(cells)
        assert words(typed.scan(as_of=second)["c"]) == expected
        keys = pa.record_batch({"k": pa.array([count - 1, 0, 99, 100])})
        assert words(typed.store.get("t", keys)["c"]) == [expected[row] for row in (count - 1, 0, 99, 100)]
        typed.store.maintain("t", "flush_deltas")
        typed.store.close()
        typed.store = typed.open()
    typed.store.close()
    report = verify_store(typed.fs)
    assert report.is_sound, report.problems


SELECTIONS = [
    ("bool", "c = true", 1),
    ("int8", "c = -128", 1),
    ("int64", f"c = {2**63 - 1}", 1),
    ("date", "c = '9999-12-31'", 1),
    ("timestamp", "c = '1970-01-01'", 1),
    ("double", "c = 0", 2),  # both zeros
    ("double", "c > 1e300", 1),  # NaN is no number: it is not above
    ("float", "c < -1e30", 1),
    ("decimal of 4 bytes", "c = 9999999.99", 1),
    ("decimal of 8 bytes", "c = -0.000001", 1),
    ("decimal of 16 bytes", "c >= 0.0000000001", 2),
    ("string", "c = ''", 1),
    ("varchar", "c = 'abc'", 1),
]


@pytest.mark.parametrize("flushed", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize(("name", "where", "values"), SELECTIONS, ids=[f"{case[0]}: {case[1]}" for case in SELECTIONS])
def test_filters_meet_the_edges_of_each_type(name: str, where: str, values: int, flushed: bool) -> None:
    typed = Typed(name, None)
    cells = cells_of(name)
    typed.upsert(range(len(cells)), cells)
    if flushed:
        typed.store.maintain("t", "flush")
    times = len(cells) // (3 * len(TYPES[name][1]))
    assert typed.scan(where=where).num_rows == values * 2 * times
    assert typed.scan(where="c is null").num_rows == len(TYPES[name][1]) * times
    typed.store.close()


KEYS = [name for name in TYPES if name not in ("bool", "float", "double", "decimal of 16 bytes")]


@pytest.mark.parametrize("name", [*KEYS, "decimal of 16 bytes"])
def test_each_type_that_may_be_a_key_orders_and_finds(name: str) -> None:
    kind, values = TYPES[name]
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    schema = pa.schema([pa.field("k", kind, False), ("v", pa.int64())])
    store.create_table(TableDefinition.from_arrow("t", schema, ["k"]))
    integers = {"date": pa.int32(), "timestamp": pa.int64()}.get(name)
    keys = pa.array(values[::-1], integers).view(kind) if integers else pa.array(values[::-1], kind)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        part = keys.take(pa.array(range(len(keys))[half]))
        store.write(WriteCommand(table="t"), pa.record_batch({"k": part, "v": pa.array(range(len(part)))}))
        store.maintain("t", "flush")
    in_order = words(keys)[::-1]
    if name in ("string", "varchar", "binary"):
        in_order = sorted(in_order, key=lambda cell: cell.encode() if isinstance(cell, str) else cell)
    rows = store.scan(ScanSpec(table="t", ordered=True)).to_reader().read_all()
    assert words(rows["k"]) == in_order
    assert words(store.get("t", pa.record_batch({"k": keys}))["k"]) == words(keys)
    again = store.write(
        WriteCommand(table="t", op=Operation.INSERT),
        pa.record_batch({"k": keys, "v": keys.is_valid().cast(pa.int64())}),
    )
    assert again.error_count == len(keys)
    store.close()

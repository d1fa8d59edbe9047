"""What is cast, what is cut, which rows are refused and why, and what refuses a batch whole."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.table.checked_batch import RowRefusals, check_batch
from nyala.engine.table.decoded_size import decoded_bytes
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.table import TableDefinition, TableSchema
from tests.engine.subject import Subject

LIMITS = Limits()
UTC_NOON = dt.datetime(2024, 5, 1, 12)


def schema_of(type_: pa.DataType, **options: Any) -> TableSchema:
    arrow = pa.schema([pa.field("k", pa.int64(), False), pa.field("c", type_)])
    chosen = {"c": ColumnOptions(**options)} if options else None
    return TableSchema.create(TableDefinition.from_arrow("t", arrow, ["k"], chosen), LIMITS)


def taken(cells: pa.Array, type_: pa.DataType, **options: Any) -> list[Any]:
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(cells)), pa.int64()), cells], names=["k", "c"])
    checked = check_batch(batch, schema_of(type_, **options), Operation.UPSERT, LIMITS)
    assert checked.rows.schema.types[1] == schema_of(type_, **options).columns[1].logical.arrow
    assert checked.positions is None
    return checked.rows.column(1).to_pylist()


def codes_of(cells: pa.Array) -> pa.Array:
    """The second of the cells, and NULL, as codes of a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array([1, None], pa.int8()), cells)


NEW_YORK_EIGHT = pa.array([UTC_NOON], pa.timestamp("us")).cast(pa.timestamp("us", tz="America/New_York"))
CASTS = [
    ("dictionary", pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
    ("dictionary of large", pa.array(["a", "b"], pa.large_string()).dictionary_encode(), pa.string(), ["a", "b"]),
    ("dictionary with a NULL value", pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["x", None]), pa.string(), None),
    ("dictionary of numbers", pa.array([3, 3], pa.int16()).dictionary_encode(), pa.int64(), [3, 3]),
    ("large string", pa.array(["a", None], pa.large_string()), pa.string(), ["a", None]),
    ("string view", pa.array(["a", "b" * 20], pa.string_view()), pa.string(), ["a", "b" * 20]),
    ("dictionary of views", codes_of(pa.array(["a", "b" * 20], pa.string_view())), pa.string(), ["b" * 20, None]),
    ("dictionary of binary views", codes_of(pa.array([b"a", b"b"], pa.binary_view())), pa.binary(), [b"b", None]),
    ("large binary", pa.array([b"\0", b""], pa.large_binary()), pa.binary(), [b"\0", b""]),
    ("fixed binary", pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
    ("wider int", pa.array([-128, 127], pa.int8()), pa.int64(), [-128, 127]),
    ("narrower int that fits", pa.array([-128, 127], pa.int64()), pa.int8(), [-128, 127]),
    ("unsigned that fits", pa.array([127], pa.uint64()), pa.int8(), [127]),
    ("whole floats", pa.array([2.0, None]), pa.int32(), [2, None]),
    ("whole decimals", pa.array([Decimal("-2.00"), None]), pa.int32(), [-2, None]),
    ("the largest unsigned", pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)), pa.uint64(), [2**64 - 1]),
    ("a short decimal", pa.array([Decimal(1)], pa.decimal32(1, 0)), pa.int64(), [1]),
    (
        "decimals in the place of unsigned integers inside",
        pa.array([[("k", Decimal(2**64 - 1))], None], pa.map_(pa.string(), pa.decimal128(20, 0))),
        pa.map_(pa.string(), pa.uint64()),
        [[("k", 2**64 - 1)], None],
    ),
    ("negative scale", pa.array([Decimal("1E+2")], pa.decimal128(3, -2)), pa.int8(), [100]),
    ("ints to double", pa.array([2**53]), pa.float64(), [2.0**53]),
    ("half to float", pa.array([np.float16(0.5)], pa.float16()), pa.float32(), [0.5]),
    ("double to float rounds", pa.array([0.1]), pa.float32(), [float(np.float32(0.1))]),
    ("double infinities", pa.array([float("inf")]), pa.float32(), [float("inf")]),
    ("int to decimal", pa.array([12345], pa.int64()), pa.decimal128(9, 2), [Decimal("12345.00")]),
    ("finer decimal that fits", pa.array([Decimal("1.200")]), pa.decimal128(9, 2), [Decimal("1.20")]),
    ("decimal256", pa.array([Decimal("1.20")], pa.decimal256(60, 2)), pa.decimal128(38, 2), [Decimal("1.20")]),
    ("whole ns", pa.array([1_000], pa.timestamp("ns")), pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),
    ("seconds", pa.array([1], pa.timestamp("s")), pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1)]),
    ("a zone is the same moment in UTC", NEW_YORK_EIGHT, pa.timestamp("us"), [UTC_NOON]),
    ("date to timestamp", pa.array([dt.date(2024, 5, 1)]), pa.timestamp("us"), [dt.datetime(2024, 5, 1)]),
    ("date64", pa.array([dt.date(2024, 5, 1)], pa.date64()), pa.date32(), [dt.date(2024, 5, 1)]),
    ("nothing but NULL", pa.nulls(2), pa.decimal128(20, 3), [None, None]),
]


@pytest.mark.parametrize(("cells", "type_", "expected"), [case[1:] for case in CASTS], ids=[case[0] for case in CASTS])
def test_what_fits_is_cast(cells: pa.Array, type_: pa.DataType, expected: list[Any] | None) -> None:
    assert taken(cells, type_) == (["x", None] if expected is None else expected)


MISFITS: list[tuple[str, list[Any], pa.DataType, pa.DataType, list[int]]] = [
    ("int out of range", [127, 128, None, -128, -129], pa.int64(), pa.int8(), [1, 4]),
    ("wide int out of range", [2**31 - 1, 2**31, -(2**31), -(2**31) - 1], pa.int64(), pa.int32(), [1, 3]),
    ("unsigned out of range", [2**63, 1, None, 2**64 - 1, 2**63 - 1], pa.uint64(), pa.int64(), [0, 3]),
    ("byte out of range", [127, 128, 255], pa.uint8(), pa.int8(), [1, 2]),
    ("a fraction", [1.5, 1.0, None, -0.0, 127.0, 128.0], pa.float64(), pa.int8(), [0, 5]),
    (
        "no whole number",
        [float("nan"), float("inf"), 2.0**63, -(2.0**63), 1e300],
        pa.float64(),
        pa.int64(),
        [0, 1, 2, 4],
    ),
    ("a fraction of a half", [np.float16(0.5), np.float16(2)], pa.float16(), pa.int8(), [0]),
    ("int beyond a double", [2**53, 2**53 + 1, -(2**53), None, -(2**53) - 1], pa.int64(), pa.float64(), [1, 4]),
    ("int beyond a float", [2**24, 2**24 + 1], pa.int64(), pa.float32(), [1]),
    ("double beyond a float", [1e300, 1.0, None, float("inf"), float("nan")], pa.float64(), pa.float32(), [0]),
    (
        "int beyond a decimal",
        [123_456_789, None, 9_999_999, 10**7, -(10**7)],
        pa.int64(),
        pa.decimal128(9, 2),
        [0, 3, 4],
    ),
    ("int in digits after the point", [0, 1, -1], pa.int64(), pa.decimal128(20, 20), [1, 2]),
    ("decimal too fine", [Decimal("1.234"), Decimal("1.230"), None], pa.decimal128(5, 3), pa.decimal128(9, 2), [0]),
    (
        "decimal too large",
        [Decimal("12345678.00"), Decimal("-9999999.99"), Decimal("10000000.00"), None],
        pa.decimal128(12, 2),
        pa.decimal128(9, 2),
        [0, 2],
    ),
    ("decimal to a finer one", [Decimal("1e30"), Decimal("5")], pa.decimal128(38, 0), pa.decimal128(38, 10), [0]),
    ("long decimal", [Decimal("1e50"), Decimal("1.20")], pa.decimal256(70, 2), pa.decimal128(38, 2), [0]),
    (
        "decimal beyond an integer",
        [Decimal("127.00"), Decimal("128.00"), None, Decimal("-128.00"), Decimal("-128.01"), Decimal("0.50")],
        pa.decimal128(5, 2),
        pa.int8(),
        [1, 4, 5],
    ),
    ("decimal beyond unsigned", [Decimal(2**64), Decimal(-1), Decimal(0)], pa.decimal128(20, 0), pa.uint64(), [0, 1]),
    ("long decimal beyond an integer", [Decimal(10**50), Decimal(1)], pa.decimal256(70, 9), pa.int64(), [0]),
    ("a part of a microsecond", [1_001, 1_000, None, -1, -1000], pa.timestamp("ns"), pa.timestamp("us"), [0, 3]),
    ("seconds out of range", [2**60, 2, None, -(2**60)], pa.timestamp("s"), pa.timestamp("us"), [0, 3]),
    ("days out of range", [106_751_991, 106_751_992, -(2**31), 0], pa.date32(), pa.timestamp("us"), [1, 2]),
]


@pytest.mark.parametrize("case", MISFITS, ids=[case[0] for case in MISFITS])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "dictionary"])
def test_values_that_do_not_fit_refuse_their_rows(case: tuple[Any, ...], wrapped: bool) -> None:
    _, values, given, type_, wrong = case
    cells = pa.array(values, pa.int64()).cast(given) if pa.types.is_timestamp(given) else pa.array(values, given)
    if wrapped and not (pa.types.is_decimal256(given) or pa.types.is_float16(given)):
        cells = cells.dictionary_encode()
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(cells)), pa.int64()), cells], names=["k", "c"])
    checked = check_batch(batch, schema_of(type_), Operation.UPSERT, LIMITS)
    good = [row for row in range(len(values)) if row not in wrong]
    assert checked.rows.column(0).to_pylist() == good
    assert checked.refusals.by_row is not None
    assert np.flatnonzero(checked.refusals.by_row).tolist() == wrong
    ((code, message),) = checked.refusals.reasons
    assert code == "INVALID_ARGUMENT" and message.startswith("column 'c' is ") and str(given) in message
    fitting = pa.array(values, pa.int64()).cast(given) if pa.types.is_timestamp(given) else pa.array(values, given)
    expected = fitting.take(pa.array(good))
    if pa.types.is_integer(given) and pa.types.is_decimal(type_):
        expected = expected.cast(pa.decimal256(40, 20))
    assert str(checked.rows.column(1)) == str(expected.cast(type_))  # NaN is not equal to itself


def test_a_row_is_refused_for_the_value_and_not_for_the_null_that_stands_in_its_place() -> None:
    arrow = pa.schema([pa.field("k", pa.int8(), False), pa.field("c", pa.int8(), False)])
    schema = TableSchema.create(TableDefinition.from_arrow("t", arrow, ["k"]), LIMITS)
    batch = pa.record_batch({"k": [1, 300, 3], "c": [300, 1, None]})
    checked = check_batch(batch, schema, Operation.UPSERT, LIMITS)
    assert checked.rows.num_rows == 0 and checked.refusals.by_row is not None
    messages = [checked.refusals.reasons[number - 1][1] for number in checked.refusals.by_row]
    assert [message.split(" ", 3)[1:3] for message in messages] == [["'c'", "is"], ["'k'", "is"], ["'c'", "is"]]
    assert ["NULL" in message for message in messages] == [False, False, True]


WRONG_TYPES = [
    ("a timestamp is no date", pa.array([0], pa.timestamp("us")), pa.date32()),
    ("text is no number", pa.array(["1"]), pa.int64()),
    ("a number is no text", pa.array([1]), pa.string()),
    ("bytes are no text", pa.array([b"a"]), pa.string()),
    ("text is no bytes", pa.array(["a"]), pa.binary()),
    ("bool is no number", pa.array([True]), pa.int64()),
    ("a number is no bool", pa.array([1]), pa.bool_()),
    ("a list", pa.array([[1]]), pa.int64()),
    ("a dictionary of numbers is no text", pa.array([1]).dictionary_encode(), pa.string()),
]


@pytest.mark.parametrize(("cells", "type_"), [case[1:] for case in WRONG_TYPES], ids=[case[0] for case in WRONG_TYPES])
def test_a_wrong_type_refuses_the_batch_and_names_column_and_types(cells: pa.Array, type_: pa.DataType) -> None:
    with pytest.raises(InvalidArgumentError, match="column 'c' is "):
        taken(cells, type_)


def test_a_varchar_is_cut_by_characters_not_bytes() -> None:
    cells = pa.array(["a" * 9, "\u00e9" * 4, "\U0001f600" * 4, "abc", "", None])
    assert taken(cells, pa.string(), type="varchar(3)") == ["aaa", "\u00e9" * 3, "\U0001f600" * 3, "abc", "", None]


ROWS = pa.schema([("k", pa.string()), ("d", pa.date32()), ("v", pa.string())])


def row_schema() -> TableSchema:
    arrow = pa.schema([("k", pa.string()), ("d", pa.date32()), pa.field("v", pa.string(), False)])
    return TableSchema.create(TableDefinition.from_arrow("t", arrow, ["k"]), LIMITS)


def refused(rows: list[tuple[Any, Any, Any]], limits: Limits = LIMITS) -> tuple[list[Any], dict[int, str]]:
    """Return the keys taken and the code of each row refused."""
    days = pa.array([row[1] for row in rows], pa.int32()).view(pa.date32())
    arrays = [pa.array([row[0] for row in rows], pa.string()), days, pa.array([row[2] for row in rows], pa.string())]
    checked = check_batch(pa.RecordBatch.from_arrays(arrays, schema=ROWS), row_schema(), Operation.UPSERT, limits)
    by_row = checked.refusals.by_row
    numbers = [] if by_row is None else by_row.tolist()
    codes = {row: checked.refusals.reasons[number - 1][0] for row, number in enumerate(numbers) if number}
    kept = range(len(rows)) if checked.positions is None else checked.positions.tolist()
    assert sorted([*kept, *codes]) == list(range(len(rows)))
    assert checked.rows.column(0).to_pylist() == [rows[row][0] for row in kept]
    return checked.rows.column(0).to_pylist(), codes


def test_single_rows_are_refused_each_for_its_first_reason() -> None:
    limits = LIMITS.model_copy(update={"cell_bytes": 4})
    keys, codes = refused(
        [
            ("a", 0, "v"),
            (None, 0, "v"),  # no key
            ("b", 0, None),  # NULL where none may be
            ("c", 2_932_897, "v"),  # 10000-01-01
            ("d", -719_163, "v"),  # the day before 0001-01-01
            ("e", -719_162, "vvvv"),
            ("f", 2_932_896, "vvvvv"),  # five bytes
            ("ggggg", 0, None),  # two reasons
            (None, 9_999_999, None),  # three
            ("h", None, "\u00e9\u00e9"),
        ],
        limits,
    )
    assert keys == ["a", "e", "h"]
    assert codes == {
        1: "INVALID_ARGUMENT",
        2: "INVALID_ARGUMENT",
        3: "INVALID_ARGUMENT",
        4: "INVALID_ARGUMENT",
        6: "TOO_LARGE",
        7: "TOO_LARGE",
        8: "INVALID_ARGUMENT",
    }


def test_a_batch_without_rows_or_without_good_rows_is_taken() -> None:
    assert refused([]) == ([], {})
    assert refused([(None, 0, None)] * 3) == ([], dict.fromkeys(range(3), "INVALID_ARGUMENT"))


def test_reasons_are_numbered_within_what_a_row_can_name() -> None:
    """Three a column and one a key: far fewer than an int16 counts."""
    assert 3 * Limits().columns + 1 < np.iinfo(np.int16).max
    refusals = RowRefusals(3)
    refusals.refuse(np.array([False, False, False]), "A", "never")
    assert refusals.accepted() is None and not refusals.reasons
    refusals.refuse(np.array([False, True, False]), "A", "first")
    refusals.refuse(np.array([False, True, True]), "B", "second")
    assert refusals.by_row is not None and refusals.by_row.tolist() == [0, 1, 2]


WRONG = [
    ("twice", {"k": [1], "c": [1]}, "upsert", ["k", "c", "c"], "column 'c' twice"),
    ("unknown", {"k": [1], "x": [1]}, "upsert", None, "no column 'x'; its columns are k, c"),
    ("no key", {"c": [1]}, "upsert", None, "has no column 'k', which is part of the primary key"),
    ("update without values", {"k": [1]}, "update", None, "at least one column besides the key"),
    ("delete with values", {"k": [1], "c": [1]}, "delete", None, "only the key columns, not 'c'"),
]


@pytest.mark.parametrize(("data", "op", "names", "why"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_a_batch_of_the_wrong_shape_is_refused(data: dict, op: str, names: list[str] | None, why: str) -> None:
    batch = pa.record_batch(data)
    if names:
        batch = pa.RecordBatch.from_arrays([batch["k"], batch["c"], batch["c"]], names=names)
    with pytest.raises(InvalidArgumentError, match=why):
        check_batch(batch, schema_of(pa.int64()), Operation(op), LIMITS)


def test_columns_come_in_the_order_of_the_table() -> None:
    batch = pa.record_batch({"c": [5], "k": [1]})
    checked = check_batch(batch, schema_of(pa.int64()), Operation.UPSERT, LIMITS)
    assert checked.column_ids == [1, 2]
    assert checked.rows.to_pydict() == {"1": [1], "2": [5]}


def test_a_small_dictionary_of_long_strings_is_measured_as_what_it_stands_for() -> None:
    cells = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int8)), pa.array(["x" * 60_000]))
    with pytest.raises(InvalidArgumentError, match="600,000,000 bytes"):
        taken(cells, pa.string())
    limits = LIMITS.model_copy(update={"batch_bytes": 100})
    batch = pa.record_batch({"k": pa.array(range(20), pa.int8()), "c": pa.nulls(20)})
    with pytest.raises(InvalidArgumentError, match="at most 100 bytes"):
        check_batch(batch, schema_of(pa.int64()), Operation.UPSERT, limits)


def test_few_rows_whose_defaults_are_long_are_measured_with_them() -> None:
    subject = Subject()
    arrow = pa.schema([pa.field("k", pa.int64(), False), ("d", pa.string())])
    options = {"d": {"write_default": "x" * 60_000}}
    subject.store.create_table(TableDefinition.from_arrow("long", arrow, ["k"], options))
    with pytest.raises(InvalidArgumentError, match="write_defaults"):
        subject.store.write(WriteCommand(table="long"), pa.record_batch({"k": range(10_000)}))
    result = subject.store.write(WriteCommand(table="long"), pa.record_batch({"k": range(3)}))
    assert result.applied == 3
    deleted = subject.store.write(
        WriteCommand(table="long", op=Operation.DELETE_IGNORE), pa.record_batch({"k": range(9999)})
    )
    assert deleted.applied == 3
    subject.close()


def views_of(cell: str | bytes, count: int, nulls: int = 0) -> pa.Array:
    """An array of views, all of which point at one cell; behind it NULLs that point there, too."""
    kind = pa.string_view() if isinstance(cell, str) else pa.binary_view()
    view = pa.array([cell], kind)
    valid = np.packbits([1] * count + [0] * nulls, bitorder="little")
    views = view.buffers()[1].to_pybytes() * (count + nulls)
    buffers = [pa.py_buffer(valid.tobytes()), pa.py_buffer(views), *view.buffers()[2:]]
    return pa.Array.from_buffers(kind, count + nulls, buffers, null_count=nulls)


@pytest.mark.parametrize("cell", ["x" * 100, b"x" * 100, "short"], ids=["text", "bytes", "within the view"])
def test_views_are_measured_as_what_they_stand_for(cell: str | bytes) -> None:
    count = 2_000 // len(cell)
    schema = schema_of(pa.string() if isinstance(cell, str) else pa.binary())
    for views in (views_of(cell, count + 1), views_of(cell, count + 9).slice(8)):
        assert decoded_bytes(views) == (count + 1) * len(cell)
        batch = pa.record_batch([pa.array(range(len(views))), views], names=["k", "c"])
        with pytest.raises(InvalidArgumentError, match="batch is one commit"):
            check_batch(batch, schema, Operation.UPSERT, Limits(batch_bytes=2_000))
    assert decoded_bytes(views_of(cell, count, nulls=50)) == count * len(cell)


def test_columns_of_codes_are_measured_together() -> None:
    """Each of them is small enough."""
    names = [f"c{n}" for n in range(9)]
    arrow = pa.schema([pa.field("k", pa.int64(), False), *((name, pa.string()) for name in names)])
    schema = TableSchema.create(TableDefinition.from_arrow("t", arrow, ["k"]), LIMITS)
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 50, pa.int8()), pa.array(["x" * 100]))
    batch = pa.record_batch([pa.array(range(50)), *[codes] * 9], names=["k", *names])
    with pytest.raises(InvalidArgumentError, match="'c3', with dictionaries and views decoded, have 20,000 bytes"):
        check_batch(batch, schema, Operation.UPSERT, Limits(batch_bytes=19_999))

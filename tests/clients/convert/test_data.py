"""Data of every form becomes batches of the table's types, or an error that names the column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from nyala.clients.convert import batching
from nyala.clients.convert.batching import COMMIT_BYTES, COMMIT_ROWS
from nyala.clients.convert.data import WriteData
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.table.column import ColumnDefinition, ColumnSchema

TYPES = {
    "id": "int64",
    "city": "string",
    "price": "double",
    "at": "timestamp[us]",
    "day": "date",
    "cents": "decimal(10,2)",
    "small": "int16",
    "raw": "binary",
    "ok": "bool",
    "short": "varchar(5)",
    "single": "float",
}
COLUMNS = [
    ColumnSchema.from_definition(number, ColumnDefinition(name=name, type=kind))
    for number, (name, kind) in enumerate(TYPES.items(), 1)
]
NOON = dt.datetime(2026, 1, 31, 12)


def rows(data: Any) -> list[dict[str, Any]]:
    """What is written of ``data``."""
    return [row for batch in WriteData(data, COLUMNS) for row in batch.to_pylist()]


def refused(data: Any) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        rows(data)
    return str(caught.value)


EXPECTED = [{"id": 1, "city": "Oslo", "price": 2.5}, {"id": 2, "city": None, "price": None}]
PANDAS = pd.DataFrame({"id": [1, 2], "city": ["Oslo", None], "price": [2.5, np.nan]}, index=[7, 8])
ARROW = pa.table({"id": [1, 2], "city": ["Oslo", None], "price": [2.5, None]})
FORMS = {
    "pandas": PANDAS,
    "pandas of arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame({"id": [1, 2], "city": ["Oslo", None], "price": [2.5, None]}),
    "polars categorical": pl.DataFrame({"id": [1, 2], "city": ["Oslo", None], "price": [2.5, None]}).with_columns(
        pl.col("city").cast(pl.Categorical)
    ),
    "table": ARROW,
    "batch": ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(),
    "dictionary": ARROW.set_column(1, "city", ARROW["city"].dictionary_encode()),
    "large strings": ARROW.set_column(1, "city", ARROW["city"].cast(pa.large_string())),
    "string views": ARROW.set_column(1, "city", ARROW["city"].cast(pa.string_view())),
    "columns": {"id": [1, 2], "city": ["Oslo", None], "price": [2.5, None]},
    "columns of numpy": {
        "id": np.array([1, 2], np.uint8),
        "city": np.array(["Oslo", None], object),
        "price": pd.Series([2.5, np.nan]),
    },
    "rows": EXPECTED,
    "another order": ARROW.select(["price", "city", "id"]),
}


class Streamed:
    """Something of nobody's that speaks the Arrow protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ARROW.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form(form: Any) -> None:
    assert rows(form() if callable(form) else form) == EXPECTED


def test_arrow_stream() -> None:
    assert rows(Streamed()) == EXPECTED


def test_types_of_the_table_come_out() -> None:
    (batch,) = WriteData(PANDAS, COLUMNS)
    assert batch.schema.types == [pa.int64(), pa.string(), pa.float64()]


CASTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nanoseconds": ({"at": pa.array([1_000], pa.timestamp("ns"))}, {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 1)}),
    "seconds": ({"at": pa.array([60], pa.timestamp("s"))}, {"at": dt.datetime(1970, 1, 1, 0, 1)}),
    "a time zone": (
        {"at": pa.array([NOON], pa.timestamp("us", "Europe/Oslo"))},
        {"at": NOON},
    ),
    "an aware datetime": (
        {"at": [NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))]},
        {"at": NOON - dt.timedelta(hours=5)},
    ),
    "pandas nanoseconds": ({"at": pd.Series([pd.Timestamp(NOON)])}, {"at": NOON}),
    "pandas with a zone": (
        {"at": pd.Series([pd.Timestamp("2026-01-31 12:00", tz="America/New_York")])},
        {"at": dt.datetime(2026, 1, 31, 17)},
    ),
    "ISO text": ({"at": ["2026-01-31 12:00:00"], "day": ["2026-01-31"]}, {"at": NOON, "day": NOON.date()}),
    "a date as timestamp": ({"at": [NOON.date()]}, {"at": NOON.replace(hour=0)}),
    "midnight as date": ({"day": pa.array([dt.datetime(2026, 1, 31)])}, {"day": NOON.date()}),
    "integers with gaps": ({"small": pd.Series([5.0, np.nan])}, {"small": 5}),
    "unsigned": ({"small": np.array([300], np.uint64)}, {"small": 300}),
    "integers as floats": ({"price": [3]}, {"price": 3.0}),
    "half floats": ({"single": np.array([0.5], np.float16)}, {"single": 0.5}),
    "decimals": ({"cents": [Decimal("1.5")]}, {"cents": Decimal("1.50")}),
    "decimals of another scale": (
        {"cents": pa.array([Decimal("1.500")], pa.decimal128(20, 3))},
        {"cents": Decimal("1.50")},
    ),
    "integers of any size as decimals": ({"cents": [Decimal("1.5"), 7]}, {"cents": Decimal("1.50")}),
    "integers as decimals": ({"cents": pa.array([7], pa.int64())}, {"cents": Decimal("7.00")}),
    "text as decimals": ({"cents": ["12.25"]}, {"cents": Decimal("12.25")}),
    "text as bytes": ({"raw": pa.array(["ab"])}, {"raw": b"ab"}),
    "fixed bytes": ({"raw": pa.array([b"ab"], pa.binary(2))}, {"raw": b"ab"}),
    "nothing": ({"small": pa.nulls(1)}, {"small": None}),
    "varchar": ({"short": pl.Series(["abcdefgh"])}, {"short": "abcdefgh"}),
}


@pytest.mark.parametrize("case", CASTS.values(), ids=CASTS)
def test_cast(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    given, expected = case
    assert rows(given)[0] == expected


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "text for a number": ({"small": pa.array(["5"])}, "integers, floats"),
    "a number for text": ({"city": [5]}, "strings"),
    "a number for a moment": ({"at": np.array([5])}, "timestamps, dates, strings"),
    "text that is no date": ({"day": ["soon"]}, "day"),
    "a float for a decimal": ({"cents": np.array([1.1])}, "decimals, integers, strings"),
    "a list": ({"city": [["a"]]}, "city"),
    "a struct": ({"city": [{"a": 1}]}, "city"),
    "a duration": ({"small": pd.Series([pd.Timedelta(1)])}, "small"),
    "mixed values": ({"city": ["a", 5]}, "city"),
    "mixed pandas": ({"city": pd.Series(["a", 5], dtype=object)}, "city"),
    "bytes that are not UTF-8": ({"city": [b"\xff"]}, "city"),
    "a bool for a number": ({"small": pa.array([True])}, "small"),
    "a number for a bool": ({"ok": np.array([1])}, "ok"),
}


@pytest.mark.parametrize("case", MISFITS.values(), ids=MISFITS)
def test_what_would_lose_something_is_refused(case: tuple[dict[str, Any], str]) -> None:
    given, word = case
    (name,) = given
    text = refused(given)
    assert word in text and name in text and "\n" not in text


LEFT_TO_STORE: dict[str, tuple[dict[str, Any], pa.DataType]] = {
    "fractions of a microsecond": ({"at": pa.array([1], pa.timestamp("ns"))}, pa.timestamp("ns")),
    "nanoseconds in a zone": ({"at": pa.array([1], pa.timestamp("ns", tz="Europe/Rome"))}, pa.timestamp("ns")),
    "a number too large": ({"small": [70_000]}, pa.int64()),
    "numbers in a dictionary": ({"small": pa.array([70_000, 1]).dictionary_encode()}, pa.int64()),
    "a fraction": ({"small": pd.Series([1.5])}, pa.float64()),
    "a fraction in a list": ({"small": [1.5]}, pa.float64()),
    "a decimal too long": ({"cents": [Decimal("123456789.00")]}, pa.decimal128(11, 2)),
    "a decimal too fine": ({"cents": [Decimal("1.001")]}, pa.decimal128(4, 3)),
}


@pytest.mark.parametrize("case", LEFT_TO_STORE.values(), ids=LEFT_TO_STORE)
def test_values_that_the_store_can_judge_row_by_row_are_left_to_it(case: tuple[dict[str, Any], pa.DataType]) -> None:
    given, kind = case
    (batch,) = WriteData(given, COLUMNS)
    assert batch.schema.types == [kind]


def test_unknown_column_names_the_known() -> None:
    text = refused({"id": [1], "town": ["x"]})
    assert "'town'" in text and "city" in text


@pytest.mark.parametrize(
    "data",
    [
        pa.table([[1], [2]], names=["id", "id"]),
        pd.DataFrame([[1, 2]], columns=["id", "id"]),
    ],
)
def test_two_columns_of_one_name(data: Any) -> None:
    assert "id" in refused(data) or "one name" in refused(data)


@pytest.mark.parametrize(
    "data",
    [5, None, [1, 2], {"id": 1}, {"id": "text"}, pl.LazyFrame({"id": [1]}), pd.Series([1]), pl.Series([1])],
)
def test_what_is_no_data(data: Any) -> None:
    assert refused(data)


def test_columns_of_different_length() -> None:
    assert "differ in length" in refused({"id": [1, 2], "city": ["a"]})


def test_rows_of_different_columns() -> None:
    assert "row 1" in refused([{"id": 1, "city": "a"}, {"id": 2}])


@pytest.mark.parametrize("data", [pd.DataFrame([[1, 2]]), {0: [1]}, [{0: 1}, {0: 2}], [{"id": 1, 0: 2}]])
def test_columns_without_names(data: Any) -> None:
    assert "names must be strings, not 0" in refused(data)


@pytest.mark.parametrize("empty", [[], {}, {"id": []}, pd.DataFrame({"id": []}), ARROW.slice(0, 0)])
def test_no_rows(empty: Any) -> None:
    assert list(WriteData(empty, COLUMNS)) == []


def test_large_data_is_cut() -> None:
    table = pa.table({"id": pa.array(range(200_000))})
    data = WriteData(table, COLUMNS)
    sizes = [batch.num_rows for batch in data]
    assert sizes == [COMMIT_ROWS] * 3 + [200_000 - 3 * COMMIT_ROWS]
    assert data.row_count == 200_000


def sizes(data: Any, key: list[str]) -> list[int]:
    return [batch.num_rows for batch in WriteData(data, COLUMNS, key=key)]


def test_rows_in_key_order_make_ever_larger_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.arange(1_200_000) // 2
    cut = sizes(pa.table({"id": ids}), ["id"])
    assert cut[:4] == [COMMIT_ROWS, COMMIT_ROWS, 2 * COMMIT_ROWS, 4 * COMMIT_ROWS] and len(cut) == 6
    monkeypatch.setattr(batching, "ORDERED_COMMIT_BYTES", 1 << 20)
    assert max(sizes(pa.table({"id": ids}), ["id"])) == 2 * COMMIT_ROWS
    assert set(sizes(pa.table({"id": ids[::-1]}), ["id"])) == {COMMIT_ROWS, len(ids) % COMMIT_ROWS}


def test_only_rows_in_order_are_put_together_further() -> None:
    runs = np.concatenate([np.arange(400_000), np.random.default_rng(0).permutation(200_000), np.arange(400_000)])
    batches = list(WriteData(pa.table({"id": runs}), COLUMNS, key=["id"]))
    assert np.array_equal(np.concatenate([batch["id"].to_numpy() for batch in batches]), runs)
    large = [batch["id"].to_numpy() for batch in batches if batch.num_rows > COMMIT_ROWS]
    assert len(large) == 3 and all((np.diff(ids) >= 0).all() for ids in large)


def test_the_order_is_that_of_all_key_columns() -> None:
    count = 400_000
    cities = pa.array([f"c{number:04d}" for number in range(100)]).take(pa.array(np.arange(count) // 4_000))
    ascending = pa.table({"city": cities, "id": np.arange(count) % 4_000})
    assert max(sizes(ascending, ["city", "id"])) > COMMIT_ROWS == max(sizes(ascending, ["id", "city"]))
    assert max(sizes(ascending, ["city", "auto_incrementing_id"])) > COMMIT_ROWS  # what the store gives is not there
    with_null = ascending.set_column(0, "city", pa.array([None, *cities[1:].to_pylist()]))
    assert max(sizes(with_null.slice(0, 200_000), ["city"])) > COMMIT_ROWS
    assert sizes(with_null.slice(0, 2 * COMMIT_ROWS), ["city"]) == [COMMIT_ROWS] * 2


def test_wide_rows_are_cut_by_bytes() -> None:
    table = pa.table({"city": ["x" * 100_000] * 500})
    batches = list(WriteData(table, COLUMNS))
    assert sum(batch.num_rows for batch in batches) == 500
    assert all(batch.nbytes <= COMMIT_BYTES * 1.1 for batch in batches)
    assert len(batches) <= 8


def test_small_batches_are_put_together() -> None:
    one = pa.record_batch({"id": [1]})
    assert [batch.num_rows for batch in WriteData(pa.Table.from_batches([one] * 1000), COLUMNS)] == [1000]


def test_whole_is_one_batch() -> None:
    table = pa.table({"id": pa.array(range(200_000))})
    assert [batch.num_rows for batch in WriteData(table, COLUMNS, whole=True)] == [200_000]


def test_reader_is_read_as_it_is_written() -> None:
    read = []

    def batches():
        for number in range(4):
            read.append(number)
            yield pa.record_batch({"id": pa.array(range(COMMIT_ROWS))})

    schema = pa.schema([("id", pa.int64())])
    writing = iter(WriteData(pa.RecordBatchReader.from_batches(schema, batches()), COLUMNS))
    next(writing)
    assert len(read) <= 2

"""Tables made from data: Arrow types go to the column type that holds their values, or are refused all at once."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.convert.new_schema import read_new
from nyala.clients.convert.stored import stored_rows
from nyala.schemas.errors import InvalidArgumentError, NotFoundError, RowErrors, StoreError

NOON = dt.datetime(2026, 1, 31, 12)
PANDAS = pd.DataFrame(
    {
        "city": ["Oslo", None, "Hamar"],
        "id": np.array([3, 1, 2], np.uint32),
        "kind": pd.Categorical(["a", "b", None]),
        "at": pd.to_datetime([NOON, None, NOON]).tz_localize("UTC").tz_convert("Europe/Oslo"),
    }
)
POLARS = pl.DataFrame(
    {
        "city": ["Oslo", None, "Hamar"],
        "id": pl.Series([3, 1, 2], dtype=pl.UInt32),
        "kind": pl.Series(["a", "b", None], dtype=pl.Categorical),
        "at": pl.Series([NOON, None, NOON]).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Oslo"),
    }
)
COLUMNS = {
    "city": ["Oslo", None, "Hamar"],
    "id": pa.array([3, 1, 2], pa.uint32()),
    "kind": pa.array(["a", "b", None]).dictionary_encode(),
    "at": pa.array([NOON, None, NOON], pa.timestamp("ms", "Europe/Oslo")),
}
TABLE = pa.table(COLUMNS)
FORMS = {
    "pandas": lambda: PANDAS,
    "polars": lambda: POLARS,
    "dict of lists": lambda: COLUMNS,
    "table": lambda: TABLE,
    "reader": lambda: TABLE.to_reader(),
    "list of dicts": lambda: TABLE.to_pylist(),
}
ROWS = [
    {"id": 1, "city": None, "kind": "b", "at": None},
    {"id": 2, "city": "Hamar", "kind": None, "at": NOON},
    {"id": 3, "city": "Oslo", "kind": "a", "at": NOON},
]


def rows(table: Table) -> list[dict[str, Any]]:
    return table.scan(ordered=True).to_arrow().to_pylist()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_table_is_made_and_loaded_from_data_of_every_form(db: Database, form: Any) -> None:
    before = db.now()
    homes = db.create_table("homes", data=form(), primary_key=["id"])
    assert homes.primary_key == ["id"] and homes.schema.names == ["id", "city", "kind", "at"]
    assert rows(homes) == ROWS
    assert homes.changes(before).to_arrow()["_timestamp"].unique().to_pylist() == [homes.last_change()]


def test_notes_say_what_became_of_types(db: Database) -> None:
    homes = db.create_table("homes", data=PANDAS, primary_key=["id"])
    assert homes.notes == [
        "column 'id' is uint32 and is stored as int64",
        "column 'city' is large_string and is stored as string",
        "column 'kind' is dictionary<values=large_string, indices=int8, ordered=0> and is stored as string",
        "column 'at' is timestamp[us, tz=Europe/Oslo] and is stored as timestamp[us], the same moments in UTC",
    ]
    assert homes.notes[1] in repr(homes)
    assert db.create_table("plain", data={"id": [1], "x": ["a"]}, primary_key=["id"]).notes == []


HELD: dict[str, tuple[pa.Array, str, Any]] = {
    "large strings": (pa.array(["a"], pa.large_string()), "string", "a"),
    "string views": (pa.array(["a"], pa.string_view()), "string", "a"),
    "large bytes": (pa.array([b"a"], pa.large_binary()), "binary", b"a"),
    "byte views": (pa.array([b"a"], pa.binary_view()), "binary", b"a"),
    "fixed bytes": (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
    "a dictionary of views": (pa.array(["a"], pa.string_view()).dictionary_encode(), "string", "a"),
    "a dictionary of numbers": (pa.array([7], pa.uint8()).dictionary_encode(), "uint8", 7),
    "runs": (pa.RunEndEncodedArray.from_arrays([1], pa.array(["a"], pa.large_string())), "string", "a"),
    "views of lists": (pa.array([[1]], pa.list_view(pa.int64())), "list<int64>", [1]),
    "lists of large strings": (pa.array([["a"]], pa.list_(pa.large_string())), "list<string>", ["a"]),
    "lists of a dictionary": (
        pa.ListArray.from_arrays([0, 1], pa.array(["a"]).dictionary_encode()),
        "list<string>",
        ["a"],
    ),
    "structs of nanoseconds": (
        pa.array([{"at": NOON}], pa.struct([("at", pa.timestamp("ns"))])),
        "struct<at: timestamp[us]>",
        {"at": NOON},
    ),
    "seconds": (pa.array([NOON], pa.timestamp("s")), "timestamp[us]", NOON),
    "nanoseconds": (pa.array([NOON], pa.timestamp("ns", "Asia/Tokyo")), "timestamp[us]", NOON),
    "dates of milliseconds": (pa.array([NOON.date()], pa.date64()), "date", NOON.date()),
    "small decimals": (pa.array([Decimal("1.5")], pa.decimal32(4, 1)), "decimal(4,1)", Decimal("1.5")),
    "wide decimals": (pa.array([Decimal("1.5")], pa.decimal256(38, 1)), "decimal(38,1)", Decimal("1.5")),
    "hundreds": (pa.array([Decimal("1E+2")], pa.decimal128(3, -2)), "decimal(5,0)", Decimal(100)),
    "UUIDs": (pa.array([b"0123456789abcdef"], pa.uuid()), "binary", b"0123456789abcdef"),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_every_type_that_one_column_type_holds(db: Database, case: tuple[pa.Array, str, Any]) -> None:
    cells, kind, value = case
    data = pa.table({"id": pa.array(range(len(cells)), pa.int64()), "x": cells})
    made = db.create_table("made", data=data, primary_key=["id"])
    assert made.describe()["columns"][1]["type"] == kind and made.get(0) == {"id": 0, "x": value}
    made.delete({"id": [0]})
    made.insert(data.slice(0, 1))
    made.upsert(data.slice(0, 1))
    assert made.get(0) == {"id": 0, "x": value}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_a_schema_of_such_types_is_taken_too(db: Database, case: tuple[pa.Array, str, Any]) -> None:
    cells, _, value = case
    schema = pa.schema([("id", pa.int64()), ("x", cells.type)])
    made = db.create_table("made", schema, ["id"])
    assert len(made.notes) == 1 and "stored as" in made.notes[0]
    made.insert(pa.table({"id": pa.array(range(len(cells)), pa.int64()), "x": cells}))
    assert made.get(0)["x"] == value  # pyright: ignore[reportOptionalSubscript]


def test_what_no_table_holds_is_refused_in_one_message(db: Database) -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "tags": [[None], []],
            "nothing": [{}, {}],
            "mixed": pd.Series([1, "a"], dtype=object),
            "none": [None, None],
            "fine": pd.Series([1, 2], dtype="datetime64[ns]"),
            "name": ["a", "b"],
        }
    )
    with pytest.raises(InvalidArgumentError) as refused:
        db.create_table("homes", data=frame, primary_key=["id"])
    text = refused.value.message
    assert "5 of the columns" in text and "\n" not in text and "'name'" not in text
    assert "'tags' is list<item: null>: convert it, string (as JSON) would work" in text
    assert "'nothing' is struct<>: convert it, string (as JSON) would work" in text
    assert "'mixed' have no common type" in text and "'none' has no value" in text
    assert "'fine' is timestamp[ns] and has fractions of a microsecond: round it" in text
    assert db.tables() == []
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.null())), ("took", pa.null())])
    with pytest.raises(InvalidArgumentError, match=r"'tags'.*'took'"):
        db.create_table("homes", schema, ["id"])


def text_of(cells: pa.Array) -> list[str]:
    return [json.dumps(cell) for cell in cells.to_pylist()]


def cast_to(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda cells: cells.cast(kind)


CONVERTED: dict[str, tuple[pa.Array, str, Any]] = {
    "lists of nothing": (pa.array([[], [None]]), "string (as JSON) would", text_of),
    "objects without a field": (pa.array([{}]), "string (as JSON) would", text_of),
    "wide decimals": (
        pa.array([Decimal(1)], pa.decimal256(50, 2)), "decimal(38,2) if", cast_to(pa.decimal128(38, 2))
    ),
    "nothing": (pa.nulls(1), "{'type': 'string'}", cast_to(pa.string())),
    "fractions": (
        pa.array([1_001], pa.timestamp("ns")), "dt.round('us')", lambda cells: cells.to_pandas().dt.round("us")
    ),
}  # fmt: skip


@pytest.mark.parametrize(("cells", "advice", "convert"), CONVERTED.values(), ids=CONVERTED)
def test_the_advice_about_what_a_table_cannot_hold_works(
    db: Database, cells: pa.Array, advice: str, convert: Any
) -> None:
    keys = list(range(len(cells)))
    with pytest.raises(InvalidArgumentError) as refused:
        db.create_table("homes", data=pa.table({"id": keys, "x": cells}), primary_key=["id"])
    assert advice in refused.value.message
    assert db.create_table("homes", data={"id": keys, "x": convert(cells)}, primary_key=["id"]).count() == len(keys)


def test_columns_of_polars_that_arrow_does_not_know_are_named_too(db: Database) -> None:
    frame = pl.DataFrame({"id": [1], "huge": pl.Series([1], dtype=pl.Int128), "tags": [[None]]})
    with pytest.raises(InvalidArgumentError, match=r"2 of the columns .*'huge'.*'tags'"):
        db.create_table("homes", data=frame, primary_key=["id"])


def test_a_write_names_all_columns_that_never_fit(homes: Table) -> None:
    frame = pd.DataFrame({"id": [1], "city": [5], "ok": [1], "small": pd.Series([[1]], dtype=object)})
    with pytest.raises(InvalidArgumentError, match=r"'city'.*'small'|'small'.*'city'") as refused:
        homes.insert(frame)
    assert "'ok'" in refused.value.message


def test_options_say_the_type_where_the_data_does_not(db: Database) -> None:
    data = {"id": [1, 2], "note": [None, None], "cents": [1, 2], "word": ["abc", "d"], "day": ["2026-01-31", None]}
    options = {
        "id": {"type": "int32"},
        "note": {"type": "string"},
        "cents": {"type": "decimal(10,2)"},
        "word": {"type": "varchar(2)"},
        "day": {"type": "date"},
    }
    made = db.create_table("made", data=data, primary_key=["id"], column_options=options)
    assert [column["type"] for column in made.describe()["columns"]] == [
        "int32", "string", "decimal(10,2)", "varchar(2)", "date"
    ]  # fmt: skip
    assert made.get(1) == {"id": 1, "note": None, "cents": Decimal("1.00"), "word": "ab", "day": NOON.date()}
    with pytest.raises(InvalidArgumentError, match="'word'"):
        db.create_table("other", data=data, primary_key=["id"], column_options=options | {"word": {"type": "int8"}})


def test_whole_numbers_beyond_64_bits_become_a_decimal(db: Database) -> None:
    made = db.create_table("made", data={"id": [1], "n": [2**70]}, primary_key=["id"])
    assert made.get(1) == {"id": 1, "n": Decimal(2**70)}


def test_a_table_that_cannot_be_loaded_is_not_made(db: Database) -> None:
    with pytest.raises(RowErrors) as refused:
        db.create_table("homes", data={"id": [1, 2, 1], "x": [1, 2, 3]}, primary_key=["id"])
    assert refused.value.result.errors[0].row == 2
    assert db.tables() == []

    def breaking():
        yield pa.record_batch({"id": [1]})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        schema = pa.schema([("id", pa.int64())])
        db.create_table("homes", data=pa.RecordBatchReader.from_batches(schema, breaking()), primary_key=["id"])
    assert db.tables() == []


def test_if_not_exists_loads_nothing_into_a_table_that_is_there(db: Database) -> None:
    first = db.create_table("homes", data={"id": [1]}, primary_key=["id"], if_not_exists=True)
    again = db.create_table("homes", data={"id": [2]}, primary_key=["id"], if_not_exists=True)
    assert rows(first) == rows(again) == [{"id": 1}] and "no data was loaded" in again.notes[0]


def test_data_goes_into_a_schema_that_is_given(db: Database) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.string())])
    made = db.create_table("made", schema, ["id"], data=PANDAS[["id"]], partition_by=[{"hash": ["id"], "buckets": 2}])
    assert rows(made) == [{"id": number, "x": None, "y": None} for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"primary_key": ["id"]}, "schema"),
        ({"data": {"id": [1]}}, "primary_key"),
        ({"data": {"id": [1]}, "primary_key": ["no"]}, "'no', which is not a column of the data; it has id"),
        ({"schema": PANDAS, "primary_key": ["id"]}, "data="),
        ({"data": 5, "primary_key": ["id"]}, "not a int"),
        ({"data": {"id": [1.5]}, "primary_key": ["id"]}, "key"),
    ],
)
def test_what_is_missing_is_said(db: Database, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgumentError, match=word):
        db.create_table("homes", **arguments)
    with pytest.raises(NotFoundError):
        db.table("homes")


def test_frames_that_were_read_go_back_in(db: Database) -> None:
    made = db.create_table("made", data=PANDAS, primary_key=["id"])
    made.upsert(made.scan().to_pandas())
    made.upsert(made.scan().to_polars())
    made.upsert(PANDAS)
    made.upsert(POLARS)
    assert rows(made) == ROWS


def test_refused_rows_of_a_new_table_are_told_as_rows_of_the_data(db: Database) -> None:
    with pytest.raises(nyala.RowErrors) as refused:
        db.create_table("t", data={"id": [1, None], "n": [1, 2]}, primary_key=["id"])
    assert (
        refused.value.message
        == "1 of 2 rows rejected: row 1: INVALID_ARGUMENT: column 'id' is NOT NULL, but the value is NULL"
    )
    with pytest.raises(nyala.RowErrors, match=r"rejected: row 2: ALREADY_PRESENT: a row with the key \(id=1\)"):
        db.create_table("t", data={"id": [1, 2, 1]}, primary_key=["id"])
    assert db.tables() == []


TWO = [{"id": 1, "city": "Oslo"}, {"id": 2, "city": "Bergen"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Parquet file of each row, and with what an export leaves beside them."""
    tmp_path = tmp_path / "homes.v1"
    tmp_path.mkdir()
    for number, row in enumerate(TWO):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{number}.parquet")
    (tmp_path / "_export.json").write_text("{}")
    return tmp_path


STORED = {
    "the path of a Parquet file": lambda folder: str(folder / "1.parquet"),
    "a Path": lambda folder: folder / "1.parquet",
    "a URI": lambda folder: (folder / "1.parquet").as_uri(),
    "a folder": lambda folder: f"{folder}/",
    "a dataset": lambda folder: ds.dataset(folder),
    "a scanner": lambda folder: ds.dataset(folder).scanner(columns=["id"], filter=ds.field("id") > 1),
    "an Arrow file": lambda folder: str(folder / "_rows.arrow"),
}


@pytest.mark.parametrize("form", STORED.values(), ids=STORED)
def test_tables_are_made_of_files_and_datasets(db: Database, folder: Path, form: Any) -> None:
    feather.write_feather(pa.Table.from_pylist(TWO), folder / "_rows.arrow")
    made = db.create_table("homes", data=form(folder), primary_key=["id"])
    expected = TWO if form in (STORED["a folder"], STORED["a dataset"], STORED["an Arrow file"]) else TWO[1:]
    names = made.schema.names
    assert rows(made) == [{name: row[name] for name in names} for row in expected]
    assert made.upsert(form(folder)).applied == len(expected)


def test_a_file_is_not_read_into_memory_to_make_a_table(
    db: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_all(_: object) -> pa.Table:
        raise AssertionError

    class Reader:
        """A reader that shows who reads all at once."""

        def __init__(self, reader: pa.RecordBatchReader) -> None:
            self.schema, self.read_all = reader.schema, read_all

    monkeypatch.setattr("nyala.clients.convert.data.stored_rows", lambda data: Reader(stored_rows(data)))
    given = read_new(str(folder), ["id"], {})
    assert isinstance(given.rows, Reader)


def test_a_file_that_is_none_is_told_with_what_loads_it(db: Database, folder: Path) -> None:
    (folder / "rows.csv").write_text("id\n1\n")
    (folder / "bad.parquet").write_text("id")
    cases = {
        "none.parquet": "there is no file or folder",
        "bad.parquet": "cannot be read",
        "rows.csv": "nyala load TABLE",
    }
    for name, why in cases.items():
        with pytest.raises(StoreError, match=why):
            db.create_table("homes", data=str(folder / name), primary_key=["id"])
    with pytest.raises(InvalidArgumentError, match=r"cannot be read: .*bad\.parquet"):
        db.create_table("homes", data=folder, primary_key=["id"])
    assert db.tables() == []


DECIMALS: dict[str, Any] = {
    "pandas": lambda cells: pd.DataFrame({"id": [1, 2], "price": cells}),
    "a dict of lists": lambda cells: {"id": [1, 2], "price": cells},
    "a list of dicts": lambda cells: [{"id": row, "price": cell} for row, cell in enumerate(cells, 1)],
    "an array of numpy": lambda cells: {"id": [1, 2], "price": np.array(cells, object)},
}


@pytest.mark.parametrize("form", DECIMALS.values(), ids=DECIMALS)
def test_a_larger_decimal_than_the_first_rows_have_is_written_later(db: Database, form: Any) -> None:
    made = db.create_table("homes", data=form([Decimal("5.10"), None]), primary_key=["id"])
    assert [column["type"] for column in made.describe()["columns"]] == ["int64", "decimal(38,2)"]
    assert made.notes == [
        "column 'price' is decimal128(3, 2) and is stored as decimal(38,2), so that larger values fit later; "
        "column_options={'price': {'type': 'decimal(3,2)'}} makes it narrower"
    ]
    made.upsert(form([Decimal("1234567.5"), Decimal("-1E+20")]))
    assert [row["price"] for row in rows(made)] == [Decimal("1234567.50"), Decimal("-1E+20")]


def test_the_advice_of_that_note_works_and_a_type_that_was_chosen_stays(db: Database) -> None:
    frame = DECIMALS["pandas"]([Decimal("5.10"), None])
    narrow = db.create_table(
        "narrow", data=frame, primary_key=["id"], column_options={"price": {"type": "decimal(3,2)"}}
    )
    typed = pd.array([Decimal("5.10"), None], dtype=pd.ArrowDtype(pa.decimal128(9, 2)))
    kept = db.create_table("kept", data=frame.assign(price=typed), primary_key=["id"])
    column = pa.array([Decimal("5.10"), None], pa.decimal128(9, 2))
    also = db.create_table("also", data={"id": [1, 2], "price": column}, primary_key=["id"])
    types = [table.describe()["columns"][1]["type"] for table in (narrow, kept, also)]
    assert types == ["decimal(3,2)", "decimal(9,2)", "decimal(9,2)"]
    assert not narrow.notes and not kept.notes and not also.notes


def test_decimals_with_more_digits_than_a_column_holds_are_refused_as_before(db: Database) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 38 digits"):
        db.create_table("homes", data={"id": [1], "price": [Decimal("1" * 40)]}, primary_key=["id"])
    made = db.create_table("homes", data={"id": [1], "price": [Decimal("1E+3")]}, primary_key=["id"])
    assert made.describe()["columns"][1]["type"] == "decimal(38,0)"

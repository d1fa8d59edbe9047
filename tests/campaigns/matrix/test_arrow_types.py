"""Which Arrow types a table is made of and which it takes, what stands in the way of a cell, and what is said then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition


class Celsius(pa.ExtensionType):
    """A type of somebody's own; it has no hash."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with nyala.open(tmp_path, maintenance="off") as opened:
        yield opened


def make(db: Database, word: str, key: str = "int64", **options: Any) -> Table:
    columns = [{"name": "k", "type": key, "nullable": False}, {"name": "c", "type": word, **options}]
    definition = {"name": "t", "columns": columns, "primary_key": ["k"]}
    return db.create_table_as(TableDefinition.model_validate(definition))


def types(table: Table) -> dict[str, str]:
    """The type of each column as a word."""
    return {column["name"]: column["type"] for column in table.describe()["columns"]}


UTC, WHOLE = ", the same moments in UTC", ", for whole microseconds only"
HELD: list[tuple[pa.DataType, str, str]] = [
    (pa.list_view(pa.int64()), "list<int64>", ""),
    (pa.list_(pa.large_string()), "list<string>", ""),
    (pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]), "struct<a: string>", ""),
    (pa.timestamp("s"), "timestamp[us]", ""),
    (pa.timestamp("ns"), "timestamp[us]", WHOLE),
    (pa.timestamp("us", "UTC"), "timestamp[us]", UTC),
    (pa.timestamp("ns", "Europe/Berlin"), "timestamp[us]", UTC + WHOLE),
    (pa.date64(), "date", ""),
    (pa.large_string(), "string", ""),
    (pa.string_view(), "string", ""),
    (pa.large_binary(), "binary", ""),
    (pa.binary_view(), "binary", ""),
    (pa.binary(4), "binary", ""),
    (pa.dictionary(pa.int8(), pa.large_string()), "string", ""),
    (pa.dictionary(pa.int8(), pa.int64()), "int64", ""),
    (pa.run_end_encoded(pa.int32(), pa.decimal128(5, 2)), "decimal(5,2)", ""),
    (pa.decimal32(5, 2), "decimal(5,2)", ""),
    (pa.decimal256(20, 2), "decimal(20,2)", ""),
    (pa.decimal128(10, -2), "decimal(12,0)", ""),
    (pa.uuid(), "binary", ""),
    (Celsius(), "int64", ""),
]


@pytest.mark.parametrize(("kind", "word", "why"), HELD, ids=[str(case[0]) for case in HELD])
def test_a_column_becomes_the_type_that_holds_all_of_its_values(
    db: Database, kind: pa.DataType, word: str, why: str
) -> None:
    table = db.create_table("t", pa.schema([("k", pa.int64()), pa.field("c", kind)]), ["k"])
    assert types(table) == {"k": "int64", "c": word}
    assert table.notes == [f"column 'c' is {kind} and is stored as {word}{why}"]


FORBIDDEN: list[tuple[pa.DataType, str]] = [
    (pa.list_(pa.null()), "string (as JSON)"),
    (pa.struct([]), "string (as JSON)"),
    (pa.dense_union([pa.field("a", pa.int8())]), "string (as JSON)"),
    (pa.list_(pa.dense_union([pa.field("a", pa.int8())])), "string (as JSON)"),
]
REFUSED = "a table cannot hold one of the columns as given: "


@pytest.mark.parametrize(("kind", "works"), FORBIDDEN, ids=[str(case[0]) for case in FORBIDDEN])
def test_what_a_table_cannot_hold_is_refused_by_name_with_the_nearest(
    db: Database, kind: pa.DataType, works: str
) -> None:
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        db.create_table("t", pa.schema([("k", pa.int64()), pa.field("c", kind)]), ["k"])
    said = f"column 'c' is {kind}: convert it, {works} would work, or leave it out"
    assert refused.value.message == REFUSED + said
    assert db.tables() == []


def test_a_decimal_of_too_many_digits_is_refused_with_what_to_cast_it_to(db: Database) -> None:
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        db.create_table("t", pa.schema([("k", pa.int64()), ("c", pa.decimal256(60, 2))]), ["k"])
    assert refused.value.message == (
        f"{REFUSED}column 'c' is decimal256(60, 2), and a table holds at most 38 digits: cast it to decimal(38,2) if "
        "its values fit, otherwise to string, or leave it out"
    )


def test_all_columns_that_a_table_cannot_hold_are_named_at_once(db: Database) -> None:
    wrong = [("c", pa.list_(pa.null())), ("d", pa.null()), ("e", pa.struct([]))]
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        db.create_table("t", pa.schema([("k", pa.int64()), *wrong, ("f", pa.uint8())]), ["k"])
    assert refused.value.message == (
        "a table cannot hold 3 of the columns as given: "
        f"column 'c' is {wrong[0][1]}: convert it, string (as JSON) would work, or leave it out; "
        "column 'd' has no value to infer its type from: give a type, as in column_options={'d': {'type': 'string'}}, "
        "or leave it out; column 'e' is struct<>: convert it, string (as JSON) would work, or leave it out"
    )
    assert db.tables() == []


def _runs(values: pa.Array) -> pa.Array:
    """Two rows of one run, cut out of more."""
    return pa.RunEndEncodedArray.from_arrays(pa.array([3, 6], pa.int32()), values).slice(1, 2)


NOON = dt.datetime(2024, 5, 1, 12)
TAKEN: list[tuple[str, pa.Array, str, Any]] = [
    ("unsigned", pa.array([5, 5], pa.uint64()), "int8", 5),
    ("the greatest unsigned", pa.array([2**64 - 1] * 2, pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
    ("large text", pa.array(["a\0\u00e9"] * 2, pa.large_string()), "string", "a\0\u00e9"),
    ("a view of text, cut", pa.array(["abcdef"] * 2, pa.string_view()), "varchar(3)", "abc"),
    ("a dictionary, cut", pa.array(["e\u0301e\u0301"] * 2).dictionary_encode(), "varchar(3)", "e\u0301e"),
    ("a dictionary of numbers", pa.array([7, 7]).dictionary_encode(), "int64", 7),
    ("a dictionary of decimals", pa.array([Decimal("1.5")] * 2).dictionary_encode(), "decimal(9,4)", Decimal("1.5")),
    ("large bytes", pa.array([b"\0"] * 2, pa.large_binary()), "binary", b"\0"),
    ("a view of bytes", pa.array([b"\0"] * 2, pa.binary_view()), "binary", b"\0"),
    ("fixed bytes", pa.array([b"ab"] * 2, pa.binary(2)), "binary", b"ab"),
    ("half floats", pa.array([0.5] * 2, pa.float16()), "float", 0.5),
    ("seconds", pa.array([NOON] * 2, pa.timestamp("s")), "timestamp[us]", NOON),
    ("nanoseconds", pa.array([NOON] * 2, pa.timestamp("ns")), "timestamp[us]", NOON),
    ("a zone", pa.array([NOON] * 2, pa.timestamp("us", "Europe/Berlin")), "timestamp[us]", NOON),
    ("milliseconds of days", pa.array([NOON.date()] * 2, pa.date64()), "date", NOON.date()),
    ("wide decimals", pa.array([Decimal("-1.50")] * 2, pa.decimal256(60, 2)), "decimal(9,4)", Decimal("-1.5")),
    ("narrow decimals", pa.array([Decimal("1.5")] * 2, pa.decimal32(5, 2)), "decimal(38,4)", Decimal("1.5")),
    ("nothing", pa.nulls(2), "varchar(3)", None),
    ("runs of text", _runs(pa.array(["abcd", None])), "varchar(3)", "abc"),
    ("runs of a dictionary", _runs(pa.array(["a", None]).dictionary_encode()), "string", "a"),
    ("runs of numbers", _runs(pa.array([7, None])), "int8", 7),
    ("runs of dates", _runs(pa.array([NOON.date(), None])), "date", NOON.date()),
    ("somebody's own", pa.ExtensionArray.from_storage(Celsius(), pa.array([7, 7])), "int64", 7),
    ("uuids", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16] * 2, pa.binary(16))), "binary", b"u" * 16),
    ("JSON", pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"] * 2)), "string", "{}"),
]


@pytest.mark.parametrize(("cells", "word", "cell"), [case[1:] for case in TAKEN], ids=[case[0] for case in TAKEN])
def test_what_means_the_same_is_taken(db: Database, cells: pa.Array, word: str, cell: Any) -> None:
    table = make(db, word)
    assert table.insert(pa.table({"k": [1, 2], "c": cells})).applied == 2
    assert table.scan().to_arrow()["c"].to_pylist() == [cell, cell]
    # The same batch as another program's client would send it, without the casts of this one.
    batch = pa.record_batch({"k": [1, 2], "c": cells})
    changed = table._store.write(WriteCommand(table="t"), batch)
    assert changed.applied == 2 and table.scan().to_arrow()["c"].to_pylist() == [cell, cell]


def test_a_few_bytes_that_stand_for_many_rows_are_measured_before_they_are_spelled_out(db: Database) -> None:
    table = make(db, "int64")
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([1]))
    with pytest.raises(nyala.InvalidArgumentError, match="2,147,483,647 rows"):
        table._store.write(WriteCommand(table="t"), pa.record_batch({"k": runs, "c": runs}))
    assert table.scan().count() == 0


REFUSED_DEFAULTS = [
    ("varchar(3)", "abcd", "more than 3 characters"),
    ("string", "x" * 65_537, "more than 65,536 bytes"),
    ("string", "\ud800", "is not a valid string"),
    ("float", 1e300, "is not a valid float"),
    ("int8", 128, "is not a valid int8"),
    ("int8", 1.5, "is not a valid int8"),
    ("date", -719_163, "is not a valid date"),
    ("timestamp[us]", 2**63, r"is not a valid timestamp\[us\]"),
    ("decimal(5,2)", "1.234", r"is not a valid decimal\(5,2\)"),
    ("decimal(5,2)", "1000", r"is not a valid decimal\(5,2\)"),
    ("decimal(5,2)", "NaN", r"is not a valid decimal\(5,2\)"),
]


@pytest.mark.parametrize(("word", "default", "why"), REFUSED_DEFAULTS)
def test_a_default_is_a_cell_that_could_be_written(db: Database, word: str, default: Any, why: str) -> None:
    for what in ("write_default", "read_default"):
        with pytest.raises(nyala.InvalidArgumentError, match=f"the {what} of column 'c'.*{why}"):
            make(db, word, **{what: default})
    make(db, word)
    with pytest.raises(nyala.InvalidArgumentError, match=f"the read_default of column 'd'.*{why}"):
        db.table("t").alter().add_column("d", word, read_default=default).apply()


CHOSEN = [
    (pa.int8(), "int16"),
    (pa.int64(), "int8"),
    (pa.string(), "varchar(3)"),
    (pa.string(), "date"),
    (pa.null(), "date"),
    (pa.uint64(), "int64"),
]


@pytest.mark.parametrize(("kind", "chosen"), CHOSEN)
def test_an_option_chooses_a_type_that_the_values_can_become(db: Database, kind: pa.DataType, chosen: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("c", kind)])
    table = db.create_table("t", schema, ["k"], column_options={"c": {"type": chosen}})
    assert types(table) == {"k": "int64", "c": chosen}


@pytest.mark.parametrize(("kind", "chosen"), [(pa.int8(), "varchar(3)"), (pa.binary(), "string")])
def test_an_option_that_the_values_cannot_become_is_refused(db: Database, kind: pa.DataType, chosen: str) -> None:
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        db.create_table("t", pa.schema([("k", pa.int64()), ("c", kind)]), ["k"], column_options={"c": {"type": chosen}})
    said = f"column 'c' is {kind}, which cannot be cast to {chosen}; accepted types: strings"
    assert refused.value.message == REFUSED + said
    assert db.tables() == []


def test_a_cell_of_64_kib_is_the_largest_and_others_of_its_batch_apply(db: Database) -> None:
    table = db.create_table("t", pa.schema([("k", pa.string()), ("c", pa.string()), ("b", pa.binary())]), ["k"])
    rows = [
        ("fits", "\u00e9" * 32_768, b"\0" * 65_536),
        ("text", "\u00e9" * 32_768 + "x", b""),
        ("bytes", "", b"\0" * 65_537),
        ("k" * 16_384, "", b""),
        ("k" * 16_385, "", b""),
    ]
    data = [dict(zip("kcb", row, strict=True)) for row in rows]
    result = table.insert(data, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [
        (1, "TOO_LARGE"),
        (2, "TOO_LARGE"),
        (4, "TOO_LARGE"),
    ]
    assert result.applied == 2
    for op in ("update", "upsert"):
        result = table.write({"k": ["fits"], "c": ["x" * 65_537]}, op, on_error="return")
        assert [error.code for error in result.errors] == ["TOO_LARGE"]
    table.maintain("flush")
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["k"]) == [data[0], data[3]]
    assert table.get("k" * 16_385) is None


def test_escaped_zero_bytes_count_as_bytes_of_a_key(db: Database) -> None:
    schema = pa.schema([("k", pa.binary()), ("l", pa.binary()), ("c", pa.int8())])
    table = db.create_table("t", schema, ["k", "l"])
    fits, not_ = b"\0" * 8191, b"\0" * 8192  # two bytes for each, and two for the end
    result = table.insert({"k": [fits, not_], "l": [b"", b""], "c": [1, 2]}, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(1, "TOO_LARGE")]
    assert table.get((fits, b"")) == {"k": fits, "l": b"", "c": 1}


def test_300_columns_with_names_of_256_bytes_are_the_most(db: Database) -> None:
    names = [f"{number:03}" + "\u00e9" * 126 + "x" for number in range(300)]
    schema = pa.schema([(name, pa.int32()) for name in names])
    table = db.create_table("\u65e5" * 85 + "x", schema, names[:1])
    table.insert({name: [number] for number, name in enumerate(names)})
    table.maintain("flush")
    assert table.scan(where=f'"{names[299]}" = 299').to_arrow().to_pylist() == [
        dict(zip(names, range(300), strict=True))
    ]
    with pytest.raises(nyala.InvalidArgumentError, match="at most 300"):
        table.alter().add_column("another", "int8").apply()
    with pytest.raises(nyala.InvalidArgumentError, match="301 columns"):
        db.create_table("u", schema.append(pa.field("one", pa.int8())), names[:1])
    for wrong, why in (("\u00e9" * 128 + "x", "257 bytes"), ("", "non-empty"), ("a\0b", "NUL")):
        with pytest.raises(nyala.InvalidArgumentError, match=why):
            db.create_table("u", pa.schema([("k", pa.int64()), (wrong, pa.int8())]), ["k"])
        with pytest.raises(nyala.InvalidArgumentError, match=why):
            table.alter().rename_column(names[1], wrong).apply()


def test_a_varchar_is_cut_by_characters_in_every_write_and_as_a_key(db: Database) -> None:
    table = make(db, "varchar(2)", key="varchar(3)")
    rows = {"k": ["abcdef", "abcxyz", "e\u0301e\u0301"], "c": ["e\u0301x", "\u65e5\u672c\u8a9e", None]}
    result = table.insert(rows, on_error="return")
    assert [(error.row, error.code) for error in result.errors] == [(1, "ALREADY_PRESENT")]
    assert table.update({"k": ["e\u0301eQQ"], "c": ["\U0001f600" * 3]}).applied == 1
    assert table.upsert({"k": ["abc", "xyz!"], "c": ["  \u00a0", "123"]}).applied == 2
    expected = {"abc": "  ", "e\u0301e": "\U0001f600" * 2, "xyz": "12"}
    for state in ("flush", "major_compact", "compact"):
        found = table.scan(ordered=True).to_arrow()
        assert dict(zip(found["k"].to_pylist(), found["c"].to_pylist(), strict=True)) == expected
        for literal, op, keys in (
            ("123", "=", []),
            ("12", "=", ["xyz"]),
            ("123", "<", ["abc", "xyz"]),  # what is longer lies between two cells
            ("123", ">=", ["e\u0301e"]),
        ):
            assert table.scan(["k"], where=f"c {op} '{literal}'", ordered=True).to_arrow()["k"].to_pylist() == keys
        assert table.scan(where="k = 'xyz!'").count() == 0 and table.scan(where="k > 'xyz'").count() == 0
        table.maintain(state)
    assert table.get("xyz!") == {"k": "xyz", "c": "12"}
    assert table.delete({"k": ["xyz?"]}).applied == 1 and table.get("xyz") is None


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimal_of_each_precision_holds_its_digits_and_no_more(db: Database, precision: int) -> None:
    scale = precision // 2
    nines = Decimal((0, (9,) * precision, -scale))
    table = make(db, f"decimal({precision},{scale})", key=f"decimal({precision},{scale})")
    ones = [Decimal((sign, (digit,), -scale)) for sign, digit in ((1, 1), (0, 0), (0, 1))]
    cells = [nines.copy_negate(), *ones, nines]
    kind = table.schema.field("c").type
    table.insert(pa.table({"k": pa.array(cells, kind), "c": pa.array(cells[::-1], kind)}))
    table.maintain("flush")
    found = table.scan(ordered=True).to_arrow()
    assert found["k"].to_pylist() == cells and found["c"].to_pylist() == cells[::-1]
    assert table.scan(where=f"c = {nines:f} and k <= {nines.copy_negate():f}").count() == 1
    assert table.scan(where=f"c > {nines:f}0").count() == 0
    too_large = pa.array([Decimal((0, (1, *(0,) * precision), -scale))], pa.decimal256(precision + 1, scale))
    too_fine = pa.array([Decimal((0, (1,), -scale - 1))], pa.decimal256(precision + 1, scale + 1))
    for wrong in (too_large, too_fine):
        with pytest.raises(nyala.RowErrors, match="INVALID_ARGUMENT: column 'c'"):
            table.upsert(pa.table({"k": pa.array([nines], kind), "c": wrong}))
    coarser = pa.array([Decimal(9)], pa.decimal128(1, 0))
    if precision - scale > 0 and scale:
        assert table.upsert(pa.table({"k": pa.array([nines], kind), "c": coarser})).applied == 1
        assert table.get(nines) == {"k": nines, "c": Decimal(9)}

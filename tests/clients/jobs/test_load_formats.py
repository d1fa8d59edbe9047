"""What can be loaded: every format, packed or not, and rows that are wrong, by their lines."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cli.rows import json_lines
from nyala.clients.jobs.files import csv_file, json_file
from nyala.jobs import ReadOptions, load
from nyala.schemas.errors import InvalidArgumentError
from tests.clients.jobs.job_rows import SCHEMA, rows

HOMES = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("cents", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
    ]
)


@pytest.fixture
def homes(target: Database) -> Table:
    return target.create_table("homes", HOMES, ["id"])


def held(table: Table) -> list[dict]:
    return table.scan(ordered=True).to_arrow().to_pylist()


def put(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def as_json(table: pa.Table) -> bytes:
    return b"".join(json_lines(table.to_batches()))


def write_rows(path: Path, table: pa.Table) -> None:
    name = path.name.removeprefix("rows.")
    sink = pa.BufferOutputStream()
    kind = name.split(".")[0]
    if kind in ("csv", "tsv"):
        csv.write_csv(table, sink, csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
        data = sink.getvalue().to_pybytes()
    elif kind in ("jsonl", "ndjson"):
        data = as_json(table)
    elif kind == "json":
        data = json.dumps([json.loads(line) for line in as_json(table).splitlines()], indent=1).encode()
    elif kind == "parquet":
        pq.write_table(table, sink)
        data = sink.getvalue().to_pybytes()
    else:
        make = pa.ipc.new_stream if kind == "arrows" else pa.ipc.new_file
        with make(sink, table.schema) as writer:
            writer.write_table(table, 100)
        data = sink.getvalue().to_pybytes()
    if name.endswith(".gz"):
        data = gzip.compress(data)
    if name.endswith(".zst"):
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)


FORMATS = ["csv", "tsv", "csv.gz", "jsonl.zst", "jsonl", "ndjson", "json", "json.gz", "parquet", "arrow", "feather"]
FORMATS += ["arrows", "arrow.gz"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_brings_the_same_rows(target: Database, tmp_path: Path, suffix: str) -> None:
    names = [name for name in SCHEMA.names if name != "raw" or "sv" not in suffix]  # CSV has no word for any byte
    table = target.create_table("t", SCHEMA, ["id"])
    given = rows(range(500)).select(names)
    write_rows(tmp_path / f"rows.{suffix}", given)
    made = load(target, "t", tmp_path / f"rows.{suffix}", op="insert")
    assert (made.rows, made.applied, made.error_count) == (500, 500, 0), made.errors[:2]
    read = table.scan(names, ordered=True).to_arrow()
    assert repr(read.to_pylist()) == repr(given.to_pylist())  # NaN and -0.0 are what they were


def test_wrong_cells_cost_their_rows_and_tell_their_lines(target: Database, homes: Table, tmp_path: Path) -> None:
    text = (
        "id,city,price,day,at,cents,ok\n"
        "1,Oslo,1.5,2024-02-29,2024-01-01T05:00:00,1.25,true\n"
        '2,"two\nlines",x,2024-02-29,,,\n'
        "3,Bergen,2.5,2023-02-29,,,\n"
        "4,too,few\n"
        " 5 ,Hamar, 7 ,2024-01-01,2024-01-01 05:00:00Z,3,YES\n"
        "6,Voss,1,2024-01-01,2024-01-01,0.001,no\n"
        "99999999999999999999,Voss,1,,,,\n"
        "7,NULL,NA,,,,0\n"
        "8,last,1,,,,maybe\n"
    )
    made = load(target, "homes", put(tmp_path / "a.csv", text), op="insert", rejects=tmp_path / "bad.csv")
    assert (made.rows, made.applied, made.error_count, made.rejected) == (9, 3, 6, 6)
    assert [(error.line, error.row) for error in made.errors] == [(3, 1), (5, 2), (6, 3), (8, 5), (9, 6), (11, 8)]
    assert "column 'price': 'x' is not a valid double" in made.errors[0].message
    assert made.errors[2].message == "3 cells, not 7"
    assert [(row["id"], row["city"], row["ok"]) for row in held(homes)] == [
        (1, "Oslo", True),
        (5, "Hamar", True),
        (7, None, False),
    ]
    assert held(homes)[1]["at"] == dt.datetime(2024, 1, 1, 5) and held(homes)[1]["cents"] == Decimal("3.00")
    short = load(target, "homes", put(tmp_path / "short.csv", "id,city\n20\n\n21\n"))
    assert (short.rows, short.applied, [error.line for error in short.errors]) == (2, 0, [2, 3])
    empty = load(target, "homes", [put(tmp_path / "e.csv", "id,city\n"), put(tmp_path / "e.jsonl", "\n{}\n")])
    assert (empty.rows, empty.applied, empty.error_count) == (1, 0, 1)
    # What was set aside can be corrected and loaded.
    fixed = (tmp_path / "bad.csv").read_text().replace('"x"', '"9"').replace("2023-02-29", "2023-02-28")
    again = load(target, "homes", put(tmp_path / "fixed.csv", fixed))
    assert again.applied == 2 and homes.get(2)["city"] == "two\nlines"  # pyright: ignore[reportOptionalSubscript]


def test_wrong_json_costs_its_row(target: Database, homes: Table, tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "city": "a\\"b", "price": 1}',
        '{"id": 2, "city": 5}',
        "not json",
        '{"id": 3, "price": {"float": "nan"}, "at": "2024-01-01T00:00:00"}',
        "",
        '{"id": 4, "day": "2024-13-01"}',
        '["id", 5]',
        "{}",
        '{"id": "6", "cents": 1.25, "ok": true}',
    ]
    made = load(target, "homes", put(tmp_path / "a.jsonl", "\n".join(lines)), rejects=tmp_path / "bad.jsonl")
    assert (made.rows, made.applied, made.error_count) == (8, 3, 5)
    assert [(error.line, error.row) for error in made.errors] == [(2, 1), (3, 2), (6, 4), (7, 5), (8, 6)]
    assert [row["id"] for row in held(homes)] == [1, 3, 6]
    first = json.loads((tmp_path / "bad.jsonl").read_text().splitlines()[0])
    assert (first["city"], first["_line"]) == (5, 2) and "'city'" in first["_error"]


def test_decimals_of_json_keep_their_digits_by_every_way(target: Database, tmp_path: Path) -> None:
    """By Arrow, and by Python: in an array, beside a wrong line, inside of others, and in a file of rejected rows."""
    kind = pa.decimal128(38, 2)
    fields = [("id", pa.int64()), ("d", kind), ("l", pa.list_(pa.struct([("d", kind)]))), ("f", pa.float64())]
    table = target.create_table("d", pa.schema(fields), ["id"])
    digits = "12345678901234567890.12"
    row = f'"d": {digits}, "l": [{{"d": -{digits}}}], "f": 0.1'
    load(target, "d", put(tmp_path / "a.jsonl", f'{{"id": 1, {row}}}\n'))
    load(target, "d", put(tmp_path / "b.json", f'[{{"id": 2, {row}}}]'))
    two = f'{{"id": 3, {row}}}\n{{"id": "x", {row}}}'
    load(target, "d", put(tmp_path / "c.jsonl", two), rejects=tmp_path / "bad.jsonl")
    bad = tmp_path / "bad.jsonl"
    load(target, "d", put(bad, bad.read_text().replace('"id": "x"', '"id": 4')))
    load(target, "d", put(tmp_path / "e.csv", f'id,d,l,f\n5,{digits},"[{{""d"": -{digits}}}]",0.1\n'))
    cell = Decimal(digits)
    assert held(table) == [{"id": n, "d": cell, "l": [{"d": -cell}], "f": 0.1} for n in (1, 2, 3, 4, 5)]


def test_unknown_nested_fields_are_refused_by_every_way(target: Database, tmp_path: Path) -> None:
    """A field that the column lacks would be lost; the rows beside it are taken."""
    inner = pa.struct([("a", pa.int64())])
    table = target.create_table("n", pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner))]), ["id"])
    lost = ['"s": {"a": 1, "b": "lost"}', '"l": [{"a": 1}, {"b": "lost"}]']
    for number, cell in enumerate(lost):
        lines = [f'{{"id": {number}, "s": {{"a": 2}}, "l": [{{"a": 3}}]}}', f'{{"id": 9, {cell}}}']
        for name, text in (("jsonl", "\n".join(lines) + "\n"), ("json", f"[{', '.join(lines)}]")):
            made = load(target, "n", put(tmp_path / f"{number}.{name}", text))
            assert (made.applied, made.error_count) == (1, 1) and "is not a valid" in made.errors[0].message
    assert held(table) == [{"id": number, "s": {"a": 2}, "l": [{"a": 3}]} for number in (0, 1)]


@pytest.mark.parametrize("bad", ["", "\n5", '\n{"id": "x"}', "\n\n"], ids=["good", "no object", "bad cell", "blank"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_nested_key_is_not_a_column(target: Database, tmp_path: Path, as_text: bool, bad: str) -> None:
    """The column is not in the file, so its cells stay; a file that has it as well writes it."""
    kind = pa.string() if as_text else pa.struct([("v", pa.int64())])
    table = target.create_table("n", pa.schema([("id", pa.int64()), ("s", kind), ("v", pa.int64())]), ["id"])
    table.insert({"id": [1, 2], "v": [7, 8]})
    text = '{"id": 1, "s": {"v": 5}}'
    shown = '{"v": 5}' if as_text else {"v": 5}
    options = ReadOptions(as_json=as_text)
    assert load(target, "n", put(tmp_path / "a.jsonl", text + bad), options=options).applied == 1
    assert held(table) == [{"id": 1, "s": shown, "v": 7}, {"id": 2, "s": None, "v": 8}]
    more = text.replace("5", "6") + '\n{"id": 2, "v": null}' + bad + "\n"
    assert load(target, "n", put(tmp_path / "b.jsonl", more), options=options).applied == 2
    assert [row["v"] for row in held(table)] == [None, None]


def test_columns_that_a_file_lacks_keep_their_cells(target: Database, homes: Table, tmp_path: Path) -> None:
    homes.insert({"id": [1, 2], "city": ["Oslo", "Voss"], "price": [1.0, 2.0]})
    load(target, "homes", put(tmp_path / "a.jsonl", '{"id": 1, "city": "price"}\n{"id": 2, "city": "\\"price\\": 1"}'))
    load(target, "homes", put(tmp_path / "b.json", '[{"id": 1, "ok": true}]'))
    load(target, "homes", put(tmp_path / "c.csv", "day,id\n2024-01-01,2\n"))
    assert [(row["price"], row["ok"], str(row["day"])) for row in held(homes)] == [
        (1.0, True, "None"),
        (2.0, None, "2024-01-01"),
    ]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
@pytest.mark.parametrize("bad", ["", '{"id": "x"}'], ids=["by Arrow", "by Python"])
@pytest.mark.parametrize("key", ["price", "pr\\u0069ce"])
def test_a_column_of_a_late_row_is_null_in_all_others(
    target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, bad: str, key: str
) -> None:
    """Also where a file is read in pieces, of which the first ones lack the column; one that no row has stays."""
    monkeypatch.setattr(json_file, "_BLOCK", 64)
    monkeypatch.setattr(json_file, "_ARRAY_ROWS", 3)
    fields = [("id", pa.int64()), ("price", pa.float64()), ("n", pa.struct([("ok", pa.bool_())])), ("ok", pa.bool_())]
    table = target.create_table("late", pa.schema(fields), ["id"])
    table.insert({"id": list(range(20)), "price": [1.0] * 20, "ok": [True] * 20})
    lines = [f'{{"id": {number}, "n": {{"ok": false}}}}' for number in range(19)]
    lines += [bad] if bad else []
    lines += [f'{{"id": 19, "{key}": 2}}']
    text = "\n".join(lines) + "\n" if suffix == "jsonl" else f"[{', '.join(lines)}]"
    result = load(target, "late", put(tmp_path / f"a.{suffix}", text))
    assert (result.applied, result.error_count) == (20, 1 if bad else 0)
    assert [row["price"] for row in held(table)] == [None] * 19 + [2.0]
    assert [row["ok"] for row in held(table)] == [True] * 20


@pytest.mark.parametrize("block", [64, 1000])
def test_places_are_right_across_blocks(
    target: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_file, "_BLOCK", block)
    monkeypatch.setattr(json_file, "_BLOCK", block)
    table = target.create_table("t", pa.schema({"id": pa.int64(), "note": pa.string()}), ["id"])
    table.insert({"id": [10, 20, 30]})
    chance = random.Random(block)
    text, line, wrong, refused, good = "id,note\n", 2, [], [], 3
    for number in range(300):
        kind = chance.choice(["good"] * 6 + ["newline", "word", "short", "long"])
        note = '"a\nb"' if kind == "newline" else "x" * chance.randrange(20)
        first = f"word{number}" if kind == "word" else str(number)
        row = {"short": first, "long": f"{first},{note},1"}.get(kind, f"{first},{note}")
        if kind in ("word", "short", "long"):
            wrong.append(line)
        elif number in (10, 20, 30):
            refused.append((number, line))
        else:
            good += 1
        text += row + "\n"
        line += 1 + row.count("\n")
    made = load(target, "t", put(tmp_path / "a.csv", text), op="insert")
    assert [error.line for error in made.errors if error.code == "INVALID_ARGUMENT"] == wrong
    assert [(error.row, error.line) for error in made.errors if error.code == "ALREADY_PRESENT"] == refused
    assert table.scan().count() == good

    other = target.create_table("u", pa.schema({"id": pa.int64(), "note": pa.string()}), ["id"])
    values = [{"id": number if number % 7 else "no", "note": "\\" * (number % 3)} for number in range(300)]
    put(tmp_path / "a.json", json.dumps(values, indent=2))
    made = load(target, "u", tmp_path / "a.json")
    assert [error.row for error in made.errors] == list(range(0, 300, 7)) and other.scan().count() == made.applied


def test_how_text_is_read(target: Database, homes: Table, tmp_path: Path) -> None:
    text = "made by\nsomebody\nNr;Ort\n1;K\u00f8benhavn\n2;-\n3;'a;b'\n"
    path = tmp_path / "rows.txt"
    path.write_bytes(text.encode("latin-1"))
    options = ReadOptions(
        format="csv",
        delimiter=";",
        quote="'",
        columns=("id", "city"),
        skip_lines=2,
        null_words=("-",),
        charset="latin-1",
    )
    assert load(target, "homes", path, options=options).applied == 3
    assert [row["city"] for row in held(homes)] == ["K\u00f8benhavn", None, "a;b"]
    bare = ReadOptions(header=False, columns=("city", "id"))
    made = load(target, "homes", put(tmp_path / "b.csv", "Oslo,1\nVoss,x\n"), options=bare)
    assert (made.applied, made.errors[0].line) == (1, 2) and held(homes)[0]["city"] == "Oslo"


def test_atomic_loads_apply_nothing_when_a_row_cannot_be_read(target: Database, homes: Table, tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "id\n1\n2\n")
    put(tmp_path / "b.csv", "id\n3\nx\n")
    made = load(target, "homes", tmp_path, atomic=True)
    assert (made.rows, made.applied, made.error_count, made.errors[0].line) == (4, 0, 1, 3)
    assert held(homes) == []
    put(tmp_path / "b.csv", "id\n3\n44\n")
    assert load(target, "homes", tmp_path, atomic=True).applied == 4


def test_rows_that_the_table_refuses_are_set_aside(target: Database, homes: Table, tmp_path: Path) -> None:
    homes.insert({"id": [2]})
    path = put(tmp_path / "a.csv", 'id,city\n1,a\n2,""\n3,c\n')
    made = load(target, "homes", path, op="insert", rejects=tmp_path / "bad.csv")
    assert (made.applied, made.error_count, made.rejected) == (2, 1, 1)
    assert (tmp_path / "bad.csv").read_text().splitlines()[1].startswith('"2","",')
    with pytest.raises(InvalidArgumentError, match=r"must end in \.csv or \.jsonl"):
        load(target, "homes", path, rejects=tmp_path / "bad.txt")
    with pytest.raises(InvalidArgumentError, match="leave out the executor"):
        load(target, "homes", path, rejects=tmp_path / "bad.csv", executor="spark")


BROKEN = {
    "an unknown column": ("a.csv", "id,town\n1,x\n", "no column 'town'"),
    "an unknown key in JSON": (
        "a.jsonl",
        '{"id": 1}\n{"id": 2, "town": "x"}\n',
        "line 2: the table has no column 'town'",
    ),
    "two columns of one name": ("a.csv", "id,id\n1,2\n", "columns must have different names; repeated: 'id'"),
    "nothing": ("a.csv", "", "cannot be read"),
    "an array that does not end": ("a.json", '[{"id": 1}, {"id":', "array is malformed"),
    "an array without commas": ("a.json", '[{"id": 1} {"id": 2}]', "array is malformed"),
    "no gzip": ("a.csv.gz", "id\n1\n", "cannot be read"),
    "packed Parquet": ("a.parquet.gz", "", "cannot be compressed as a whole"),
    "an unknown suffix": ("a.xls", "", "unknown suffix"),
    "no UTF-8": ("a.csv", "id,city\n1,\udcff\n", "cannot be read"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_cannot_be_read(target: Database, homes: Table, tmp_path: Path, case: str) -> None:
    name, text, why = BROKEN[case]
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidArgumentError, match=why):
        load(target, "homes", tmp_path / name)
    with pytest.raises(InvalidArgumentError, match="unknown format"):
        load(target, "homes", tmp_path / name, options=ReadOptions(format="xml"))

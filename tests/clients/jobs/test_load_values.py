"""Values in files that do not fit their column: refused with their row, by every way in which a file is read."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.jobs import LoadResult, load

Case = tuple[pa.DataType, str]
TOO_LARGE: dict[str, Case] = {
    "a float": (pa.float32(), "1e39"),
    "a negative float": (pa.float32(), "-3.5e38"),
    "a half": (pa.float16(), "65520"),
    "a double": (pa.float64(), "1e400"),
    "floats in a list": (pa.list_(pa.float32()), "[1, 1e39]"),
    "doubles in a struct": (pa.struct([("f", pa.float64())]), '{"f": -1e400}'),
    "floats in a map": (pa.map_(pa.string(), pa.float32()), '{"f": 1e39}'),
}


def files(folder: Path, cell: str, neighbour: str) -> list[Path]:
    """The same row as CSV, in lines, and in an array, beside another one."""
    text = cell if cell.startswith(("[", "{", '"')) else f'"{cell}"'
    line = f'{{"id": 1, "c": {cell}}}'
    quoted = json.loads(cell) if cell.startswith('"') else cell
    written = {
        "a.csv": 'id,c\n1,"{}"\n'.format(quoted.replace('"', '""')) + (f"{neighbour},\n" if neighbour else ""),
        "b.jsonl": line + "\n" + (f'{{"id": "{neighbour}"}}\n' if neighbour else ""),
        "c.json": f"[{line}" + (f', {{"id": "{neighbour}"}}' if neighbour else "") + "]",
        "d.jsonl": f'{{"id": 1, "c": {text}}}\n',
    }
    for name, content in written.items():
        (folder / name).write_text(content)
    return [folder / name for name in written if not (name == "d.jsonl" and cell.startswith(("[", "{")))]


def load_cells(target: Database, folder: Path, kind: pa.DataType, cell: str, neighbour: str = "") -> list[Any]:
    """What each file of one row makes of its cell; None if the row is refused."""
    cells: list[Any] = []
    for number, path in enumerate(files(folder, cell, neighbour)):
        table = target.create_table(f"t{number}", pa.schema([("id", pa.int64()), ("c", kind)]), ["id"])
        result: LoadResult = load(target, f"t{number}", path)
        assert result.applied + result.error_count == result.rows
        cells += table.scan(where="id = 1").to_arrow()["c"].to_pylist() or [None]
    return cells


@pytest.mark.parametrize("neighbour", ["", "x"], ids=["alone", "beside a wrong row"])
@pytest.mark.parametrize("case", TOO_LARGE)
def test_numbers_that_are_too_large_are_refused(target: Database, tmp_path: Path, case: str, neighbour: str) -> None:
    cells = load_cells(target, tmp_path, *TOO_LARGE[case], neighbour)
    assert cells == [None] * len(cells)


@pytest.mark.parametrize("word", ["inf", "-Infinity", "INF"])
def test_infinities_in_csv_are_such(target: Database, tmp_path: Path, word: str) -> None:
    table = target.create_table("t", pa.schema([("id", pa.int64()), ("f", pa.float32()), ("d", pa.float64())]), ["id"])
    (tmp_path / "a.csv").write_text(f"id,f,d\n1,{word},{word}\n2,1.5,1.5\n3,1e39,1\n")
    assert load(target, "t", tmp_path / "a.csv").applied == 2
    rows = table.scan(ordered=True).to_arrow().to_pylist()
    assert [(row["f"], row["d"]) for row in rows] == [(float(word), float(word)), (1.5, 1.5)]


@pytest.mark.parametrize("text", ["0x10", "0XfF", "-0x1", "1_000"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.int16()], ids=str)
def test_integers_are_decimal(target: Database, tmp_path: Path, kind: pa.DataType, text: str) -> None:
    cells = load_cells(target, tmp_path, kind, f'"{text}"')
    assert cells == [None] * len(cells)


@pytest.mark.parametrize("neighbour", ["", "x"], ids=["alone", "beside a wrong row"])
@pytest.mark.parametrize("digits", ["1234567", "123456789", "000000001", "1234561"])
@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
def test_fractions_of_a_microsecond_are_refused(
    target: Database, tmp_path: Path, digits: str, zone: str, neighbour: str
) -> None:
    cells = load_cells(target, tmp_path, pa.timestamp("us"), f'"2020-01-01T00:00:00.{digits}{zone}"', neighbour)
    assert cells == [None] * len(cells)


@pytest.mark.parametrize("digits", ["1234560", "123456000"])
def test_digits_that_say_nothing_are_taken(target: Database, tmp_path: Path, digits: str) -> None:
    moment = dt.datetime(2020, 1, 1, 0, 0, 0, 123_456)
    assert set(load_cells(target, tmp_path, pa.timestamp("us"), f'"2020-01-01 00:00:00.{digits}"')) == {moment}


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.time32("s")], ids=str)
def test_a_number_is_no_time(target: Database, tmp_path: Path, kind: pa.DataType) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "c": 5}\n')
    (tmp_path / "b.jsonl").write_text('{"id": 2, "c": "10:00:01"}\n{"id": 3, "c": null}\n')
    table = target.create_table("t", pa.schema([("id", pa.int64()), ("c", kind)]), ["id"])
    result = load(target, "t", tmp_path)
    assert (result.applied, [error.row for error in result.errors]) == (2, [0])
    assert table.scan(ordered=True).to_arrow()["c"].to_pylist() == [dt.time(10, 0, 1), None]

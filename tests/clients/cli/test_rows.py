"""Rows on their way out: all of them into a pipe or file, the first on a terminal, and quickly."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import pty
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.cli.rows import PIECE_ROWS, json_lines, tab_lines
from nyala.clients.convert.cells import python_rows
from nyala.schemas.cells.literal import to_json
from tests.clients.cli.command import Run
from tests.dose import by_night

ROWS = 40_000
WORDS = ["K\u00f8benhavn", "a\tb\nc\\d", 'say "no"', "\x00\x1f\x7f\u2028", "", None, "NULL", "\U0001f98c"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that name a store with a table of many rows."""
    path = tmp_path_factory.mktemp("many") / "store"
    with nyala.open(path) as db:
        table = db.create_table("t", pa.schema({"id": pa.int64(), "word": pa.string()}), ["id"])
        table.insert({"id": list(range(ROWS)), "word": [WORDS[number % len(WORDS)] for number in range(ROWS)]})
    return ["--data", str(path)]


def test_files_say_that_moments_are_in_utc(run: Run, tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        table = db.create_table("t", pa.schema({"id": pa.int64(), "at": pa.timestamp("us")}), ["id"])
        table.insert({"id": [1], "at": [dt.datetime(2026, 3, 8, 2, 30)]})
    for name in ("t.parquet", "t.arrow"):
        assert run("scan", "t", "--output", tmp_path / name, "--data", tmp_path / "store").code == 0
    for file in (pq.read_table(tmp_path / "t.parquet"), pa.ipc.open_file(tmp_path / "t.arrow").read_all()):
        assert file["at"].to_pylist() == [dt.datetime(2026, 3, 8, 2, 30, tzinfo=dt.UTC)]


def test_a_pipe_gets_every_row(run: Run, many: list[str]) -> None:
    lines = run("table", "scan", "t", *many).out.split("\n")
    assert lines[0] == "id\tword" and len(lines) == ROWS + 2 and lines[-1] == ""
    assert run("scan", "t", "--limit", 7, *many).out.count("\n") == 8


def test_json_lines_are_whole_and_plain(run: Run, many: list[str]) -> None:
    done = run("table", "scan", "t", "--json", *many)
    rows = [json.loads(line) for line in done.out.split("\n")[:-1]]
    assert len(rows) == ROWS and {row["id"]: row["word"] for row in rows}.keys() == set(range(ROWS))
    assert all(row["word"] == WORDS[row["id"] % len(WORDS)] for row in rows[:1000])
    assert "K\u00f8benhavn" in done.out and "\\u00f8" not in done.out


def test_csv_has_every_row(run: Run, many: list[str]) -> None:
    rows = list(csv.reader(io.StringIO(run("table", "scan", "t", "--csv", *many).out, newline="")))
    assert rows[0] == ["id", "word"] and len(rows) == ROWS + 1
    assert [word for _, word in rows[1:9]] == [word or "" for word in WORDS]
    both = run("table", "scan", "t", "--csv", "--json", *many)
    assert both.code == 3 and "one of --json, --csv and --output" in both.err


def test_a_terminal_shows_the_first_rows_and_says_so(many: list[str]) -> None:
    def shown(*more: str) -> str:
        """Run the command with a terminal as its output."""
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "nyala", "table", "scan", "t", "--columns", "id", *more, *many]
        with subprocess.Popen(command, stdout=theirs, env={**os.environ, "COLUMNS": "150"}) as process:
            os.close(theirs)
            parts = []
            while part := _read(ours):
                parts.append(part)
        assert process.returncode == 0
        return b"".join(parts).decode()

    first = shown()
    assert "the first 100 rows; --limit shows more" in first and first.count("\u2502") == 2 * 100
    limited = shown("--limit", "150")
    assert "the first" not in limited and limited.count("\u2502") == 2 * 150


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize("form", by_night([[], ["--json"], ["--csv"]], [[]]))
def test_a_reader_that_has_enough_is_no_error(many: list[str], form: list[str]) -> None:
    command = [sys.executable, "-m", "nyala", "table", "scan", "t", *form, *many]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_text_of_every_type_is_that_of_its_cells() -> None:
    columns: dict[str, pa.Array] = {
        "text": pa.array(WORDS),
        "whole": pa.array([0, -1, 127, None, 1, 2, 3, 4], pa.int8()),
        "double": pa.array([0.1, -0.0, 1e300, float("nan"), float("inf"), float("-inf"), None, 5.0]),
        "yes": pa.array([True, False, None, True, True, True, True, True]),
        "day": pa.array([0, -1, 2**31 - 1, -(2**31), None, 1, 2, 3], pa.int32()).cast(pa.date32()),
        "at": pa.array([0, 1, 2**62, -(2**62), None, 1_500_000, 10, -1], pa.timestamp("us")),
        "cents": pa.array([Decimal("0.00"), Decimal("-1.10"), None, *[Decimal(12)] * 5], pa.decimal128(10, 2)),
        "raw": pa.array([b"", b"\x00\xff", None, *[b"x"] * 5]),
        "nothing": pa.nulls(8),
    }
    batch = pa.record_batch(columns)
    expected = [{name: to_json(cell) for name, cell in row.items()} for row in python_rows(batch)]
    assert [json.loads(line) for line in b"".join(json_lines([batch])).splitlines()] == expected
    lines = b"".join(tab_lines([batch])).decode().split("\n")
    assert (
        len(lines) == 9
        and lines[1].split("\t")[0] == "a\\tb\\nc\\\\d"
        and all(len(line.split("\t")) == 9 for line in lines[:8])
    )


def test_rows_are_made_into_text_in_bounded_pieces() -> None:
    batch = pa.record_batch({"id": pa.array(range(3 * PIECE_ROWS + 1))})
    pieces = list(json_lines([batch.slice(0, 0), batch, pa.record_batch({"id": pa.array([7])})]))
    assert [piece.count(b"\n") for piece in pieces] == [PIECE_ROWS, PIECE_ROWS, PIECE_ROWS, 1, 1]
    assert list(json_lines([pa.RecordBatch.from_struct_array(pa.array([{}, {}]))])) == [b"{}\n{}\n"]

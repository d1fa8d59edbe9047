"""nyala sql: statements of the command line, of files and pipes, their rows in all formats, and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.cli.sql.script import is_whole, script_parts
from tests.clients.cli.command import Done, Run

HOMES = {"id": [1, 2, 3], "city": ["Oslo", None, "Hamar"], "price": [1.5, 2.5, None]}


@pytest.fixture
def homes(target: list[str]) -> list[str]:
    """The table ``homes`` with three rows; the options that name its database."""
    option, where = target
    with nyala.connect(where) if option == "--url" else nyala.open(where, create=True) as db:
        db.create_table("homes", primary_key="id", data=HOMES)
        db.create_table("Odd name", primary_key="id", data={"id": [7]})
    return target


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a store with the table ``homes``, which tests only read."""
    folder = tmp_path_factory.mktemp("store")
    with nyala.open(folder) as db:
        db.create_table("homes", primary_key="id", data=HOMES)
    return str(folder)


@pytest.fixture
def piped(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``nyala sql`` with a text on standard input."""

    def command(text: str, *arguments: object) -> Done:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return run("sql", *arguments)

    return command


def test_a_command(run: Run, homes: list[str]) -> None:
    shown = run("sql", *homes, "-c", "SELECT id, city, price FROM homes ORDER BY id")
    assert shown.code == 0 and shown.err == ""
    assert shown.lines == ["id\tcity\tprice", "1\tOslo\t1.5", "2\tNULL\t2.5", "3\tHamar\tNULL"]
    several = run("sql", *homes, "-c", "SELECT 1 AS a; SELECT ';' AS b", "--command", "SELECT 3 AS c -- ;\n;")
    assert several.code == 0 and several.lines == ["a", "1", "b", ";", "c", "3"]


def test_the_store_is_an_argument(run: Run, url: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with nyala.connect(url) as db:
        db.create_table("homes", primary_key="id", data={"id": [1]})
    count = ["-c", "SELECT count(*) AS n FROM homes"]
    assert run("sql", url, *count).lines == ["n", "1"]
    assert run("sql", url.removeprefix("grpc://"), *count).lines == ["n", "1"]
    assert run("sql", store, *count).lines == ["n", "3"]
    monkeypatch.setenv("NYALA_URL", url)
    assert run("sql", *count).lines == ["n", "1"]
    assert run("sql", store, *count).lines == ["n", "3"]


def test_formats_of_standard_output(run: Run, homes: list[str]) -> None:
    text = "SELECT id, city FROM homes ORDER BY id"
    rows = run("sql", *homes, "--format", "json", "-c", text).lines
    assert [json.loads(row) for row in rows] == [
        {"id": 1, "city": "Oslo"},
        {"id": 2, "city": None},
        {"id": 3, "city": "Hamar"},
    ]
    shown = run("sql", *homes, "--format", "csv", "-c", text).out
    assert list(csv.reader(io.StringIO(shown))) == [["id", "city"], ["1", "Oslo"], ["2", ""], ["3", "Hamar"]]


def test_formats_of_files(run: Run, store: str, tmp_path: Path) -> None:
    text = "SELECT * FROM homes ORDER BY id"
    for name, form in (("a.parquet", None), ("b", "parquet")):
        chosen = ["--format", form] if form else []
        written = run("sql", store, "-o", tmp_path / name, *chosen, "-c", text)
        assert written.code == 0 and written.out == f"wrote 3 rows to {tmp_path / name}\n"
        assert pq.read_table(tmp_path / name)["city"].to_pylist() == HOMES["city"]
    assert run("sql", store, "--output", tmp_path / "c.arrow", "-c", text).code == 0
    with pa.ipc.open_file(tmp_path / "c.arrow") as reader:
        assert reader.read_all()["price"].to_pylist() == HOMES["price"]
    assert run("sql", store, "-o", tmp_path / "d.jsonl", "-c", f"{text}; SELECT 4 AS id").code == 0
    assert [json.loads(row)["id"] for row in (tmp_path / "d.jsonl").read_text().splitlines()] == [1, 2, 3, 4]
    assert run("sql", store, "-o", tmp_path / "e.txt", "-c", "SELECT 1 AS a").code == 0
    assert (tmp_path / "e.txt").read_text() == "a\n1\n"


def test_a_file_of_one_result_takes_no_other(run: Run, store: str, tmp_path: Path) -> None:
    second = run("sql", store, "-o", tmp_path / "a.parquet", "-c", "SELECT 1 AS a; SELECT 2 AS b")
    assert second.code == 1 and "a.parquet already has the rows of one statement" in second.err
    assert pq.read_table(tmp_path / "a.parquet").to_pydict() == {"a": [1]}


def test_a_failed_statement_leaves_no_file(run: Run, store: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("kept")
    assert run("sql", store, "-o", tmp_path / "a.csv", "-c", "SELECT 1/0 FROM homes").code == 1
    assert (tmp_path / "a.csv").read_text() == "kept"


def test_cells_that_no_table_has(run: Run, store: str) -> None:
    text = (
        "SELECT interval '1 year 2 months 3 days -90 minutes' AS i, make_array('a', NULL) AS l, NULL AS n,"
        " timestamp '2020-01-02 03:04:05.5' - timestamp '2020-01-01 00:00:00' AS d,"
        " to_timestamp('2020-01-02 03:04:05') AS t, interval '0 days' AS z"
    )
    (row,) = map(json.loads, run("sql", store, "--format", "json", "-c", text).lines)
    assert row["i"] == "1 year 2 mons 3 days -01:30:00" and row["z"] == "00:00:00"
    assert row["l"] == ["a", None] and row["n"] is None
    assert row["d"] == "1 day 03:04:05.5" and row["t"] == "2020-01-02T03:04:05"
    for form, mark in (("table", "\t"), ("csv", ",")):
        shown = run("sql", store, "--format", form, "-c", text)
        titles, cells = csv.reader(io.StringIO(shown.out.replace('["a", null]', "-")), delimiter=mark)
        assert titles == ["i", "l", "n", "d", "t", "z"] and cells[0] == "1 year 2 mons 3 days -01:30:00"
        assert shown.code == 0 and cells[3] == "1 day 03:04:05.5"


def test_a_pipe_is_a_script(piped: Run, homes: list[str]) -> None:
    text = "SELECT 1 AS a; -- the first; one\n\\dt\n\n/* ; */ SELECT 'x\n;' AS b;\n\\d homes\nSELECT 3 AS c"
    shown = piped(text, *homes)
    assert shown.code == 0 and shown.err == ""
    assert shown.lines[:7] == ["a", "1", "table", "Odd name", "homes", "b", "x\\n;"]
    assert shown.lines[8].startswith("id\tint64\tkey") and shown.lines[-2:] == ["c", "3"]
    assert "primary key (id)" in shown.lines and "3 rows" in shown.lines


def test_an_error_stops_a_script_and_names_its_line(run: Run, piped: Run, store: str, tmp_path: Path) -> None:
    script = tmp_path / "report.sql"
    script.write_text("SELECT 1 AS a;\n\n-- next\nSELECT nothing\nFROM homes;\nSELECT 2 AS b;\n")
    failed = run("sql", store, "-f", script)
    assert failed.code == 1 and failed.lines == ["a", "1"]
    assert failed.err == "INVALID_ARGUMENT: report.sql, line 4: there is no column 'nothing'\n"
    failed = piped("\nSELECT 1 AS a;   SELECT (1,\n2 FROM", store, "--file", "-")
    assert failed.code == 1 and failed.lines == ["a", "1"]
    assert failed.err.startswith("INVALID_ARGUMENT: standard input, line 2: ") and "at line 3," in failed.err
    failed = run("sql", store, "-c", "SELECT 1 AS a;\nSELECT * FROM home")
    assert failed.err == "NOT_FOUND: line 2: there is no table 'home', perhaps 'homes'\n"
    assert run("sql", store, "-c", "SELECT 1/0", "-c", "SELECT 2").lines == []


def test_errors_are_one_line_without_traces(run: Run, store: str) -> None:
    for text in ("SELECT", "SELEC 1", "SELECT nope(1)", "SELECT 'a", "SELECT 1/0", "SELECT cast('x' AS int)", ")"):
        failed = run("sql", store, "-c", text)
        assert failed.code == 1 and failed.out == "" and failed.err.count("\n") == 1, text
        assert failed.err.startswith("INVALID_ARGUMENT: ") and "rror(" not in failed.err and "panic" not in failed.err


def test_moments_and_timeouts(run: Run, store: str, tmp_path: Path) -> None:
    with nyala.open(tmp_path / "st") as db:
        table = db.create_table("homes", primary_key="id", data={"id": list(range(100_000))})
        before = db.now()
        table.delete({"id": [1]})
    count = ["-c", "SELECT count(*) AS n FROM homes"]
    assert run("sql", tmp_path / "st", *count).lines == ["n", "99999"]
    assert run("sql", tmp_path / "st", "--as-of", before, *count).lines == ["n", "100000"]
    slow = "SELECT count(*) FROM homes a, homes b WHERE a.id % 7 + b.id % 11 = 3"
    late = run("sql", tmp_path / "st", "--timeout", 0.3, "-c", slow)
    assert late.code == 1 and late.err == "UNAVAILABLE: the statement takes longer than its timeout of 0.3 s\n"


def test_backslash_commands(piped: Run, store: str, tmp_path: Path) -> None:
    (tmp_path / "inner.sql").write_text("SELECT 5 AS five;\n")
    (tmp_path / "again.sql").write_text(f"\\i {tmp_path / 'again.sql'}\n")
    script = [
        "\\timing on",
        f"\\i {tmp_path / 'inner.sql'}",
        "\\timing",
        "\\format json",
        "SELECT 1 AS a;",
        f"\\o {tmp_path / 'rows.csv'}",
        "\\format",
        "SELECT 2 AS b",
        "\\o",
        "SELECT 3 AS c;",
        "\\q",
        "SELECT 4 AS d;",
    ]
    shown = piped("\n".join(script), store)
    assert shown.code == 0 and shown.lines == [
        "timing is on",
        "five",
        "5",
        "timing is off",
        "format is json",
        '{"a": 1}',
        "format is csv",
        f"wrote 1 row to {tmp_path / 'rows.csv'}",
        '{"c": 3}',
    ]
    assert (tmp_path / "rows.csv").read_text() == '"b"\n2\n'
    assert "\\timing [on|off]" in piped("\\?", store).out


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("\\tming", "there is no command \\tming, perhaps \\timing; \\? shows all commands"),
        ("\\d hoems", "there is no table 'hoems', perhaps 'homes'"),
        ("\\dt homes", "\\dt takes no argument: remove 'homes'"),
        ("\\i", "\\i needs an argument: \\i FILE"),
        ("\\i none.sql", "none.sql"),
        ("\\timing maybe", "\\timing is on or off, not 'maybe'"),
        ("\\format xml", "there is no format 'xml'; known: table, csv, json, parquet, arrow"),
        ("\\format arrow", "arrow is only for files: name a file with --output FILE or \\o FILE"),
        ("\\o .", ". is a directory"),
    ],
)
def test_wrong_backslash_commands(piped: Run, store: str, line: str, error: str) -> None:
    failed = piped(f"{line}\nSELECT 1", store)
    assert failed.code == 1 and error in failed.err and "standard input, line 1" in failed.err
    assert failed.out == "" and failed.err.count("\n") == 1


def test_files_that_run_themselves_end(run: Run, store: str, tmp_path: Path) -> None:
    script = tmp_path / "again.sql"
    script.write_text(f"\\i {script}\n")
    failed = run("sql", store, "-f", script)
    assert failed.code == 1 and "does" in failed.err and "run itself?" in failed.err


def test_wrong_command_lines(run: Run, store: str, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("SELECT 1")
    one = ["-c", "SELECT 1"]
    for arguments in (
        [store, *one, "-f", script],
        [store, "-f", tmp_path / "none.sql"],
        [store, "--data", store, *one],
        [store, "--url", "grpc://127.0.0.1:1", *one],
        [store, "--format", "arrow", *one],
        [store, "--format", "csv", "-o", tmp_path / "a.arrow", *one],
        [store, "--format", "xml", *one],
        [store, "--as-of", "whenever", *one],
        [store, "--name", "a", *one],
        ["SELECT 1", *one],
    ):
        wrong = run("sql", *arguments)
        assert wrong.code == 2 and "Usage: nyala sql" in wrong.err, arguments


def test_no_server_and_no_store(run: Run, tmp_path: Path) -> None:
    missing = run("sql", "127.0.0.1:1", "-c", "SELECT 1")
    assert missing.code == 3 and missing.err.startswith("UNAVAILABLE: the server cannot be reached")
    missing = run("sql", tmp_path / "none", "-c", "SELECT 1")
    assert missing.code == 3 and missing.err.startswith("NOT_FOUND: there is no directory")


def test_a_missing_library_names_its_extra(run: Run, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.clients.cli.sql.command.find_spec", lambda name: name != "sqlglot" or None)
    missing = run("sql", store, "-c", "SELECT 1")
    assert missing.code == 9 and "sqlglot is missing; install it with: pip install 'nyala[sql]'" in missing.err


def test_a_change_says_how_many_rows(run: Run, homes: list[str]) -> None:
    """Apart from the rows that programs read."""
    text = (
        "UPDATE homes SET price = 1 WHERE id < 3; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"
        "CREATE TABLE u (PRIMARY KEY (id)) AS SELECT id FROM homes; ALTER TABLE u ADD COLUMN n int; DROP TABLE t"
    )
    remarks = [
        "UPDATE, 2 rows",
        "CREATE TABLE",
        "INSERT, 1 row",
        "CREATE TABLE AS, 3 rows",
        "ALTER TABLE",
        "DROP TABLE",
    ]
    assert run("sql", *homes, "-c", text).lines == remarks
    changed = run("sql", *homes, "--format", "json", "-c", "DELETE FROM u WHERE id > 1; SELECT id FROM u")
    assert changed.out == '{"id": 1}\n' and changed.err == "DELETE, 2 rows\n"


def test_transactions(run: Run, piped: Run, homes: list[str]) -> None:
    """One session for all statements of a run."""
    count = "SELECT count(*) AS n FROM homes"
    done = run("sql", *homes, "-c", "BEGIN", "-c", "DELETE FROM homes WHERE id = 1", "-c", "COMMIT", "-c", count)
    assert done.code == 0 and done.lines == ["BEGIN", "DELETE, 1 row", "COMMIT", "n", "2"]
    done = piped(f"BEGIN;\nDELETE FROM homes WHERE id = 2;\nROLLBACK;\n{count};", *homes)
    assert done.lines == ["BEGIN", "DELETE, 1 row", "ROLLBACK", "n", "2"]
    left = piped("BEGIN;\nDELETE FROM homes WHERE id = 2;", *homes)
    assert left.code == 0
    assert left.err == "the open transaction was rolled back: end it with COMMIT to keep its changes\n"
    failed = piped("BEGIN;\nDELETE FROM homes WHERE id = 2;\nDELETE FROM home;\nCOMMIT;", *homes)
    assert failed.code == 1 and "line 3: there is no table 'home'" in failed.err
    assert run("sql", *homes, "-c", count).lines == ["n", "2"]


def test_a_process_and_a_closed_pipe(store: str) -> None:
    command = [sys.executable, "-m", "nyala", "sql", store]
    done = subprocess.run(
        command, input="SELECT city FROM homes WHERE id = 1;\nSELECT x;", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and done.stdout == "city\nOslo\n"
    assert done.stderr == "INVALID_ARGUMENT: standard input, line 2: there is no column 'x'\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (";; -- x\n ;", []),
        ("a; b", [("a", 1, 1), ("b", 1, 4)]),
        ("-- a;\n  select ';' ; /* ; */\n\nb\n", [("select ';'", 2, 3), ("b", 4, 1)]),
        ("select $$;$$; x", [("select $$;$$", 1, 1), ("x", 1, 15)]),
        ("explain select ';'; x", [("explain select ';'", 1, 1), ("x", 1, 21)]),
        ("a\n \\d t\nb;\\d", [("a", 1, 1), ("\\d t", 2, 1), ("b", 3, 1), ("\\d", 3, 3)]),
        ("select '\n\\d\n';\n\\q", [("select '\n\\d\n'", 1, 1), ("\\q", 4, 1)]),
        ("select '\u00e9;'; x", [("select '\u00e9;'", 1, 1), ("x", 1, 14)]),
    ],
)
def test_parts_of_scripts(text: str, parts: list[tuple[str, int, int]]) -> None:
    assert [(part.text, part.line, part.column) for part in script_parts(text)] == parts


def test_an_open_quote_is_near_its_line(run: Run, store: str) -> None:
    failed = run("sql", store, "-c", "SELECT 1 AS a;\n" * 1000 + "SELECT 'a;\n" + "SELECT 2;\n" * 1000)
    assert failed.code == 1 and failed.err.endswith("a quote or a comment is not closed, at or after line 1001\n")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- end", True),
        ("SELECT ';", False),
        ("SELECT 1; SELECT", False),
        ("\\d", True),
        ("SELECT '\n\\d", False),
        ("SELECT 1\n\\d", True),
        ("/* ;", False),
    ],
)
def test_what_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_a_pipe_that_closes_is_no_error(store: str) -> None:
    text = "SELECT a.id FROM homes a, homes b, homes c, homes d, homes e, homes f, homes g, homes h, homes i, homes j"
    line = f"{sys.executable} -m nyala sql {store} -c '{text}' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.stdout.split() == ["id", "0"] and done.stderr == ""

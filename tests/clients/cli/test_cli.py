"""The command line: every command, over a directory and over a server; errors are one line and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.cli.run import EXIT_CODES
from tests.clients.cli.command import Run

CITIES = pa.table({"id": [1, 2, 3], "city": ["Oslo", None, "Hamar"], "price": [1.5, 2.5, None]})


@pytest.fixture
def homes(run: Run, target: list[str], tmp_path: Path) -> list[str]:
    """The table ``homes`` with three rows; the options that name its database."""
    columns = ["--column", "id:int64", "--column", "city:string", "--column", "price:double"]
    assert run("table", "create", "homes", "--key", "id", *columns, *target).code == 0
    pq.write_table(CITIES, tmp_path / "cities.parquet")
    loaded = run("table", "load", "homes", tmp_path / "cities.parquet", *target)
    assert loaded.code == 0 and "3 applied, 0 ignored, 0 rejected" in loaded.out
    return target


def test_table_life(run: Run, homes: list[str]) -> None:
    assert run("table", "list", *homes).lines == ["homes"]
    assert run("table", "list", "--json", *homes).json == ["homes"]
    about = run("table", "describe", "homes", *homes)
    assert about.lines[1].split("\t")[:3] == ["id", "int64", "key, not null"]
    assert run("table", "describe", "homes", "--json", *homes).json["primary_key"] == ["id"]
    assert run("table", "stats", "homes", *homes).lines[0].startswith("3 rows, ")
    assert run("table", "stats", "homes", "--json", *homes).json["live_rows"] == 3
    kept = run("table", "drop", "homes", *homes)
    assert kept.code == 3 and "--yes" in kept.err
    assert run("table", "drop", "homes", "--yes", *homes).code == 0
    assert run("table", "list", *homes).out == ""


def test_alter(run: Run, homes: list[str]) -> None:
    assert run("table", "alter", "homes", *homes).code == 3
    wrong = run("table", "alter", "homes", "--drop", "city", "--rename", "price", *homes)
    assert wrong.code == 3 and "old=new" in wrong.err
    steps = ["--drop", "city", "--rename", "price=cost", "--add", "price:decimal(10,2)", "--add", "city:int8"]
    done = run("table", "alter", "homes", *steps, "--if-version", "1", *homes)
    assert done.code == 0 and "schema version 2, 4 columns" in done.out
    again = run("table", "alter", "homes", "--drop", "cost", "--if-version", "1", *homes)
    assert again.code == 6 and "schema version 2" in again.err
    about = run("table", "alter", "homes", "--drop", "city", "--json", *homes).json
    assert [column["name"] for column in about["columns"]] == ["id", "cost", "price"]
    assert json.loads(run("table", "scan", "homes", "--json", *homes).lines[0]) == {"id": 1, "cost": 1.5, "price": None}


def test_describe_shows_the_ranges_and_the_version(run: Run, target: list[str]) -> None:
    """In the form that --add-range and --drop-range take."""
    ranges = ["--range", "id", "--bound", "..2", "--bound", "2..5", "--bound", "7.."]
    assert run("create", "t", "--schema", "id int64 primary key, x int8", "--hash", "id:2", *ranges, *target).code == 0
    shown = run("describe", "t", *target).lines
    assert "partitioned by hash(id) in 2, range(id) in 3: ..2 2..5 7.." in shown and "schema version 1" in shown
    assert run("alter", "t", "--drop-range", "2..5", "--add-range", "2..4", *target).code == 0
    shown = run("describe", "t", *target).lines
    assert "partitioned by hash(id) in 2, range(id) in 3: ..2 2..4 7.." in shown and "schema version 2" in shown
    splits = [word for number in range(20) for word in ("--split", number)]
    assert run("create", "u", "--schema", "id int64 primary key", "--range", "id", *splits, *target).code == 0
    (shown,) = (line for line in run("describe", "u", *target).lines if line.startswith("partitioned"))
    assert "in 21: ..0 0..1 " in shown and shown.endswith("(nyala tablet list u)")


def test_a_column_is_widened_with_either_mark(run: Run, target: list[str]) -> None:
    """Of ``=``, as its neighbours take it, and ``:``, as --add takes it."""
    assert run("create", "t", "--schema", "id int64 primary key, x int8, d decimal(4,2)", *target).code == 0
    assert run("alter", "t", "--widen", "x=int32", "--widen", "d=decimal(10,2)", *target).code == 0
    assert run("alter", "t", "--widen", "x:int64", *target).code == 0
    assert [each["type"] for each in run("describe", "t", "--json", *target).json["columns"]] == [
        "int64",
        "int64",
        "decimal(10,2)",
    ]
    assert "is not of the form --widen column=type" in run("alter", "t", "--widen", "x", *target).err


def test_a_column_that_existing_rows_lack_needs_a_default(run: Run, target: list[str]) -> None:
    assert run("create", "t", "--schema", "id int64 primary key", *target).code == 0
    refused = run("alter", "t", "--add", "note text not null", *target)
    assert refused.code == 3 and '--add "note string not null default V"' in refused.err
    assert run("alter", "t", "--add", "note text not null default ''", *target).code == 0
    assert run("alter", "t", "--add", "more int8 not null read default 3", *target).code == 0


@pytest.mark.parametrize("word", ["current_timestamp", "CURRENT_TIMESTAMP", "localtimestamp", "current_date"])
def test_the_moment_of_other_databases_is_told_its_word_here(run: Run, homes: list[str], word: str) -> None:
    refused = run("scan", "homes", "--where", f"{word} is null", *homes)
    assert refused.code == 3 and "now()" in refused.err


def test_cells_that_are_cut_are_told_or_refused(run: Run, target: list[str], tmp_path: Path) -> None:
    columns = ["--column", "id:int64", "--column", "a varchar(3) too long error", "--column", "b:varchar(3)"]
    assert run("table", "create", "cut", "--key", "id", *columns, *target).code == 0
    assert run("table", "describe", "cut", *target).lines[2].split("\t")[:3] == ["a", "varchar(3)", "too long: error"]
    file = tmp_path / "cut.csv"
    file.write_text("id,a,b\n1,abc,abcd\n2,abcd,abcd\n")
    loaded = run("load", "cut", file, *target)
    assert loaded.code == 1 and "1 applied, 0 ignored, 1 rejected; 1 cell cut to the length of the column" in loaded.out
    assert "INVALID_ARGUMENT: the cell of column 'a' has more than 3 characters" in loaded.err
    assert run("load", "cut", file, "--again", "--json", *target).json["truncated"] == 1
    updated = run("update", "cut", "--set", "b='xxxx'", "--where", "true", *target)
    assert "updated 1 row of cut; 1 cell cut to the length of the column" in updated.out
    wrong = run("table", "alter", "cut", "--set-too-long", "b=cut", *target)
    assert wrong.code == 3 and "unknown word 'cut' for text that is too long; known: error, truncate" in wrong.err
    assert run("table", "alter", "cut", "--set-too-long", "b=error", "--set-too-long", "a=", *target).code == 0
    about = run("table", "describe", "cut", "--json", *target).json["columns"]
    assert [column.get("too_long") for column in about] == [None, None, "error"]
    changes = tmp_path / "changes.jsonl"
    changes.write_text('{"_op": "insert", "id": 5, "a": "abcd", "b": "ok"}\n')
    assert "; 1 cell cut to the length of the column" in run("job", "apply", "cut", changes, *target).out


def test_values_that_are_computed(run: Run, target: list[str], tmp_path: Path) -> None:
    columns = ["--column", "id:int64", "--column", "n int64 merge 'sum'", "--column", "t timestamp"]
    columns += [
        "--column",
        "m int64 default expression 'id * 2'",
        "--default-expression",
        "t=now()",
        "--merge",
        "m=max",
    ]
    assert run("create", "counted", "--key", "id", *columns, *target).code == 0
    assert [line.split("\t")[2] for line in run("describe", "counted", *target).lines[2:5]] == [
        "merge sum",
        "default now()",
        "default id * 2, merge max",
    ]
    file = tmp_path / "n.csv"
    file.write_text("id,n\n1,5\n1,7\n2,1\n")
    assert "3 applied" in run("load", "counted", file, "--op", "merge", *target).out
    assert "3 applied" in run("load", "counted", file, "--op", "merge", "--again", *target).out
    rows = run("scan", "counted", "--columns", "id,n,m", "--order-by", "id", "--json", *target).lines
    assert [tuple(json.loads(row).values()) for row in rows] == [(1, 24, 2), (2, 2, 4)]
    steps = ["--set-merge", "n=", "--set-default-expression", "t=", "--set-default-expression", "m=id * 3"]
    assert run("alter", "counted", *steps, *target).code == 0
    about = run("describe", "counted", "--json", *target).json["columns"]
    assert ["merge" in column for column in about] == [False, False, False, True]
    assert [column.get("default_expression") for column in about] == [None, None, None, "id * 3"]


def test_recall(run: Run, homes: list[str]) -> None:
    wrong = run("table", "drop", "homes", "--yes", "--keep", "7 days", *homes)
    assert wrong.code == 3 and "7d" in wrong.err
    assert run("table", "drop", "homes", "--yes", "--keep", "7d", *homes).code == 0
    (kept,) = run("table", "list", "--dropped", "--json", *homes).json
    assert kept["name"] == "homes" and str(kept["table_id"]) in run("table", "list", "--dropped", *homes).lines[1]
    assert run("table", "recall", *homes).code == 3
    assert run("table", "recall", "homes", "--id", kept["table_id"], *homes).code == 3
    assert run("table", "recall", "--id", kept["table_id"], "--as", "houses", *homes).out == "recalled houses\n"
    assert run("table", "scan", "houses", "--count", *homes).lines == ["3"]
    assert run("table", "list", "--dropped", "--json", *homes).json == []


def test_scan(run: Run, homes: list[str], tmp_path: Path) -> None:
    shown = run("table", "scan", "homes", "--where", "id >= 2", "--columns", "city, id", "--ordered", *homes)
    assert shown.lines == ["city\tid", "NULL\t2", "Hamar\t3"]
    rows = [json.loads(line) for line in run("table", "scan", "homes", "--json", "--limit", 2, *homes).lines]
    assert len(rows) == 2 and set(rows[0]) == {"id", "city", "price"}
    assert run("table", "scan", "homes", "--count", *homes).lines == ["3"]
    assert run("table", "scan", "homes", "--explain", "--json", *homes).json["schema_version"] == 1
    assert run("table", "scan", "homes", "--explain", *homes).out.startswith("scan of table 'homes' at ")
    past = run("table", "scan", "homes", "--as-of", "1999-01-01T00:00:00Z", *homes)
    assert past.code == 7 and past.err.startswith("SNAPSHOT_TOO_OLD: ")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "jsonl"])
def test_out_and_in_again(run: Run, homes: list[str], tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"rows.{suffix}"
    assert "wrote 3 rows" in run("table", "scan", "homes", "--output", file, *homes).out
    assert run("table", "create", "copy", "--like", tmp_path / "cities.parquet", "--key", "id", *homes).code == 0
    assert run("table", "load", "copy", file, "--op", "insert", *homes).code == 0
    first, second = (run("table", "scan", name, "--ordered", "--json", *homes).out for name in ("homes", "copy"))
    assert first == second and first.count("\n") == 3


def test_rows_that_are_refused(run: Run, homes: list[str], tmp_path: Path) -> None:
    again = run("table", "load", "homes", tmp_path / "cities.parquet", "--op", "insert", *homes)
    assert again.code == 1 and "3 rejected" in again.out
    assert "cities.parquet, row 0: ALREADY_PRESENT: " in again.err
    as_json = run("table", "load", "homes", tmp_path / "cities.parquet", "--op", "insert", "--json", *homes)
    assert as_json.code == 1 and as_json.json["error_count"] == 3


def test_table_like_a_file(run: Run, target: list[str], tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1], pa.uint16()), "at": pa.array([1], pa.timestamp("ns")), "k": ["a"]})
    pq.write_table(table, tmp_path / "odd.parquet")
    options = ["--key", "k", "--encoding", "k=plain", "--column", "extra:int8!", "--json"]
    made = run("table", "create", "odd", "--like", tmp_path / "odd.parquet", *options, *target).json
    assert [(column["name"], column["type"], column["nullable"]) for column in made["columns"]] == [
        ("k", "string", False),
        ("n", "uint16", True),
        ("at", "timestamp[us]", True),
        ("extra", "int8", False),
    ]
    assert made["columns"][0]["encoding"] == "plain"
    there = run("table", "create", "odd", "--key", "k", "--column", "k:string", *target)
    assert there.code == 5 and there.err.startswith("ALREADY_PRESENT: ")
    assert run("table", "create", "odd", "--key", "k", "--column", "k:string", "--if-not-exists", *target).code == 0


WRONG = {
    "an unknown table": ("NOT_FOUND", ["table", "scan", "nope"]),
    "an unknown column": ("", ["table", "scan", "homes", "--columns", "town"]),
    "a wrong filter": ("INVALID_ARGUMENT", ["table", "scan", "homes", "--where", "id ="]),
    "a missing file": ("NOT_FOUND", ["table", "load", "homes", "nowhere.parquet"]),
    "a strange file": ("INVALID_ARGUMENT", ["table", "load", "homes", sys.executable]),
    "a strange output": ("INVALID_ARGUMENT", ["table", "scan", "homes", "--output", "rows.xls"]),
    "an unknown operation": ("INVALID_ARGUMENT", ["table", "load", "homes", "{cities}", "--op", "blend"]),
    "a wrong column": ("INVALID_ARGUMENT", ["table", "create", "t", "--key", "k", "--column", "k"]),
    "a wrong type": ("INVALID_ARGUMENT", ["table", "create", "t", "--key", "k", "--column", "k:int65"]),
    "a wrong time": ("INVALID_ARGUMENT", ["table", "scan", "homes", "--as-of", "yesterday"]),
    "a time without a zone": ("INVALID_ARGUMENT", ["table", "scan", "homes", "--as-of", "2026-01-31"]),
    "a file for a folder": ("INVALID_ARGUMENT", ["job", "export", "homes", "{cities}"]),
    "a wrong key": ("INVALID_ARGUMENT", ["table", "create", "t", "--key", "x", "--column", "k:int64"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_error_is_one_line(run: Run, homes: list[str], tmp_path: Path, case: str) -> None:
    code, arguments = WRONG[case]
    done = run(*(word.format(cities=tmp_path / "cities.parquet") for word in arguments), *homes)
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert done.code == EXIT_CODES[line.partition(":")[0]]
    assert line.startswith(f"{code}: " if code else ("INVALID_ARGUMENT: ", "NOT_FOUND: "))


def test_errors_tell_the_next_step(run: Run, homes: list[str]) -> None:
    assert "an age such as 2h" in run("scan", "homes", "--as-of", "yesterday", *homes).err
    old = run("scan", "homes", "--as-of", "2020-01-01T00:00:00Z", *homes)
    assert old.code == 7 and "older than the history of table 'homes'" in old.err
    assert "(1970-01-01 00:00:07 UTC) is older" in run("scan", "homes", "--as-of", 7_000_000 << 12, *homes).err
    assert "choose another name" in run("create", "homes", "--key", "id", "--column", "id:int64", *homes).err
    assert "nyala serve --data DIR" in run("scan", "homes").err


def test_a_key_of_several_columns(run: Run, target: list[str]) -> None:
    columns = ["--column", "a:int64", "--column", "b:int64", "--column", "c:int64"]
    assert run("create", "t", "--key", "c,a", "--key", "b", *columns, *target).code == 0
    assert run("describe", "t", "--json", *target).json["primary_key"] == ["c", "a", "b"]


def test_where_the_database_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = run("table", "list", "--url", "grpc://127.0.0.1:1", "--data", tmp_path)
    assert both.code == 3 and "not both" in both.err
    assert "NOT_FOUND: there is no directory" in run("table", "list", "--data", tmp_path / "none").err
    monkeypatch.setenv("NYALA_URL", "grpc://127.0.0.1:1")
    assert run("table", "list").err.startswith("UNAVAILABLE: ")
    with nyala.open(tmp_path / "store") as db:
        db.create_table("homes", CITIES.schema, ["id"])
    assert run("table", "list", "--data", tmp_path / "store").lines == ["homes"]  # the command line wins


READ_ONLY = [
    ["table", "list"],
    ["table", "describe", "homes"],
    ["table", "scan", "homes"],
    ["table", "stats", "homes"],
    ["table", "drop", "homes", "--yes"],
    ["tablet", "list", "homes"],
    ["job", "checksum", "homes"],
]


@pytest.mark.parametrize("words", READ_ONLY, ids=" ".join)
def test_only_commands_that_make_something_make_a_store(run: Run, tmp_path: Path, words: list[str]) -> None:
    done = run(*words, "--data", tmp_path)
    assert done.code == 4 and "there is no store in" in done.err
    assert list(tmp_path.iterdir()) == []


def test_open_without_create(tmp_path: Path) -> None:
    with pytest.raises(nyala.NotFoundError, match="create one with"):
        nyala.open(tmp_path / "store", create=False)
    assert list(tmp_path.iterdir()) == []
    nyala.open(tmp_path / "store").close()
    nyala.open(tmp_path / "store", create=False).close()


def test_wrong_usage_is_two(run: Run) -> None:
    assert run("table", "scan").code == 2
    assert run("fly").code == 2


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["serve"],
        ["demo"],
        ["verify"],
        ["dump"],
        ["warmup"],
        ["table"],
        *(
            ["table", word]
            for word in ("list", "describe", "create", "alter", "drop", "recall", "scan", "load", "stats")
        ),
    ],
    ids=" ".join,
)
def test_help(run: Run, words: list[str]) -> None:
    done = run(*words, "--help")
    assert done.code == 0 and "Usage: nyala" in done.out


def test_verify_and_dump(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    with nyala.open(str(folder)) as db:
        db.create_table("homes", CITIES.schema, ["id"]).insert(CITIES)
        db.table("homes").maintain("flush")
    sound = run("verify", folder)
    assert sound.code == 0 and sound.lines[-1] == "no problems found"
    assert ", 3 rows in column files" in sound.lines[0]
    assert run("verify", folder, "--json").json["problems"] == []
    assert run("dump", folder / "manifest").json["tables"]
    (base,) = folder.rglob("*.base")
    assert run("dump", base).code == 0
    content = bytearray(base.read_bytes())
    content[len(content) // 3] ^= 1
    base.write_bytes(content)
    damaged = run("verify", folder)
    assert damaged.code == 1 and "CORRUPTION" in damaged.out and "\n1 problem" in damaged.out
    assert run("verify", tmp_path / "none").err.startswith("NOT_FOUND: ")
    assert run("dump", tmp_path / "none").code == 4


def test_verify_tells_of_rows_that_only_the_log_has(run: Run, tmp_path: Path) -> None:
    with nyala.open(str(tmp_path), maintenance="off") as db:
        db.create_table("homes", CITIES.schema, ["id"]).insert(CITIES)
    checked = run("verify", tmp_path).lines[0]
    assert "0 rows in column files, " in checked and "(with the rows that are not in column files yet)" in checked


def test_serve_refuses_what_others_reach(run: Run, tmp_path: Path) -> None:
    done = run("serve", "--data", tmp_path, "--listen", "grpc://0.0.0.0:0")
    assert done.code == 3 and "--insecure" in done.err


def test_broken_pipe_is_no_error(tmp_path: Path) -> None:
    with nyala.open(str(tmp_path)) as db:
        db.create_table("t", pa.schema({"k": pa.int64()}), ["k"]).insert({"k": pa.array(range(50_000))})
    command = f"{sys.executable} -m nyala table scan t --json --data {tmp_path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == '{"k": 0}\n' and done.stderr == ""

"""Tables made, changed, loaded and kept up from the command line."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.clients.cli.run import as_store_error
from nyala.clients.cli.schema_text import parse_column, parse_schema
from nyala.flight_server.runtime.opening import said_if_slow
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.table.column import ColumnDefinition
from tests.clients.cli.command import Run

CSV = "id,city,price\n1,Oslo,1.5\n2,Voss,2.5\n3,Bergen,\n"


def columns(about: dict[str, Any], *parts: str) -> list[tuple[Any, ...]]:
    return [tuple(column[part] for part in ("name", *parts)) for column in about["columns"]]


def test_the_version(run: Run) -> None:
    assert run("--version").out == f"nyala {nyala.__version__}\n"
    assert "__version__" in dir(nyala)


def test_one_command_has_two_names(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    assert run("load", "homes", tmp_path / "a.csv", "--create", "--key", "id", *target).code == 0
    for words in (["list"], ["scan", "homes", "--ordered"], ["describe", "homes"], ["scan", "homes", "--count"]):
        assert run(*words, *target).out == run("table", *words, *target).out
    again = [
        run(*words, "homes", tmp_path / "a.csv", *target).out
        for words in (["load"], ["table", "load"], ["job", "load"])
    ]
    assert all("3 skipped: loaded by an earlier run" in out for out in again)


def test_create_with_everything(run: Run, target: list[str]) -> None:
    options = ["--hash", "carrier:4:7", "--range", "day", "--split", "2024-01-01", "--split", "2025-01-01"]
    options += [
        "--encoding",
        "note=dictionary",
        "--compression",
        "note=lz4",
        "--default",
        "seats=3",
        "--comment",
        "note=why",
    ]
    options += [
        "--comment",
        "all flights",
        "--option",
        "history_max_age_seconds=3600",
        "--column",
        "extra decimal(10,2)",
    ]
    schema = "carrier string, day date, seats int not null default 1, note text comment 'x', primary key (carrier, day)"
    about = run("create", "flights", "--schema", schema, *options, "--json", *target).json
    assert columns(about, "type", "nullable", "write_default") == [
        ("carrier", "string", False, None),
        ("day", "date", False, None),
        ("seats", "int32", False, 3),
        ("note", "string", True, None),
        ("extra", "decimal(10,2)", True, None),
    ]
    note = about["columns"][3]
    assert (note["encoding"], note["compression"], note["comment"]) == ("dictionary", "lz4", "why")
    assert about["options"]["history_max_age_seconds"] == 3600 and about["options"]["comment"] == "all flights"
    assert about["partitions"][0] == {"hash": ["carrier"], "buckets": 4, "seed": 7}
    assert len(run("tablet", "list", "flights", "--json", *target).json) == 12


def test_create_by_bounds_and_from_a_file_of_words(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.schema").write_text("a int64,\n  b string,\n  primary key (a, b)\n")
    bounds = ["--range", "a,b", "--bound", "..10,m", "--bound", "10,m..20", "--bound", "30.."]
    assert run("create", "t", "--schema", f"@{tmp_path / 't.schema'}", *bounds, *target).code == 0
    found = run("tablet", "list", "t", "--json", *target).json
    ends = [(each["partition"].get("lower", []), each["partition"].get("upper", [])) for each in found]
    assert ends == [([], [10, "m"]), ([10, "m"], [20]), ([30], [])]


def test_two_columns_of_one_name_are_refused(run: Run, target: list[str], tmp_path: Path) -> None:
    twice = ["--column", "id:int64", "--column", "a:int8", "--column", "a:string"]
    (tmp_path / "a.csv").write_text("id,a,a\n1,2,3\n")
    for options in (["--key", "id", *twice], ["--schema", "id int64 primary key, a int8, a string"]):
        done = run("create", "t", *options, *target)
        assert done.code == 3 and "two columns are named 'a'" in done.err
    assert "two columns are named 'a'" in run("create", "t", "--key", "id", "--like", tmp_path / "a.csv", *target).err
    assert run("list", *target).out == ""


def test_what_create_refuses(run: Run, target: list[str]) -> None:
    base = ["create", "t", "--schema", "id int64, n int8"]
    for options, why in {
        (): "give the primary key",
        ("--key", "x"): "the key names column 'x'",
        ("--key", "id", "--hash", "id"): "columns:buckets",
        ("--key", "id", "--split", "5"): "--split and --bound need --range",
        ("--key", "id", "--range", "id", "--split", "five"): "'five' is not a valid int64",
        ("--key", "id", "--range", "id", "--bound", "5"): "lower..upper",
        ("--key", "id", "--default", "n=300"): "is not a valid int8",
        ("--key", "id", "--default", "m=3"): "there is no column 'm'",
        ("--key", "id", "--option", "colour=red"): "colour",
    }.items():
        done = run(*base, *options, *target)
        assert done.code == 3 and why in done.err, done.err


def test_every_step_of_an_alteration(run: Run, target: list[str]) -> None:
    schema = "id int64, a int8, b string not null, c float, d int16, primary key (id)"
    assert run("create", "t", "--schema", schema, "--range", "id", "--bound", "0..100", *target).code == 0
    steps = ["--drop", "c", "--rename", "a=aa", "--widen", "aa:int32", "--drop-not-null", "b"]
    steps += ["--add", "e decimal(10,2) not null default 1.5", "--add", "f:string", "--set-default", "d=7"]
    steps += [
        "--set-default",
        "f=x",
        "--set-encoding",
        "b=plain",
        "--set-compression",
        "b=zstd",
        "--set-comment",
        "b=why",
    ]
    steps += ["--set-comment", "=all", "--set-option", "history_max_age_seconds=60", "--add-range", "100..200"]
    steps += ["--drop-range", "0..100", "--rename-to", "u", "--if-version", "1"]
    about = run("alter", "t", *steps, "--json", *target).json
    assert columns(about, "type", "nullable", "read_default", "write_default") == [
        ("id", "int64", False, None, None),
        ("aa", "int32", True, None, None),
        ("b", "string", True, None, None),
        ("d", "int16", True, None, 7),
        ("e", "decimal(10,2)", False, "1.50", "1.50"),
        ("f", "string", True, None, "x"),
    ]
    b = about["columns"][2]
    assert (b["encoding"], b["compression"], b["comment"]) == ("plain", "zstd", "why")
    assert about["name"] == "u" and about["options"]["comment"] == "all"
    assert run("alter", "u", "--split", "150", *target).code == 0
    assert len(run("tablet", "list", "u", "--json", *target).json) == 2
    taken = run("alter", "u", "--set-default", "d=", "--set-compression", "b=", "--json", *target).json
    assert taken["columns"][3]["write_default"] is None and taken["columns"][2]["compression"] == "none"
    limited = run("alter", "u", "--set-option", "max_rows=5", "--json", *target).json
    assert limited["options"]["max_rows"] == 5
    freed = run("alter", "u", "--set-option", "max_rows=", "--set-option", "comment=", "--json", *target).json
    assert "max_rows" not in freed["options"] and freed["options"]["comment"] == ""
    nothing = run("alter", "u", *target)
    assert nothing.code == 3 and "at least one step" in nothing.err
    assert run("alter", "u", "--set-default", "zz=1", *target).code == 3


def test_loading_makes_tables_sets_bad_rows_aside_and_goes_on(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    missing = run("load", "homes", tmp_path / "a.csv", *target)
    assert missing.code == 4
    assert run("load", "homes", tmp_path / "a.csv", "--create", *target).code == 3
    first = run("load", "homes", tmp_path / "a.csv", "--create", "--key", "id", *target)
    assert first.code == 0 and first.lines[0] == "created homes: id int64, city string, price double; key id"
    assert "3 rows of 1 file" in first.out and "3 applied" in first.out
    assert "3 skipped: loaded by an earlier run" in run("load", "homes", tmp_path / "a.csv", *target).out
    assert "3 applied" in run("load", "homes", tmp_path / "a.csv", "--again", *target).out
    (tmp_path / "b.tsv").write_text("city\tid\tprice\nMoss\t4\tx\nHamar\t5\t1\n")
    part = run("load", "homes", tmp_path / "b.tsv", "--rejects", tmp_path / "bad.csv", *target)
    assert part.code == 1 and "b.tsv, line 2: INVALID_ARGUMENT: column 'price': 'x' is not a valid double" in part.err
    assert f"1 rejected (1 written to {tmp_path / 'bad.csv'})" in part.out
    (tmp_path / "bad.csv").write_text((tmp_path / "bad.csv").read_text().replace('"x"', "9"))
    assert "1 applied" in run("load", "homes", tmp_path / "bad.csv", *target).out
    as_json = run("load", "homes", tmp_path / "b.tsv", "--op", "insert", "--json", *target)
    assert as_json.code == 1 and as_json.json["error_count"] == 2 and as_json.json["errors"][0]["line"] == 2
    assert run("load", "homes", tmp_path / "a.csv", "--again", "--run", "x", *target).code == 3
    assert run("scan", "homes", "--count", *target).out == "5\n"


def test_loading_from_standard_input_and_pipes(
    run: Run, target: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    given(CSV.encode())
    assert "give --format" in run("load", "homes", "-", *target).err
    given(CSV.encode())
    assert run("load", "homes", "-", "--format", "csv", "--create", "--key", "id", *target).code == 0
    given(b"9;nine;-;\n\n10;ten\n")
    options = ["--delimiter", ";", "--no-header", "--columns", "id,city,price,x", "--null", "-"]
    refused = run("load", "homes", "-", "--format", "csv", *options, *target)
    assert refused.code == 3 and "standard input: the table has no column 'x'" in refused.err
    given(b"9;nine;-\n10;ten\n")
    options[4] = "id,city,price"
    part = run("load", "homes", "-", "--format", "csv", *options, *target)
    assert part.code == 1 and "standard input, line 2: INVALID_ARGUMENT: 2 cells, not 3" in part.err
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [20]}), sink)
    given(sink.getvalue().to_pybytes())
    assert "1 applied" in run("load", "homes", "-", "--format", "parquet", *target).out
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b'{"id": 30}\n'))
    writer.start()
    assert "1 applied" in run("load", "homes", tmp_path / "pipe", "--format", "jsonl", *target).out
    writer.join()
    assert run("scan", "homes", "--where", "id >= 9", "--count", *target).out == "3\n"


def test_packed_files_and_many_at_once(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (tmp_path / "in" / "b.json").write_text(json.dumps([{"id": 7, "city": "Moss"}]))
    done = run("load", "homes", tmp_path / "in" / "a.csv.gz", tmp_path / "in", "--create", "--key", "id", *target)
    assert done.code == 0 and "7 rows of 3 files" in done.out
    assert run("scan", "homes", "--count", *target).out == "4\n"


def test_maintenance_changes_and_health(run: Run, target: list[str], tmp_path: Path) -> None:
    run("create", "t", "--schema", "id int64 primary key, v string", *target)
    assert run("health", *target).out.startswith("ok, version ")
    assert run("health", "--json", *target).json["status"] == "ok"
    (tmp_path / "a.csv").write_text("id,v\n1,a\n2,b\n")
    run("load", "t", tmp_path / "a.csv", *target)
    done = run("maintain", "t", "flush", "compact", *target)
    assert done.code == 0 and [line.partition(":")[0] for line in done.lines] == ["flush", "compact"]
    assert [each["op"] for each in run("maintain", "t", "gc", "--json", *target).json] == ["gc"]
    assert run("maintain", "t", "polish", *target).code == 2
    first = json.loads(run("changes", "t", "--since", since(), "--json", *target).lines[0])
    assert first["_op"] == "insert" and first["id"] == 1
    stamp = str(first["_timestamp"])
    (tmp_path / "b.csv").write_text("id,v\n2,c\n")
    run("load", "t", tmp_path / "b.csv", *target)
    lines = run("changes", "t", "--since", stamp, "--before", "--csv", *target).lines
    assert lines[0].split(",")[:2] == ['"_op"', '"_timestamp"'] and len(lines) == 2
    assert run("changes", "t", "--since", stamp, "--where", "id = 1", *target).lines[1:] == []


def since() -> str:
    return (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).isoformat()


TEXTS = {
    "id int64": ColumnDefinition(name="id", type="int64"),
    "id:int64!": ColumnDefinition(name="id", type="int64", nullable=False),
    "price:decimal(10, 2)": ColumnDefinition(name="price", type="decimal(10, 2)"),
    '"odd ""name""" VARCHAR(5) NOT NULL DEFAULT \'it\'\'s\'': ColumnDefinition(
        name='odd "name"', type="varchar(5)", nullable=False, write_default="it's"
    ),
    "at timestamp[us] read default '2024-01-01T00:00:00' default null": ColumnDefinition(
        name="at", type="timestamp[us]", read_default="2024-01-01T00:00:00"
    ),
    "x double precision immutable comment 'a, b'": ColumnDefinition(
        name="x", type="double", immutable=True, comment="a, b"
    ),
    "n bigint encoding plain compression lz4 null": ColumnDefinition(
        name="n", type="int64", encoding="plain", compression="lz4"
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_columns_in_words(text: str) -> None:
    assert parse_column(text) == TEXTS[text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id", "expected a type at the end"),
        ("id int65", "unknown column type"),
        ("id int64 not", "expected .* NOT NULL at 'not'"),
        ("id int64 default 'x", "a quote is not closed"),
        ("id int64 default x", "is not a valid int64"),
        ("id int64 primary key", "as --key"),
        ("id decimal(10", r"expected '\)'"),
        ("", "expected a column"),
    ],
)
def test_words_that_are_no_column(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        parse_column(text)


def test_a_schema_in_words() -> None:
    found = parse_schema("a int64, b string not null,\n primary key (a, b)")
    assert [column.name for column in found.columns] == ["a", "b"] and found.key == ["a", "b"]
    with pytest.raises(InvalidArgumentError, match="NOT NULL at 'b'"):
        parse_schema("a int64 b string")


def test_update_delete_commits_and_restore(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    assert run("load", "homes", tmp_path / "a.csv", "--create", "--key", "id", *target).code == 0
    before = run("scan", "homes", "--ordered", *target).out

    done = run("update", "homes", "--set", "price=price * 2", "--set", "city='X'", "--where", "id <= 2", *target)
    assert done.code == 0 and done.out.startswith("updated 2 rows of homes; to undo: nyala restore homes --as-of ")
    assert run("scan", "homes", "--ordered", *target).lines[1:3] == ["1\tX\t3.0", "2\tX\t5.0"]
    assert run("delete", "homes", "--where", "city = 'Bergen'", *target).out.startswith("deleted 1 row of homes; ")

    told = [json.loads(line) for line in run("commits", "homes", "--json", *target).lines]
    assert [(row["inserted"], row["updated"], row["deleted"]) for row in told] == [(3, 0, 0), (0, 2, 0), (0, 0, 1)]
    lines = [line.split("\t") for line in run("commits", "homes", *target).lines]
    assert lines[0][:2] == ["timestamp", "at"] and lines[0][-2:] == ["operation", "user"]
    assert [line[-2] for line in lines[1:]] == [each["operation"] for each in told]
    assert len(run("commits", "homes", "--csv", "--since", str(told[1]["timestamp"]), *target).lines) == 2

    undo = done.out.split("; to undo: nyala ")[1].split()
    assert undo[:2] == ["restore", "homes"] and undo[-2:] == target
    assert run(*undo).out.startswith("restored homes: 3 rows changed; ")
    assert run("scan", "homes", "--ordered", *target).out == before
    assert run("restore", "homes", "--as-of", "0s", "--json", *target).json["applied"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["update", "t", "--where", "true"], "give at least one column to set, as in --set"),
        (["update", "t", "--set", "a=1"], "give --where to select the rows to update; --where true selects all rows"),
        (["update", "t", "--set", "a", "--where", "true"], "'a' is not of the form --set column=expression"),
        (["update", "t", "--set", "a=1", "--set", "a=2", "--where", "true"], "--set names column 'a' twice"),
        (["delete", "t"], "give --where to select the rows to delete; --where true selects all rows"),
        (["commits", "t", "--json", "--csv"], "give --json or --csv, not both"),
    ],
)
def test_statements_that_say_too_little(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.code == 3 and said in done.err


def test_mistakes_say_what_to_do(run: Run, target: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(CSV)
    pq.write_table(pa.table({"id": [1], "zip": [5]}), "zip.parquet")
    assert run("load", "homes", "a.csv", "--create", "--key", "id", *target).code == 0
    done = run("load", "hoems", "a.csv", *target)
    assert done.code == 4 and "to create it from the file, add --create --key COLUMNS" in done.err
    assert (
        f"{tmp_path / 'zip.parquet'}: the table has no column 'zip'" in run("load", "homes", "zip.parquet", *target).err
    )

    Path("null.csv").write_text("id,city\n5,Oslo\n,Voss\n")
    assert run("load", "homes", "null.csv", "--rejects", "bad.jsonl", *target).code == 1
    assert json.loads(Path("bad.jsonl").read_text())["_line"] == 3

    create = ["create", "t", "--column", "a:int"]
    assert "give columns, as in --column id:int64" in run("create", "t", "--key", "a", *target).err
    missing = run(*create, "--key", "b", *target)
    assert "the key names column 'b', which does not exist; the columns are a" in missing.err
    histroy = run(*create, "--key", "a", "--option", "histroy_max_age_seconds=3", *target).err
    assert "--option: unknown 'histroy_max_age_seconds': did you mean 'history_max_age_seconds'?" in histroy
    assert run(*create, "--key", "a", "--option", "history_max_age_seconds=3", *target).err == ""
    for words in (["alter", "t", "--set-default", "a=x"], [*create, "--key", "a", "--default", "a=x"]):
        assert "the default of column 'a': the value 'x' is not a valid int32" in run(*words, *target).err


def test_a_csv_that_no_table_is_made_of(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "semicolons.csv").write_text("id;city\n1;Oslo\n")
    (tmp_path / "twice.csv").write_text("id,id\n1,2\n")
    first, second = (
        run("load", "t", file, "--create", "--key", "id", *target) for file in sorted(tmp_path.glob("*.csv"))
    )
    assert first.code == 3 and "semicolons.csv has only one column, 'id;city': try --delimiter ';'" in first.err
    assert second.code == 3 and "twice.csv: two columns are named 'id'" in second.err


def test_a_file_in_the_place_of_a_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for words in (["list"], ["serve"]):
        done = run(*words, "--data", tmp_path / "file")
        assert done.code == 3 and "is a file; --data must name the directory of a store" in done.err


def test_a_place_where_no_store_can_be_made(run: Run) -> None:
    refused = run("create", "t", "--schema", "id int64 primary key", "--data", "/proc/nyala")
    assert refused.code == 9 and "the disk failed" not in refused.err
    assert refused.err.startswith(
        "UNAVAILABLE: the data directory /proc/nyala could not be created or locked: No such "
    )
    assert refused.err.endswith("; check the path and its permissions\n")


def test_a_module_that_is_missing_is_named_with_what_brings_it() -> None:
    assert "nyala[spark]" in as_store_error(ModuleNotFoundError("x", name="pyspark.sql")).message
    assert "nyala[server]" in as_store_error(ModuleNotFoundError("x", name="numba")).message
    assert "nyala[servers]" in as_store_error(ModuleNotFoundError("x", name="xxhash")).message


def test_a_server_without_a_module_names_the_extra_of_servers_alone(tmp_path: Path) -> None:
    """As after an update of a clone, without an installation of what is new."""
    start = "import sys; sys.modules['xxhash'] = None; from nyala.__main__ import main; main()"
    words = ["serve", "--data", tmp_path / "store", "--listen", "grpc://127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", start, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 9
    assert done.stderr == "UNAVAILABLE: the module xxhash is missing; install it with: pip install 'nyala[server]'\n"


def test_what_the_system_says_is_a_sentence(run: Run, target: list[str], tmp_path: Path) -> None:
    run("create", "t", "--column", "a:int", "--key", "a", *target)
    done = run("scan", "t", "--output", tmp_path / "no" / "t.csv", *target)
    assert done.code == 4 and done.err.startswith("NOT_FOUND: No such file or directory: ")
    (tmp_path / "file").write_text("x")
    done = run("job", "backup", "t", tmp_path / "file", *target)
    assert done.code == 3 and done.err.endswith("its path leads through a file: give another path\n")


def test_a_start_that_compiles_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), said_if_slow("compiling", 0.01):
        assert _within(5, lambda: "compiling" in caplog.text)
    caplog.clear()
    with caplog.at_level(logging.INFO), said_if_slow("compiling", 0.5):
        pass
    time.sleep(0.7)
    assert not caplog.text


def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not is_so() and time.monotonic() < until:
        time.sleep(0.01)
    return is_so()


def test_describe_tells_defaults_and_a_scan_any_order(run: Run, target: list[str], tmp_path: Path) -> None:
    schema = "id int primary key, n int not null default 7, m int read default 1"
    run("create", "t", "--schema", schema, "--hash", "id:2", *target)
    lines = run("describe", "t", *target).lines
    assert [line.split("\t")[2] for line in lines[1:4]] == ["key, not null", "not null, default 7", "read default 1"]
    assert lines[4:6] == ["primary key (id)", "partitioned by hash(id) in 2"] and lines[-1] == "0 rows"
    assert "history_max_age_seconds = 604800" in lines
    (tmp_path / "t.csv").write_text("id,n,m\n1,5,1\n2,9,1\n3,7,1\n")
    run("load", "t", tmp_path / "t.csv", *target)
    ordered = ["scan", "t", "--order-by", "n desc", "--offset", "1", "--limit", "1", "--columns", "id"]
    assert run(*ordered, *target).lines == ["id", "3"]
    assert "took " in run("scan", "t", "--analyze", *target).out


def test_moments_outside_the_calendar_are_numbers_everywhere(run: Run, target: list[str], tmp_path: Path) -> None:
    far = 1 << 62
    run("create", "t", "--schema", f"at timestamp primary key, seen timestamp default {far}", *target)
    (tmp_path / "a.csv").write_text(f"at\n{far}\n-{far}\n2024-02-29T12:00:00\n")
    assert run("load", "t", tmp_path / "a.csv", *target).code == 0
    shown = run("get", "t", *target, "--", str(far))
    assert shown.code == 0 and shown.out.count(str(far)) == 2
    assert run("get", "t", "--json", *target, "--", str(-far)).json == {"at": -far, "seen": far}
    assert run("scan", "t", "--where", f"at < {-far + 1}", "--count", *target).out == "1\n"
    texts = {form: run("scan", "t", "--ordered", *form, *target).out for form in ((), ("--json",), ("--csv",))}
    assert texts[()].splitlines()[1:] == [f"-{far}\t{far}", f"2024-02-29T12:00:00\t{far}", f"{far}\t{far}"]
    assert json.loads(texts["--json",].splitlines()[2]) == {"at": far, "seen": far}
    assert [line.replace('"', "") for line in texts["--csv",].splitlines()[1:]] == [
        f"-{far},{far}",
        f"2024-02-29 12:00:00.000000,{far}",
        f"{far},{far}",
    ]
    assert run("describe", "t", "--json", *target).json["columns"][1]["write_default"] == far

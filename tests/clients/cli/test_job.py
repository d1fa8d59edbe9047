"""``nyala job``: the jobs by their commands, between a directory and a server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nyala
from nyala.__main__ import main
from nyala.clients.api.connect import connect
from nyala.schemas.cells.timestamp import datetime_of

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``nyala job ...`` in this process; return its exit code, output and errors."""

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nyala", "job", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(caught.value.code or 0), out, err

    return command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a table of three rows."""
    with nyala.open(tmp_path / "data") as db:
        db.create_table("homes", pa.schema({"id": pa.int64(), "city": pa.string()}), ["id"]).insert(
            {"id": [1, 2, 3], "city": ["Oslo", None, "Hamar"]}
        )
    return tmp_path / "data"


def test_backup_restore_and_verify(run: Run, data: Path, url: str, tmp_path: Path) -> None:
    code, out, err = run("backup", "homes", tmp_path / "backups", "--data", data)
    assert code == 0 and "full backup of homes" in out and "3 rows" in out
    assert "all done: 1 task, 3 rows" in err  # no terminal: lines, and not among the results
    code, out, _ = run("backup", "homes", tmp_path / "backups", "--data", data, "--json")
    made = json.loads(out)
    assert (made["kind"], made["rows"]) == ("increment", 0)
    code, _, err = run("backups", tmp_path / "bakcups", "--json")
    assert code == 4 and err == f"NOT_FOUND: there is no folder {tmp_path / 'bakcups'}\n"
    code, out, _ = run("backups", tmp_path / "backups")
    assert [line.split("\t")[1] for line in out.splitlines()] == ["kind", "full", "increment"]

    code, out, _ = run("restore", "homes", tmp_path / "backups", "--url", url)
    assert code == 0 and "from 2 backups" in out
    code, _, err = run("restore", "homes", tmp_path / "backups", "--url", url)
    assert code == 5 and err.strip().splitlines()[-1].startswith("ALREADY_PRESENT: table 'homes' already exists")

    code, out, _ = run("verify", "homes", "--data", data, "--other-url", url)
    assert code == 0 and out.startswith("equal: 3 rows")
    with connect(url) as db:
        db.table("homes").update({"id": [2], "city": ["Moss"]})
    code, out, _ = run("verify", "homes", "--data", data, "--other-url", url)
    assert code == 1 and "2\tvalues" in out.splitlines()
    code, out, _ = run("verify", "homes", "--data", data, "--other-url", url, "--json")
    assert code == 1 and json.loads(out)["differences"] == [{"key": {"id": 2}, "what": "values"}]
    assert run("verify", "homes", "--data", data)[0] == 0  # with itself


def test_checksums(run: Run, data: Path) -> None:
    code, out, _ = run("checksum", "homes", "--data", data)
    assert code == 0 and out.splitlines()[-1].startswith("all\t3\t")
    _, out, _ = run("checksum", "homes", "--data", data, "--json")
    assert json.loads(out)["rows"] == 3


def test_copy_export_and_load(run: Run, data: Path, url: str, tmp_path: Path) -> None:
    code, out, _ = run("copy", "homes", "--data", data, "--other-url", url, "--as", "copied")
    assert code == 0 and "3 rows" in out
    code, out, _ = run("export", "copied", tmp_path / "out", "--columns", "id,city", "--where", "id > 1", "--url", url)
    assert code == 0 and "wrote 2 rows" in out
    code, out, _ = run("load", "copied", tmp_path / "out", "--url", url, "--op", "insert")
    assert code == 1 and "0 applied, 0 ignored, 2 rejected" in out
    code, out, _ = run("load", "copied", tmp_path / "out", "--url", url, "--json")
    assert code == 0 and json.loads(out)["applied"] == 2
    assert run("verify", "homes", "--data", data, "--other-url", url, "--other-table", "copied")[0] == 0
    pq.write_table(pa.table({"_op": ["delete", "upsert"], "id": [1, 7]}), tmp_path / "changes.parquet")
    code, out, _ = run("apply", "copied", tmp_path / "changes.parquet", "--url", url)
    assert code == 0 and "2 changes of 1 file: 2 keys in 1 commit, 0 already applied" in out


def test_the_file_for_spark_submit(data: Path, url: str, tmp_path: Path) -> None:
    from nyala import jobs

    def submit(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, jobs.__file__, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert submit("backups", tmp_path, "--json").stdout == "[]\n"
    refused = submit("checksum", "homes", "--data", data, "--executor", "local")
    assert refused.returncode == 3 and "tasks on Spark need a server" in refused.stderr
    missing = submit("checksum", "homes", "--url", url, "--executor", "local")
    assert missing.returncode == 4 and missing.stderr.startswith("NOT_FOUND")


def test_wrong_usage(run: Run, data: Path, url: str, tmp_path: Path) -> None:
    code, _, err = run("backup", "nothing", tmp_path, "--data", data)
    assert code == 4 and err.startswith("NOT_FOUND")
    code, _, err = run("checksum", "homes", "--data", data, "--executor", "abacus")
    assert code == 3 and "known: local, spark" in err
    code, _, err = run("verify", "homes", "--data", data, "--other-url", url, "--other-data", tmp_path)
    assert code == 3 and "--other-url or --other-data" in err


def test_parquet_files_are_imported_past_the_server(run: Run, data: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([4, 5], pa.int64()), "city": ["Bodo", "Moss"]}), tmp_path / "more.parquet")
    code, out, _ = run("import", "homes", tmp_path / "more.parquet", "--data", data, "--json")
    assert code == 0 and json.loads(out)["applied"] == 2
    code, _, err = run("import", "homes", tmp_path / "more.parquet", "--data", data)
    assert code == 5 and "already in the table" in err
    code, out, _ = run("import", "homes", tmp_path / "more.parquet", "--data", data, "--mode", "upsert")
    assert code == 0 and "imported 2 rows" in out


def test_rowsets_are_merged_past_the_server(run: Run, data: Path) -> None:
    with nyala.open(data, maintenance="off") as db:
        table = db.table("homes")
        table.maintain("flush")
        table.upsert({"id": [2, 4], "city": ["Moss", "Bodo"]})
    code, out, err = run("compact", "homes", "--data", data)
    assert code == 0 and "merged 2 rowsets into 1, 4 rows in 1 task\n" in out and "all done: 1 task, 4 rows" in err
    code, out, _ = run("compact", "homes", "--data", data, "--json")
    assert code == 0 and json.loads(out)["tasks"] == 0


def test_a_restored_store_does_not_continue_the_backups_it_came_from(run: Run, tmp_path: Path) -> None:
    one, two, root = tmp_path / "one", tmp_path / "two", tmp_path / "root"
    with nyala.open(one) as db:
        db.create_table("t", pa.schema([("id", pa.int64())]), ["id"]).insert({"id": [1, 2, 3]})
    assert run("backup", "t", root, "--data", one)[0] == 0
    code, out, _ = run("restore", "t", root, "--data", two)
    assert code == 0 and "its checksum verified" in out
    code, _, err = run("backup", "t", root, "--data", two)
    assert code != 0 and "backups of another store" in err and "use another folder" in err
    assert run("backup", "t", tmp_path / "another", "--data", two)[0] == 0


def test_a_restore_of_no_backup_makes_no_store(run: Run, data: Path, tmp_path: Path) -> None:
    """Nor does a copy of no table."""
    root, new = tmp_path / "root", tmp_path / "new"
    code, out, _ = run("backup", "homes", root, "--data", data)
    assert code == 0 and "\nin 1 file in " in out
    (made,) = json.loads(run("backups", root, "--json")[1])
    for words in (["hoems", root], ["homes", tmp_path / "rooot"], ["homes", root, "--at", "2026-01-01T00:00:00Z"]):
        code, _, err = run("restore", *words, "--data", new)
        assert code == 4 and err.count("\n") == 1 and not new.exists(), err
    first = f"{datetime_of(made['until']).isoformat(timespec='seconds')} ({made['until']})"
    assert "has no backup that ended by 2026-01-01T00:00:00+00:00 (" in err
    assert err.endswith(f"; the first one ended at {first}\n")
    code, _, err = run("copy", "hoems", "--data", data, "--other-data", new)
    assert code == 4 and not new.exists(), err
    code, out, _ = run("restore", "homes", root, "--data", new)
    assert code == 0 and "from 1 backup, its checksum verified" in out

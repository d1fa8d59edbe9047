"""``--read-only``: commands that read open a store beside the process that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import nyala
from tests.clients.cli.command import Run

COMMANDS = {
    "scan": (("scan", "t", "--csv"), "1,2\n3,4\n"),
    "count": (("scan", "t", "--count"), "2\n"),
    "get": (("get", "t", "3", "--json"), '"v": 4'),
    "aggregate": (("aggregate", "t", "n=count", "--csv"), "\n2\n"),
    "changes": (("changes", "t", "--since", "1h", "--csv"), "insert"),
    "commits": (("commits", "t", "--csv"), "transaction"),
    "sql": (("sql", "-c", "SELECT sum(v) AS s FROM t", "--format", "csv"), "\n6\n"),
    "list": (("table", "list"), "t\n"),
    "describe": (("table", "describe", "t"), "primary key (id)"),
    "stats": (("table", "stats", "t"), "2"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_is_read_beside_the_process_that_has_it(run: Run, tmp_path: Path, name: str) -> None:
    arguments, expected = COMMANDS[name]
    with nyala.open(tmp_path / "s") as holder:
        holder.create_table("t", data=[{"id": 1, "v": 2}, {"id": 3, "v": 4}], primary_key="id")
        refused = run(*arguments, "--data", tmp_path / "s")
        assert refused.code and "the store open" in refused.err
        done = run(*arguments, "--data", tmp_path / "s", "--read-only")
    assert done.code == 0 and expected in done.out, done.out + done.err


def test_it_reads_only(run: Run, tmp_path: Path) -> None:
    with nyala.open(tmp_path / "s") as holder:
        holder.create_table("t", data=[{"id": 1, "v": 2}], primary_key="id")
        done = run("sql", "--data", tmp_path / "s", "--read-only", "-c", "DELETE FROM t")
        assert done.code and "open for reading only" in done.err
        assert holder.table("t").count() == 1
    assert "works only with --data" in run("scan", "t", "--url", "grpc://127.0.0.1:1", "--read-only").err
    missing = run("scan", "t", "--data", tmp_path / "none", "--read-only")
    assert missing.code and "there is no directory" in missing.err and not (tmp_path / "none").exists()

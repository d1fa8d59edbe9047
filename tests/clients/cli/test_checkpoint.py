"""``nyala checkpoint``: of a server and of a directory, and a start from the copy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.cli.command import Run


def test_a_copy_is_a_store(run: Run, target: list[str], tmp_path: Path) -> None:
    assert run("create", "homes", "--schema", "id int64, primary key (id)", *target).code == 0
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    assert run("load", "homes", tmp_path / "rows.csv", *target).code == 0
    first = run("checkpoint", tmp_path / "copy", *target)
    assert first.code == 0 and first.out.startswith(f"{tmp_path / 'copy'} has the store as of ")
    assert run("maintain", "homes", "flush", *target).code == 0
    second = json.loads(run("checkpoint", tmp_path / "copy", "--json", *target).out)
    assert second["files"] == second["linked"] + second["copied"] > 0
    assert run("verify", tmp_path / "copy").code == 0
    assert run("scan", "homes", "--count", "--data", tmp_path / "copy").out == "2\n"
    refused = run("checkpoint", tmp_path / "copy", *target)
    assert refused.code == 3 and "has a store or other files" in refused.err


def test_an_unfinished_copy_is_no_store(run: Run, tmp_path: Path) -> None:
    store = ["--data", str(tmp_path / "store")]
    (tmp_path / "store").mkdir()
    assert run("create", "homes", "--schema", "id int64, primary key (id)", *store).code == 0
    assert run("checkpoint", tmp_path / "copy", *store).code == 0
    (tmp_path / "copy/manifest").unlink()
    for command in (["verify", tmp_path / "copy"], ["create", "x", "--schema", "id int64, primary key (id)"]):
        where = ["--data", tmp_path / "copy"] if command[0] == "create" else []
        told = run(*command, *where)
        assert told.code == 3 and "unfinished checkpoint" in told.err, told
    assert run("scan", "homes", "--data", tmp_path / "copy").code == 4
    assert run("checkpoint", tmp_path / "copy", *store).code == 0
    assert run("verify", tmp_path / "copy").code == 0

"""Commands open a store in a bucket by its URL and its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.cli.command import Run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that name a store in a bucket."""
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "cache"))
    return ["--data", f"file://{tmp_path / 'bucket'}", "--name", "a"]


def test_every_kind_of_command_opens_it(run: Run, place: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,v\n1,x\n2,y\n")
    for command in (
        ["load", "t", tmp_path / "rows.csv", "--create", "--key", "id"],  # of takes_target, with a job's options
        ["stats", "t"],  # of takes_target
        ["changes", "t", "--since", "1h"],
        ["commits", "t"],
    ):
        done = run(*command, *place)
        assert done.code == 0, done.err
    assert run("scan", "t", "--count", *place).out.strip() == "2"
    done = run("job", "copy", "t", *place, "--other-data", place[1], "--other-name", "b")
    assert done.code == 0, done.err
    assert run("scan", "t", "--count", *place[:3], "b").out.strip() == "2"


def test_a_name_and_a_bucket_go_together(run: Run, place: list[str], tmp_path: Path) -> None:
    missing = run("stats", "t", *place)
    assert missing.code == 4 and "there is no store 'a'" in missing.err
    assert "needs a name" in run("stats", "t", *place[:2]).err
    assert "--name selects a store in a bucket" in run("stats", "t", "--name", "a").err
    (tmp_path / "store").mkdir()
    assert "has no name" in run("stats", "t", "--data", tmp_path / "store", "--name", "a").err


def test_a_store_is_copied_to_another_bucket_and_opened_there(run: Run, place: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,v\n1,x\n2,y\n")
    assert run("load", "t", tmp_path / "rows.csv", "--create", "--key", "id", *place).code == 0
    there = f"file://{tmp_path / 'other'}"
    for to, name in ((there, "copy"), (place[1], "b")):
        copy = ["job", "copy-store", to, "--as", name]
        done = run(*copy, *place)
        assert done.code == 0, done.err
        assert f"{name} in {to} has the store as of" in done.out
        again = json.loads(run(*copy, "--json", *place).out)
        assert (again["files_copied"], again["bytes_copied"]) == (0, 0)
        assert json.loads(run("pin", "list", "--json", *place).out) == []
        assert run("verify", to, "--name", name).code == 0
        assert run("scan", "t", "--count", "--data", to, "--name", name).out.strip() == "2"
        opened = run(*copy, *place)
        assert opened.code == 6 and "opened since" in opened.err
    (tmp_path / "directory").mkdir()
    alone = run("load", "t", tmp_path / "rows.csv", "--create", "--key", "id", "--data", tmp_path / "directory")
    assert alone.code == 0
    refused = run("job", "copy-store", there, "--as", "d", "--data", tmp_path / "directory")
    assert refused.code == 3 and "this store is in a directory" in refused.err

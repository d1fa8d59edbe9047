"""Commands open a store in a bucket by its URL and its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Run


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
    assert "has a name" in run("stats", "t", *place[:2]).err
    assert "--name is for a store in a bucket" in run("stats", "t", "--name", "a").err
    (tmp_path / "store").mkdir()
    assert "has no name" in run("stats", "t", "--data", tmp_path / "store", "--name", "a").err

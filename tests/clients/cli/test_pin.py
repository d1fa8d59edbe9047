"""``nyala pin``: over a directory, a server, and a store in a bucket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.cli.command import Run


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "cache"))
    if request.param == "bucket":
        return ["--data", f"file://{tmp_path / 'bucket'}", "--name", "a"]
    (tmp_path / "store").mkdir()
    return ["--data", str(tmp_path / "store")]


def test_a_pin_is_made_listed_restored_and_dropped(run: Run, place: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id,v\n1,x\n2,y\n")
    assert run("load", "t", tmp_path / "rows.csv", "--create", "--key", "id", *place).code == 0
    made = run("pin", "create", "monday", "t", *place)
    assert made.code == 0 and "pin monday keeps t as of" in made.out, made.err
    assert run("pin", "create", "monday", "t", *place).code == 5
    assert run("delete", "t", "--where", "true", *place).code == 0
    assert run("drop", "t", "--yes", *place).code == 0
    (pin,) = json.loads(run("pin", "list", "--json", *place).out)
    assert (pin["name"], pin["table"]) == ("monday", "t")
    assert "monday\tt\t" in run("pin", "list", *place).out
    done = run("pin", "restore", "monday", "--as", "again", *place)
    assert done.code == 0 and "table again has 2 rows" in done.out, done.err
    assert run("scan", "again", "--where", "id = 2", "--csv", *place).out.split() == ['"id","v"', '2,"y"']
    assert run("pin", "drop", "monday", *place).code == 0
    assert run("pin", "drop", "monday", *place).code == 4
    assert json.loads(run("pin", "list", "--json", *place).out) == []

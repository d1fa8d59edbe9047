"""Completion in shells, and help: what a shell is given, and what it completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.main

import nyala
from nyala.__main__ import make_app
from nyala.clients.cli.complete import one_of
from nyala.flight_server.settings.settings import known
from nyala.schemas.store.grants import Privilege
from tests.clients.cli.command import Run


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete -o"), ("zsh", "#compdef nyala"), ("fish", "complete ")])
def test_a_script_for_each_shell(run: Run, monkeypatch: pytest.MonkeyPatch, shell: str, mark: str) -> None:
    monkeypatch.setenv("_NYALA_COMPLETE", f"source_{shell}")
    done = run()
    assert done.code == 0 and mark in done.out and "_NYALA_COMPLETE" in done.out


@pytest.mark.parametrize(
    ("words", "expected"), [("nyala che", "checkpoint"), ("nyala config sh", "show"), ("nyala top --onc", "--once")]
)
def test_bash_completes_commands_and_options(words: str, expected: str) -> None:
    script = f"""
        eval "$(_NYALA_COMPLETE=source_bash nyala)"
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _nyala_completion nyala; echo "${{COMPREPLY[@]}}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == [expected], done.stderr


def completed(words: str) -> list[str]:
    """Return what completes the last of ``words``, by the protocol of bash."""
    given = words.split(" ")
    asked = {"_NYALA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(given) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "nyala"], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_tables_are_those_of_the_server(url: str) -> None:
    with nyala.connect(url) as db:
        db.create_table("homes", pa.schema([pa.field("id", pa.int64(), False)]), primary_key=["id"])
    assert completed(f"nyala scan --url {url} ho") == ["homes"]
    assert completed(f"nyala scan --url {url} none") == []


def test_without_a_server_no_table_completes(tmp_path: Path) -> None:
    assert completed("nyala scan --url grpc://127.0.0.1:1 ho") == []
    assert completed(f"nyala scan --data {tmp_path} ho") == [] and not list(tmp_path.iterdir())


def test_words_of_options() -> None:
    assert completed("nyala serve --log-level w") == ["warning"]
    assert completed("nyala grant add alice homes al") == ["alter"]
    assert one_of(*Privilege)("") == ["read", "insert", "update", "delete", "alter", "maintain", "admin"]


def options_of_serve() -> dict[str, Any]:
    root: Any = typer.main.get_command(make_app())
    return {each.name: each for each in root.commands["serve"].params}


@pytest.mark.parametrize("name", ["drain_seconds", "scans_max", "puts_max", "log_level", "maintenance"])
def test_help_of_serve_names_the_default_of_an_option(name: str) -> None:
    default = known()[name].model.model_fields[name].default
    assert options_of_serve()[name].show_default == (f"{default:g}" if isinstance(default, float) else str(default))


def test_help_shows_defaults(run: Run) -> None:
    """Square brackets in a help text are markup, which shows nothing."""
    assert "[default: (64)]" in " ".join(run("serve", "--help").out.split())
    assert "grpc://127.0.0.1:8815" in run("scan", "--help").out


def test_every_option_of_serve_is_in_a_group() -> None:
    alone = {name for name, option in options_of_serve().items() if not option.rich_help_panel}
    assert alone == {"data", "assignments", "config"}

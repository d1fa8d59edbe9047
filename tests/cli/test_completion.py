"""Completion in shells: the scripts that the command prints, and what they complete in a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import Run


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

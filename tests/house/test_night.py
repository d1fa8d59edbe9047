"""The night runs every campaign, and a step that fails is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import night
from tests.night import ROOT, STEPS, Step, last_lines, run

BY_HAND = ["ceph", "stalled"]
"""Not every machine can build a Ceph; the other one prints figures, and fails by no result."""


def recipe(words: list[str]) -> str:
    """Return the commands that a step runs."""
    if words[0] != "make":
        return " ".join(words)
    return subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_night_runs_every_campaign() -> None:
    steps = [step.words(7, 1.0) for step in STEPS]
    recipes = "".join(map(recipe, [*steps, *(["make", name] for name in BY_HAND)]))
    campaigns = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        if re.search(r'add_argument\("--(seed|rows|sizes|counts)"', file.read_text())
    }
    assert len(campaigns) > 20
    assert {campaign for campaign in campaigns if campaign not in recipes} <= {"tests/night.py"}


def test_doses_and_seeds_are_filled_in() -> None:
    step = Step("some", "make fuzz MINUTES={dose} SEED={seed}", 60)
    assert step.words(7, 1.0) == ["make", "fuzz", "MINUTES=60", "SEED=7"]
    assert step.words(7, 0.001) == ["make", "fuzz", "MINUTES=1", "SEED=7"], "never nothing"
    assert all(("{dose}" in step.command) == bool(step.dose) for step in STEPS)


def test_a_step_that_fails_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = sys.executable
    steps = (Step("good", f"{python} -c 'print(\"fine {{seed}}\")'"), Step("bad", f"{python} -c 'raise SystemExit(3)'"))
    monkeypatch.setattr(night, "STEPS", steps)
    monkeypatch.setattr(night, "ROOT", tmp_path)
    monkeypatch.setattr(night, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(sys, "argv", ["night.py", "--seed", "5"])
    assert night.main() == 1
    text = capsys.readouterr().out
    assert "FAILED (3)" in text and last_lines(tmp_path / "logs" / "good.log")[-1] == "fine 5"
    monkeypatch.setattr(night, "STEPS", steps[:1])
    assert night.main() == 0


def test_a_step_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night, "_LONGEST_SECONDS", 0.2)
    assert run(["sleep", "60"], tmp_path / "log", {}) == 124

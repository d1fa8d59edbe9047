"""The night runs every campaign, and a step that fails is seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import night
from tests.night import ROOT, STEPS, Failed, Step, failed_seeds, failure_of, last_lines, run

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
    monkeypatch.setattr(night, "FAILED", tmp_path / "failed_seeds.txt")
    (tmp_path / "failed_seeds.txt").write_text("# a comment\n\ngood | 4 | | it failed\nbad | 3 | true | and this\n")
    monkeypatch.setattr(sys, "argv", ["night.py", "--seed", "5"])
    assert night.main() == 1
    text = capsys.readouterr().out
    assert "FAILED (3)" in text and last_lines(tmp_path / "logs" / "good.log")[-1] == "fine 5"
    assert last_lines(tmp_path / "logs" / "again-1-good-4.log")[-1] == "fine 4"
    assert (tmp_path / "logs" / "again-2-bad-3.log").read_text() == "true\n"
    assert text.index("again 1 good 4") > 0, "the table has it"
    assert (tmp_path / "logs" / "failed_seeds.txt").read_text() == "bad | 5 |  | why?\n"
    assert "bad | 5 |  | why?" in text
    monkeypatch.setattr(night, "STEPS", steps[:1])
    assert night.main() == 0


def test_a_step_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night, "_LONGEST_SECONDS", 0.2)
    assert run(["sleep", "60"], tmp_path / "log", {}) == 124


def test_a_night_without_a_seed_draws_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(night, "STEPS", ())
    monkeypatch.setattr(night, "LOGS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["night.py"])
    seeds = set()
    for _ in range(3):
        assert night.main() == 0
        seeds.add(capsys.readouterr().out.split("\n")[0])
    assert len(seeds) > 1 and all(re.fullmatch(r"seed \d+", each) for each in seeds)
    assert "--seed" not in recipe(["make", "night"])
    assert "--seed 7 " in recipe(["make", "night", "SEED=7"])


def test_a_failure_leaves_what_repeats_it() -> None:
    fuzz, simulate, crash = (
        next(each for each in STEPS if each.name == name) for name in ("fuzz", "simulate", "crash")
    )
    log = "seed 7: 30\n--options 'a=1'\nseed 8: 30\n--options 'b=2 c=3'\nfailed with --options 'b=2 c=3'\n"
    failed = failure_of(fuzz, 7, log)
    assert failed == Failed.parse(f"{failed}") == Failed("fuzz", 8, "--options 'b=2 c=3'", "why?")
    assert failed.words() == ["make", "fuzz", "MINUTES=3", "SEED=8", "OPTIONS=b=2 c=3"]
    assert failure_of(crash, 7, log).words()[-4:] == ["--seed", "8", "--options", "b=2 c=3"]
    replay = failure_of(simulate, 7, "seed 7000012 fails: ...\n  python -m tests.simulation.store --replay 7000012\n")
    assert replay.words() == [".venv/bin/python", "-m", "tests.simulation.store", "--replay", "7000012"]


def test_the_seeds_that_failed_once_are_of_steps() -> None:
    names = {step.name for step in STEPS}
    assert all(each.step in names and each.why and each.words() for each in failed_seeds())

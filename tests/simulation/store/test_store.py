"""The store in one thread: seeds are right, go the same way twice, and planted mistakes are seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dose import by_night, dose
from tests.simulation.campaign import smallest

from .__main__ import SIMULATION
from .plan import plan_of
from .planted import PLANS, PLANTED
from .run import run, run_seed

_SEEDS_OF_A_MISTAKE = 600
_ROOT = Path(__file__).parents[3]


def test_seeds_are_right() -> None:
    """In a process of their own, where a seed that fails does so again."""
    command = [sys.executable, "-m", "tests.simulation.store", "--seeds", str(dose(15, 200)), "--workers", "1"]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_seed_goes_the_same_way_twice() -> None:
    for seed in range(dose(4, 50)):
        first, second = run_seed(seed, 1_000), run_seed(seed, 1_000)
        assert first.lines == second.lines
        assert (first.trace, first.steps) == (second.trace, second.steps)


def test_a_seed_goes_the_same_way_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.store", "--replay", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 120}
    texts = [subprocess.run(command, cwd=_ROOT, env=environment, **how).stdout for _ in range(2)]
    assert texts[0] == texts[1]
    assert "trace" in texts[0]


@pytest.mark.parametrize("name", by_night(sorted(PLANTED), ("acknowledged_at_once", "rows_that_replace_values")))
def test_a_planted_mistake_is_seen(name: str) -> None:
    with PLANTED[name]():
        errors = (run(PLANS[name](seed)).error for seed in range(_SEEDS_OF_A_MISTAKE))
        assert any(error is not None for error in errors)


def test_a_failure_is_made_smaller() -> None:
    with PLANTED["snapshots_over_commits_in_flight"]():
        plan = next(plan for plan in map(plan_of, range(_SEEDS_OF_A_MISTAKE)) if run(plan).error is not None)
        small, outcome = smallest(SIMULATION, plan, seconds=20)
    assert small.size < plan.size
    assert outcome.error is not None
    assert run(small).error is None

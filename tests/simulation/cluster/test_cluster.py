"""The cluster in one thread: seeds are right, go the same way twice, and planted mistakes are seen."""

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
from .planted import FIRST_SEEDS, PLANTED
from .run import run, run_seed
from .scenario import scenario_of

_SEEDS_OF_A_MISTAKE = 200
_BY_DAY = ("refusal_is_mine", "parts_of_former_holders", "claims_deleted")
_SHARD = 100
_WITH_FLIGHT = 10
"""A short seed with clients of `clients/flight`, and a stream."""
_ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("first", by_night(range(0, 10 * _SHARD, _SHARD), (0,)))
def test_seeds_are_right(first: int) -> None:
    """In a process of their own, where a seed that fails does so again."""
    seeds = ["--start", str(first), "--seeds", str(dose(6, _SHARD))]
    command = [sys.executable, "-m", "tests.simulation.cluster", *seeds, "--workers", "1"]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_seed_goes_the_same_way_twice() -> None:
    assert scenario_of(_WITH_FLIGHT).flight
    for seed in {*range(dose(2, 30)), _WITH_FLIGHT}:
        first, second = run_seed(seed, 1_000), run_seed(seed, 1_000)
        assert first.lines == second.lines
        assert (first.trace, first.steps) == (second.trace, second.steps)


def test_a_seed_goes_the_same_way_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.simulation.cluster", "--replay", "7"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    how: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 120}
    texts = [subprocess.run(command, cwd=_ROOT, env=environment, **how).stdout for _ in range(2)]
    assert texts[0] == texts[1]
    assert "trace" in texts[0]


@pytest.mark.parametrize(
    "name", by_night(sorted(PLANTED), ("refusal_is_mine", "parts_of_former_holders", "claims_deleted"))
)
def test_a_planted_mistake_is_seen(name: str) -> None:
    """It is looked for from the seed on that showed it first: others may do so once the product takes other turns."""
    first = FIRST_SEEDS[name]
    with PLANTED[name]():
        errors = (run_seed(seed).error for seed in range(first, first + _SEEDS_OF_A_MISTAKE))
        assert any(error is not None for error in errors)


@pytest.mark.night
def test_a_failure_is_made_smaller() -> None:
    with PLANTED["refusal_is_mine"]():
        scenarios = map(scenario_of, range(_SEEDS_OF_A_MISTAKE))
        scenario = next(scenario for scenario in scenarios if run(scenario).error is not None)
        small, outcome = smallest(SIMULATION, scenario, seconds=20)
    assert small.size < scenario.size
    assert outcome.error is not None
    assert run(small).error is None

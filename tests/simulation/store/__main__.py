"""Races in a store, by seeds: ``python -m tests.simulation.store --seeds 1000``, ``--replay 7`` to see one again."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.simulation.campaign import Simulation, main

from .plan import plan_of
from .planted import PLANTED
from .run import Outcome, run


def story(outcome: Outcome) -> Iterator[str]:
    """Yield the calls of a run."""
    return map(str, outcome.history.calls)


SIMULATION = Simulation("tests.simulation.store", plan_of, run, story, PLANTED)

if __name__ == "__main__":
    sys.exit(main(SIMULATION))

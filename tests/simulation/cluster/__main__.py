"""Failover by seeds: ``python -m tests.simulation.cluster --seeds 1000``, ``--replay 7`` to see one again."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.simulation.campaign import Simulation, main
from tests.simulation.store.run import Outcome

from .planted import PLANTED
from .run import run
from .scenario import scenario_of


def story(outcome: Outcome) -> Iterator[str]:
    """Yield what the processes, the failures and the clients did."""
    yield from outcome.events
    yield from map(str, outcome.history.calls)


SIMULATION = Simulation("tests.simulation.cluster", scenario_of, run, story, PLANTED)

if __name__ == "__main__":
    sys.exit(main(SIMULATION))

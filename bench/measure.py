"""Timing: wall clock, many rounds, and the subjects of one table taking turns in every round.

Turns matter on a shared machine: a busy minute then slows all subjects, not the one that was running.
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Sample = TypeVar("Sample")


def seconds(action: Callable[[], Any]) -> float:
    """Return how long one call takes; its result is dropped inside the measured time."""
    gc.collect()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def take_turns(
    actions: Mapping[str, Callable[[int], Any]],
    rounds: int,
    measure: Callable[[Callable[[], Any]], Sample] = seconds,
) -> dict[str, list[Sample]]:
    """Call every action once a round, with the number of the round; return what was measured of each by name.

    Odd rounds go backwards, so that nobody always runs in the wake of the same neighbour.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in actions}
    for number in range(rounds):
        order = list(actions.items())
        for name, action in reversed(order) if number % 2 else order:
            samples[name].append(measure(lambda action=action, number=number: action(number)))
    return samples

"""Choices: which thread goes on at a point where others could.

Two ways. A *random walk* gives the turn away with the same chance at each point. *Priorities* are those of PCT: each
thread has a random priority, the highest that can run goes on, and at a few points, drawn before, the running thread
falls below all others (Burckhardt, Kothari, Musuvathi, Nagarakatte: A Randomized Scheduler with Probabilistic
Guarantees of Finding Bugs, ASPLOS 2010). A walk finds what many orders show. Priorities find what needs one thread to
stand still for long.

Threads are known by their numbers, in the order of their start.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

_POINTS_MOST = 20_000
"""Points of a priority change are drawn among so many steps; a shorter run meets only some of them."""
_ALONE_STEPS = 2_000
"""A thread that asks so often without a pause waits for another one, by looking again and again."""


class Choices(Protocol):
    """Decides which of several threads goes on."""

    def next(self, runnable: Sequence[int], running: int | None, step: int) -> int:
        """Return one of ``runnable``, which is not empty; ``running`` is among them unless it has to wait."""
        ...


class RandomWalk:
    """Gives the turn away with a chance, to any of the others alike."""

    def __init__(self, random: Random, chance: float) -> None:
        self._random, self._chance = random, chance

    def next(self, runnable: Sequence[int], running: int | None, step: int) -> int:
        del step
        if running is not None and running in runnable and self._random.random() >= self._chance:
            return running
        return self._random.choice(runnable)


class Priorities:
    """The highest priority goes on; it falls at ``changes`` points drawn before (PCT)."""

    def __init__(self, random: Random, changes: int, steps: int = _POINTS_MOST) -> None:
        self._random = random
        self._points = {random.randrange(steps) for _ in range(changes)}
        self._priorities: dict[int, float] = {}
        self._lowest = 0.0
        self._alone = 0

    def next(self, runnable: Sequence[int], running: int | None, step: int) -> int:
        for number in runnable:
            if number not in self._priorities:
                self._priorities[number] = 1 + self._random.random()
        self._alone = self._alone + 1 if running in runnable else 0
        if running is not None and (step in self._points or self._alone > _ALONE_STEPS):
            self._alone = 0
            self._lowest -= 1
            self._priorities[running] = self._lowest
        return max(runnable, key=self._priorities.__getitem__)


def choices_of(random: Random) -> Choices:
    """Return a way to choose, drawn at random."""
    if random.random() < 0.5:
        return RandomWalk(random, random.choice((0.02, 0.1, 0.3, 0.8)))
    return Priorities(random, random.choice((1, 2, 3, 5, 20)), random.choice((300, 3_000, _POINTS_MOST)))

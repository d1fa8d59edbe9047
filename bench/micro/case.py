"""One question put to several subjects, and the clock.

The clock counts what this thread spent on a processor. All subjects run in one thread and wait for nothing, so on an
idle machine that is the wall clock; on a busy one it does not count the turns of others (caches and memory are still
shared with them).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.report import Result

SAMPLE_SECONDS = 0.003
"""An action is repeated until a sample takes this long, so that the clock's own cost vanishes."""

NYALA = "nyala"


@dataclass(frozen=True)
class Case:
    """What is measured: ``amount`` of ``unit`` (without the "/s") a call, the same for all subjects."""

    name: str
    unit: str
    amount: float
    actions: Mapping[str, Callable[[], Any]]

    def measure(self, rounds: int) -> list[Result]:
        """Let the subjects take turns for ``rounds`` rounds; return amounts a second."""
        calls = {subject: _calls_a_sample(action) for subject, action in self.actions.items()}
        samples: dict[str, list[float]] = {subject: [] for subject in self.actions}
        for number in range(rounds):
            turns = list(self.actions.items())
            for subject, action in reversed(turns) if number % 2 else turns:
                count = calls[subject]
                samples[subject].append(self.amount * count / _seconds(action, count))
        return [Result(self.name, subject, f"{self.unit}/s", each) for subject, each in samples.items()]


def _calls_a_sample(action: Callable[[], Any]) -> int:
    action()  # compiles, and fills the caches
    return max(1, round(SAMPLE_SECONDS / max(_seconds(action, 1), 1e-7)))


def _seconds(action: Callable[[], Any], count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        action()
    return time.thread_time() - start

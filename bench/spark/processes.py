"""The processor time of this process and all that it started: the driver, the Java machine, its Pythons, the server.

On a machine that does other work too it says more than the clock. Needs Linux.
"""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_IDLE_SHARE = 0.1
"""Of one processor: what takes less has nothing to do."""


class Cost(NamedTuple):
    """What one call took."""

    seconds: float
    processor_seconds: float


def cost(action: Callable[[], Any]) -> Cost:
    """Return what one call takes; its result is dropped inside the measured time."""
    gc.collect()
    busy, start = processor_seconds(os.getpid()), time.perf_counter()
    action()
    return Cost(time.perf_counter() - start, processor_seconds(os.getpid()) - busy)


def processor_seconds(root: int) -> float:
    """Return what a process and all below it have computed for, those that have ended and were waited for included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended just now
            continue
        number = int(process.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))
    return sum(ticks[number] for number in ticks if _is_below(number, root, parents)) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(root: int, patience_seconds: float = 60) -> None:
    """Return when a process and all below it have nothing left to do, or after some time."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        busy = processor_seconds(root)
        time.sleep(0.5)
        if processor_seconds(root) - busy < 0.5 * _IDLE_SHARE:
            return


def _is_below(number: int, root: int, parents: dict[int, int]) -> bool:
    while number in parents and number != root:
        number = parents[number]
    return number == root

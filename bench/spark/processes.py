"""The processor time of this process and all that it started: the driver, the Java machine, its Pythons, the server.

On a machine that does other work too it says more than the clock. Needs Linux.
"""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_IDLE_SHARE = 0.1
"""Of one processor: what takes less has nothing to do."""
_LOOKS_A_SECOND = 10

Process = tuple[int, int]
"""Its number, and when it was started: numbers are used again."""


class Cost(NamedTuple):
    """What one call took."""

    seconds: float
    processor_seconds: float


class Meter:
    """Adds up what this process and all below it compute for.

    It looks again and again, since processes end, and Spark lets its workers go without asking what they took; of one
    that ends, what it did after the last look is missing.
    """

    def __init__(self, root: int) -> None:
        """Begin."""
        self._root = root
        self._before = _ticks(root)
        self._latest = dict(self._before)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """End, and return the seconds of processor time since the beginning."""
        self._over.set()
        self._thread.join()
        self._latest |= _ticks(self._root)
        used = sum(ticks - self._before.get(process, 0) for process, ticks in self._latest.items())
        return used / os.sysconf("SC_CLK_TCK")

    def _look_again(self) -> None:
        while not self._over.wait(1 / _LOOKS_A_SECOND):
            self._latest |= _ticks(self._root)


def cost(action: Callable[[], Any]) -> Cost:
    """Return what one call takes; its result is dropped inside the measured time."""
    gc.collect()
    meter, start = Meter(os.getpid()), time.perf_counter()
    try:
        action()
    finally:
        seconds, processor_seconds = time.perf_counter() - start, meter.stop()
    return Cost(seconds, processor_seconds)


def wait_until_idle(root: int, quiet_seconds: float = 0.5, patience_seconds: float = 60) -> None:
    """Return when a process and all below it have had nothing to do for a while, or after some time."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        meter = Meter(root)
        time.sleep(quiet_seconds)
        if meter.stop() < quiet_seconds * _IDLE_SHARE:
            return


def _ticks(root: int) -> dict[Process, int]:
    """Return what a process and all below it have computed for themselves."""
    parents: dict[int, int] = {}
    ticks: dict[Process, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended just now
            continue
        parents[int(process.name)] = int(fields[1])
        ticks[int(process.name), int(fields[19])] = int(fields[11]) + int(fields[12])
    return {process: spent for process, spent in ticks.items() if _is_below(process[0], root, parents)}


def _is_below(number: int, root: int, parents: dict[int, int]) -> bool:
    while number in parents and number != root:
        number = parents[number]
    return number == root

"""LineTurns: a thread may also lose its turn at a line of the engine, not only where it takes a lock.

The interpreter's tracing calls back at each line; once in ``every`` lines, on the average, other threads get their
chance. It finds the lock that is missing, at the price of a run that takes several times as long.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import nyala.engine

from .scheduler import Scheduler

_ENGINE = str(Path(nyala.engine.__file__).parent)
_WORLD = tuple(f"{_ENGINE}/{name}" for name in ("threads.py", "fs/memory.py", "fs/durable.py", "bucket/memory.py"))
"""Not the engine, but what it stands on: a call is one step."""
_KERNELS = f"{_ENGINE}/kernels/"
"""A kernel is found at its first call of a process, and at no other."""


class LineTurns:
    """A context in which lines of the engine are points of a scheduler; ``every`` 0: none is."""

    def __init__(self, scheduler: Scheduler, random: Random, every: int) -> None:
        self._scheduler, self._random, self._every = scheduler, random, every
        self._left = self._drawn() if every else 0
        self._kinds: dict[CodeType, Any] = {}
        """For each function that was called, what sees its lines; None: nothing does."""

    def _drawn(self) -> int:
        return 1 + int(self._random.expovariate(1 / self._every))

    def __enter__(self) -> None:
        if self._every:
            threading.settrace(self._call)

    def __exit__(self, *error: object) -> None:
        if self._every:
            threading.settrace(None)  # pyright: ignore[reportArgumentType]

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        try:
            return self._kinds[code]
        except KeyError:
            kind = self._kinds[code] = self._line if _is_of_the_engine(code) else None
            return kind

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left <= 0:
                self._left = self._drawn()
                if not self._scheduler.is_over:
                    self._scheduler.point()
        return self._line


def _is_of_the_engine(code: CodeType) -> bool:
    file = code.co_filename
    is_engine = file.startswith(_ENGINE) and file not in _WORLD and not file.startswith(_KERNELS)
    return is_engine and code.co_name != "<module>"

"""World: the engine's seams in the hands of a simulation: threads, clocks, and the randomness of names.

Within `simulated` the engine's threads take turns, its clocks show virtual time, and its random numbers come from the
seed. What the engine keeps for the whole process (pools of threads) is made anew for each run.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import _base as futures
from contextlib import ExitStack, contextmanager, nullcontext
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import nyala.clients.api
import nyala.engine
import nyala.schemas
from nyala.engine import threads
from nyala.engine.mvcc import clock
from nyala.engine.scan.read import pool
from nyala.engine.vectors.memory.reused import release_all

from .primitives import Primitives
from .scheduler import Scheduler

EPOCH_SECONDS = 1_700_000_000
"""The time of day at which each simulation begins."""


class VirtualTime:
    """Stands for the module ``time`` in `engine/mvcc/clock`."""

    CLOCK_BOOTTIME = 7

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time_ns(self) -> int:
        running = self._scheduler.running
        error = running.process.clock_error_seconds if running and running.process else 0.0
        return int((EPOCH_SECONDS + self._scheduler.now + error) * 1e9)

    def perf_counter(self) -> float:
        return self._scheduler.now

    def clock_gettime(self, clock: int) -> float:
        assert clock == self.CLOCK_BOOTTIME
        return self._scheduler.now


class Undivided:
    """The lock of a disk: others may go on before a call, but not within it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> None:
        self._scheduler.point()
        self._scheduler.undivided_depth += 1

    def __exit__(self, *error: object) -> None:
        self._scheduler.undivided_depth -= 1


class Kept(Random):
    """A chance by which all that was written is kept: only the process died."""

    def random(self) -> float:
        return 1.0

    def randint(self, a: int, b: int) -> int:
        return b


@contextmanager
def simulated(scheduler: Scheduler, random: Random) -> Iterator[VirtualTime]:
    """Let the engine run in a scheduler's world; yield its clock."""
    time = VirtualTime(scheduler)
    with ExitStack() as stack:
        doubles = Primitives(scheduler).names()
        for name, double in doubles.items():
            stack.enter_context(patch.object(threads, name, double))
        stack.enter_context(patch.object(futures, "threading", SimpleNamespace(**doubles)))  # what a future waits with
        stack.enter_context(patch.object(clock, "time", time))
        stack.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(int=random.getrandbits(128), version=4)))
        stack.enter_context(patch.object(pool, "_HELPERS", pool._Helpers()))
        _prepare_process()
        _forget()
        for holder, name, kind in _locks_of_the_process():
            stack.enter_context(patch.object(holder, name, doubles[kind]()))
        yield time


@functools.cache
def _prepare_process() -> None:
    """Import all that the engine may import later, and take away the real lock that a cached property of Python 3.11
    holds while it is computed: whoever lost its turn within would keep it."""
    for package in (nyala.engine, nyala.schemas, nyala.clients.api):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "kernels" not in module.name:
                importlib.import_module(module.name)
    for thing in _things_of_modules():
        if type(thing) is functools.cached_property and hasattr(thing, "lock"):
            thing.lock = nullcontext()  # pyright: ignore[reportAttributeAccessIssue]


def _things_of_modules() -> Iterator[Any]:
    """Yield what the modules of the product have, and the attributes of their classes."""
    for module in [module for name, module in sys.modules.items() if name.startswith("nyala.")]:
        for thing in list(vars(module).values()):
            yield thing
            if isinstance(thing, type):
                yield from list(vars(thing).values())


@functools.cache
def _locks_of_the_process() -> list[tuple[Any, str, str]]:
    """Return the locks that modules of the engine made when they were imported, alone or in objects of theirs, as the
    holder, the attribute and the kind. Without a double, a thread that lost its turn would keep them from the others.
    """
    kinds: dict[type, str] = {type(threading.Lock()): "Lock", type(threading.RLock()): "RLock"}
    found = []
    for module in [module for name, module in sys.modules.items() if name.startswith("nyala.engine.")]:
        for thing in [module, *vars(module).values()]:
            if thing is not module and not type(thing).__module__.startswith("nyala.engine."):
                continue
            slots = [slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())]
            for name in [*getattr(thing, "__dict__", ()), *slots]:
                if (kind := kinds.get(type(getattr(thing, name, None)))) is not None:
                    found.append((thing, name, kind))
    return found


def _forget() -> None:
    """Let the engine forget what it keeps for the whole process: a run must not depend on those before it."""
    for cached in _cached_functions():
        cached.cache_clear()
    release_all()


@functools.cache
def _cached_functions() -> list[Any]:
    kept = {"library"}  # the machine code of the kernels
    functions = {id(thing): thing for thing in _things_of_modules() if type(thing) is functools._lru_cache_wrapper}
    hooks = "nyala.flight_server.native."  # they stay in Arrow's libraries
    return [
        thing for thing in functions.values() if thing.__name__ not in kept and not thing.__module__.startswith(hooks)
    ]

"""FlightWorld: the seams of the Flight client in the hands of a simulation: threads, clocks, chance and connections.

The client takes these from the standard library and from pyarrow, by names in its modules. Within `simulated_clients`
the names stand for doubles: nothing of the product is made for that.
"""

from __future__ import annotations

import importlib
import pkgutil
import random as chance
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow.flight as fl

from nyala.clients import flight, spark
from nyala.clients.api import per_process
from nyala.clients.flight import transport
from nyala.flight_server.handlers import short_scan
from tests.simulation.primitives import Pool, Primitives
from tests.simulation.scheduler import Scheduler

_PROCESS: ContextVar[int] = ContextVar("process", default=0)
_ROOMS = (flight, spark)


@dataclass(frozen=True)
class CallOptions:
    """What the client asks of a call: pyarrow's own do not tell."""

    timeout: float | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@contextmanager
def simulated_clients(scheduler: Scheduler, random: Random, connect: Callable[[str], object]) -> Iterator[None]:
    """Let Flight clients live in a scheduler's world, and ``connect`` to the servers in it."""
    names, clock = Primitives(scheduler).names(), SimpleNamespace()
    clock.monotonic = clock.perf_counter = names["monotonic"]
    clock.sleep = names["sleep"]
    clock.thread_time = lambda: 0.0  # a short scan is one of few rows, however busy the machine is
    doubles: dict[int, Any] = {
        id(time): clock,
        id(threading): SimpleNamespace(**names),
        id(chance): random,
        id(chance.uniform): random.uniform,
        id(ThreadPoolExecutor): lambda most, thread_name_prefix="pool": Pool(scheduler, most, thread_name_prefix),
    }
    with ExitStack() as stack:
        for module, name, thing in _seams():
            stack.enter_context(patch.object(module, name, doubles[thing]))
        stack.enter_context(patch.object(transport, "prepare", lambda: None))
        stack.enter_context(patch.object(fl, "connect", lambda location, **how: connect(str(location))))
        stack.enter_context(patch.object(fl, "FlightCallOptions", CallOptions))
        stack.enter_context(patch.object(short_scan, "time", clock))
        stack.enter_context(patch.object(per_process, "os", SimpleNamespace(getpid=_PROCESS.get)))
        stack.enter_context(patch.dict(per_process._servers, clear=True))
        stack.enter_context(patch.dict(per_process._all_servers, clear=True))
        yield


@contextmanager
def in_process(number: int) -> Iterator[None]:
    """Let the body be the work of a client's process: each has connections of its own."""
    token = _PROCESS.set(number)
    try:
        yield
    finally:
        _PROCESS.reset(token)


def end_process(number: int) -> None:
    """Close the connections of a process."""
    for connections in (per_process._servers, per_process._all_servers):
        for key in [key for key in connections if key[0] == number]:
            connections.pop(key).close()


@cache
def _seams() -> list[tuple[ModuleType, str, int]]:
    """Return the names of the client's modules that stand for what has a double, each with the identity of that."""
    for package in _ROOMS:
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    kinds = {id(thing) for thing in (time, threading, chance, chance.uniform, ThreadPoolExecutor)}
    return [
        (module, name, id(thing))
        for module in list(sys.modules.values())
        if module.__name__.startswith(tuple(f"{package.__name__}." for package in _ROOMS)) and module is not transport
        for name, thing in vars(module).items()
        if id(thing) in kinds
    ]

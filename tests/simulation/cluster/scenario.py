"""Scenario: all that a run of a seed does, as data: the servers, what befalls them, and the steps of the clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from nyala.engine.options import StoreOptions
from tests.simulation.store.plan import KEYS, KINDS_OF_UPKEEP, OPERATIONS, TABLES, Actor, Step

WRITER, ONCE, READER, UPKEEP = "writer", "once", "reader", "upkeep"
"""A client that numbers its writes and repeats them; one that sends each once; one that reads; one that maintains."""

_WOES = (
    "kill", "kill", "freeze", "freeze", "freeze", "cut_bucket", "cut_bucket", "cut_clients", "faults", "faults", "slow",
    "stop", "release", "take", "force", "sweep", "calm",
)  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """A run: ``clients`` call the servers, while each of ``woes`` has its failures, one after the other."""

    seed: int
    options: dict[str, Any]
    buckets: int
    """Hash partitions of each table; 0: none."""
    servers: int
    clients: tuple[Actor, ...]
    woes: tuple[Actor, ...]
    line_every: int
    """A thread may lose its turn at a line of the engine, once in so many on the average; 0: at locks alone."""

    @property
    def store_options(self) -> StoreOptions:
        return StoreOptions(**self.options)

    def __str__(self) -> str:
        lines = [f"{self.servers} servers, options {self.options}, {self.buckets} buckets, a line in {self.line_every}"]
        lines += [f"  {actor.name}: {'; '.join(map(str, actor.steps))}" for actor in (*self.clients, *self.woes)]
        return "\n".join(lines)

    def smaller(self) -> Iterator[Scenario]:
        """Yield scenarios with less: an actor, half of its steps, one step, a server."""
        for kind in ("woes", "clients"):
            actors: tuple[Actor, ...] = getattr(self, kind)
            for place, actor in enumerate(actors):
                yield replace(self, **{kind: actors[:place] + actors[place + 1 :]})
                for rest in actor.shorter():
                    yield replace(self, **{kind: (*actors[:place], rest, *actors[place + 1 :])})
        if self.servers > 2:
            yield replace(self, servers=self.servers - 1)

    @property
    def size(self) -> int:
        """How many steps it has."""
        return sum(len(actor.steps) for actor in (*self.clients, *self.woes))


def scenario_of(seed: int) -> Scenario:
    """Draw a scenario."""
    random = Random(f"{seed} scenario")
    servers = random.choice((2, 2, 3))
    lease = random.choice((1.0, 2.0, 5.0))
    return Scenario(
        seed,
        _options(random, lease),
        random.choice((0, 0, 2)),
        servers,
        tuple(_clients(random, servers, lease)),
        tuple(Actor(f"woe {number}", _woes(random, servers, lease)) for number in range(random.choice((1, 1, 2)))),
        random.choice((*(0,) * 19, 2_000)),  # such a run takes several times as long
    )


def _options(random: Random, lease: float) -> dict[str, Any]:
    return {
        "maintenance": random.choice(("on", "off")),
        "flush_bytes": random.choice((400, 4_000, 1 << 20)),
        "flush_deltas_bytes": random.choice((200, 2_000, 1 << 20)),
        "history_gc_bytes": random.choice((1, 1 << 20)),
        "scan_threads": 0,  # the helpers of a process are those of all processes here
        "load_threads": 1,
        "lease_seconds": lease,
        "log_patience_seconds": random.choice((0.5, 2.0, 10.0)),
        "page_cache_bytes": random.choice((1, 1 << 20)),
        "disk_reserve_bytes": 0,
        "bucket_cache_bytes": random.choice((1 << 12, 1 << 20)),
    }


def _clients(random: Random, servers: int, lease: float) -> Iterator[Actor]:
    count = random.choice((4, 10, 30))
    for number in range(random.choice((1, 2, 3))):
        name = f"{random.choice((WRITER, ONCE))} {number}"
        yield Actor(name, _steps(random, count, lease, _writing))
    for number in range(random.choice((0, 1, 2))):
        yield Actor(f"{READER} {number}", _steps(random, count, lease, _reading))
    for number in range(servers):
        if random.random() < 0.6:  # reads at one server only, and waits for it
            yield Actor(f"{READER} at {number}", _steps(random, 3 * count, lease, _reading))
    if random.random() < 0.5:
        yield Actor(UPKEEP, _steps(random, count, lease, _upkeep))


def _steps(random: Random, count: int, lease: float, draw: Any) -> tuple[Step, ...]:
    steps: list[Step] = []
    pauses = random.choice(((0.02,), (0.2,), (0.01, 0.3, lease)))
    for _ in range(random.randint(1, count)):
        steps.append(draw(random))
        if random.random() < 0.7:
            steps.append(Step("sleep", "one", (random.choice(pauses),)))
    return tuple(steps)


def _rows(random: Random) -> tuple[tuple[int, int | None], ...]:
    numbers = [random.choice((None, *range(-3, 4))) for _ in range(random.choice((1, 1, 2, 5)))]
    return tuple((random.randrange(KEYS), number) for number in numbers)


def _writing(random: Random) -> Step:
    table = random.choice(TABLES)
    if random.random() < 0.2:
        return _reading(random)
    if random.random() < 0.2:
        writes = tuple(
            (random.choice(TABLES), random.choice(OPERATIONS), _rows(random)) for _ in range(random.randint(1, 3))
        )
        return Step("transact", table, (writes, random.random() < 0.1))
    return Step("write", table, (random.choice(OPERATIONS), _rows(random), random.random() < 0.3, None))


def _reading(random: Random) -> Step:
    table, kind = random.choice(TABLES), random.random()
    if kind < 0.3:
        return Step("scan", table, (False,))
    if kind < 0.5:
        return Step("get", table, (random.randrange(KEYS),))
    if kind < 0.55:
        return Step("sum", table)
    if kind < 0.6:
        return Step("now", table)
    if kind < 0.75:
        return Step("scan_at", table, (False, random.random()))
    return Step("stale", table, (random.choice((0.0, 0.5, 5.0)),))


def _upkeep(random: Random) -> Step:
    return Step("maintain", random.choice(TABLES), (random.choice(KINDS_OF_UPKEEP),))


def _woes(random: Random, servers: int, lease: float) -> tuple[Step, ...]:
    return tuple(_woe(random, servers, lease) for _ in range(random.randint(1, 6)))


def _woe(random: Random, servers: int, lease: float) -> Step:
    """Draw a failure: its kind, the server, for how long, and how bad. The server -1 is the one with the store."""
    place = random.choice((-1, -1, random.randrange(servers)))
    seconds = random.choice((0.1, lease / 2, lease * 1.2, lease * 3)) * (0.5 + random.random())
    kind = random.choice(_WOES)
    how: Any = None
    if kind in ("cut_bucket", "cut_clients"):
        how = random.choice(("requests", "answers", "both"))
    elif kind in ("faults", "slow"):
        how = random.choice((0.02, 0.1, 0.4))
    elif kind in ("kill", "stop"):
        how = random.choice((0, 0, 3600, -3600))
    return Step(kind, "", (place, round(seconds, 2), how))

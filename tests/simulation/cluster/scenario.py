"""Scenario: all that a run of a seed does, as data: the servers, what befalls them, and the steps of the clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from nyala.engine.options import StoreOptions
from tests.simulation.store.plan import KEYS, KINDS_OF_UPKEEP, OPERATIONS, TABLES, Actor, Step

WRITER, ONCE, READER, UPKEEP, MAKER = "writer", "once", "reader", "upkeep", "maker"
"""A client that numbers its writes and repeats them; one that sends each once; one that reads; one that maintains; one
that makes tables, and looks for them."""
STREAM = "stream"
"""A client that follows the changes of a table."""

_LEASES = (1.0, 2.0, 5.0)
_LARGE_ROWS = 500
"""As many rows of a commit take longer than a lease on a slow line."""
_FLIGHT_SHARE = 0.25
"""Of the seeds: in so many there are clients of `clients/flight`."""
_WOES = (
    "kill", "kill", "freeze", "freeze", "freeze", "cut_bucket", "cut_bucket", "cut_clients", "faults", "faults", "slow",
    "stop", "release", "take", "force", "usurp", "usurp", "sweep", "calm",
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
    leases: tuple[float, ...]
    """The lease of each server."""
    slots: dict[str, int]
    """Options of the log that a store has not."""
    bytes_a_second: int
    """What the lines to the bucket carry; 0: any."""
    copied_after: float | None = None
    """The bucket is copied after so many seconds, is put back to that state at the end, and all goes on from it."""
    flight: frozenset[str] = frozenset()
    """The clients that are those of `clients/flight`, by name; the others look for the holder themselves."""

    @property
    def store_options(self) -> StoreOptions:
        return StoreOptions.model_validate(self.options)

    def options_of(self, server: int) -> StoreOptions:
        """Return the options of a server."""
        return StoreOptions.model_validate(self.options | {"lease_seconds": self.leases[server]})

    def __str__(self) -> str:
        lines = [
            f"{self.servers} servers, options {self.options}, {self.buckets} buckets, a line in {self.line_every}",
            f"leases {self.leases}, slots {self.slots}, {self.bytes_a_second} bytes a second",
            f"put back to the state after {self.copied_after} s" if self.copied_after is not None else "never put back",
            f"over Flight: {', '.join(sorted(self.flight)) or 'nobody'}",
        ]
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
        if self.copied_after is not None:
            yield replace(self, copied_after=None)
        if self.servers > 2:
            yield replace(self, servers=self.servers - 1)

    @property
    def size(self) -> int:
        """How many steps it has."""
        return sum(len(actor.steps) for actor in (*self.clients, *self.woes))


def scenario_of(seed: int) -> Scenario:
    """Draw a scenario."""
    return _with_flight(_scenario_of(seed, Random(f"{seed} scenario")))


def _scenario_of(seed: int, random: Random) -> Scenario:
    servers = random.choice((2, 2, 3))
    lease = random.choice(_LEASES)
    speed = random.choice((*(0,) * 7, int(8_000 / lease)))
    is_equal = random.random() < 0.7
    leases = [lease if is_equal else random.choice(_LEASES) for _ in range(servers)]
    return Scenario(
        seed,
        _options(random, lease),
        random.choice((0, 0, 2)),
        servers,
        tuple(_clients(random, servers, lease, speed)),
        tuple(Actor(f"woe {number}", _woes(random, servers, lease)) for number in range(random.choice((1, 1, 2)))),
        random.choice((*(0,) * 19, 2_000)),  # such a run takes several times as long
        tuple(leases),
        {"free_slots": random.choice((8, 8, 256)), "flush_slots": random.choice((8, 2_048))},
        speed,
        random.choice((None, None, None, None, None, 0.5, 3.0, 10.0)),
    )


def _with_flight(scenario: Scenario) -> Scenario:
    """Let some clients, in some seeds, be those of `clients/flight`. These draws are their own, so that the seeds in
    which there are none go as they did before there were any."""
    random = Random(f"{scenario.seed} Arrow Flight")
    if random.random() >= _FLIGHT_SHARE:
        return scenario
    share, lease = random.choice((0.5, 1.0)), max(scenario.leases)
    names = [actor.name for actor in scenario.clients if not actor.name.startswith(f"{READER} at ")]
    streams = [Actor(f"{STREAM} {number}", _following(random, lease)) for number in range(random.choice((0, 1, 2)))]
    flight = {name for name in names if random.random() < share} | {stream.name for stream in streams}
    woes = (*scenario.woes, *([Actor("blackouts", _blackouts(random))] if random.random() < 0.5 else []))
    return replace(scenario, clients=(*scenario.clients, *streams), woes=woes, flight=frozenset(flight))


def _blackouts(random: Random) -> tuple[Step, ...]:
    """Draw when all servers are killed at once."""
    steps: list[Step] = []
    for _ in range(random.randint(1, 3)):
        steps.append(Step("calm", "", (0, round(random.random() * 10, 2), None)))
        steps.append(Step("blackout", "", (0, round(random.random() * 20, 2), None)))
    return tuple(steps)


def _following(random: Random, lease: float) -> tuple[Step, ...]:
    """Draw how a stream follows a table: its micro-batches, each of which may be the first of another query."""
    table, start = random.choice(TABLES), random.choice(("first", "earliest"))
    limit = random.choice((None, None, 1, 3))
    pauses = random.choice(((0.2,), (0.2, 1.0), (0.2, lease)))
    steps: list[Step] = []
    for _ in range(random.choice((5, 20, 40))):
        steps.append(Step("batch", table, (start, limit, random.random() < 0.3)))
        steps.append(Step("sleep", table, (random.choice(pauses),)))
    return tuple(steps)


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


def _clients(random: Random, servers: int, lease: float, speed: int) -> Iterator[Actor]:
    count = random.choice((4, 10, 30))
    if speed:
        yield Actor(f"{WRITER} of much", _steps(random, 3, lease, _writing_much))
    if random.random() < 0.3:
        yield Actor(f"{WRITER} of parts", tuple(_transaction(random, 6) for _ in range(random.randint(1, count))))
    if random.random() < 0.3:
        yield Actor(MAKER, _steps(random, count, lease, _making))
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
        return _transaction(random, 3)
    return Step("write", table, (random.choice(OPERATIONS), _rows(random), random.random() < 0.3, None))


def _transaction(random: Random, most: int) -> Step:
    writes = tuple(
        (random.choice(TABLES), random.choice(OPERATIONS), _rows(random)) for _ in range(random.randint(1, most))
    )
    return Step("transact", random.choice(TABLES), (writes, random.random() < 0.1))


def _writing_much(random: Random) -> Step:
    rows = tuple((key, random.randrange(1_000)) for key in range(_LARGE_ROWS))
    return Step("write", random.choice(TABLES), ("upsert", rows, False, None))


def _making(random: Random) -> Step:
    return Step("make" if random.random() < 0.3 else "find", random.choice(TABLES), (random.random(),))


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

"""Plan: all that a run of a seed does, as data: the options of the store, the actors, and the steps of each.

A plan is drawn from a seed, and can be made smaller: a failure is shown with the fewest steps that still fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from nyala.engine.options import StoreOptions
from tests.campaigns.options import TINY

TABLES = ("one", "two")
KEYS = 12
_LIVES, _STEPS = (1, 1, 2, 2, 3), (3, 8, 20)
_EVERY_SHORT = 3
"""One of so many seeds has many short lives, often on a slow disk: a mistake may need two crashes, the first of them
while records are in flight, with little between them."""
_SYNC_SECONDS = (0.0, 0.001, 0.01, 0.1)
_PAUSE_SECONDS = (0.001, 0.01, 0.1)
"""The pauses of actors that look at records in flight."""
_EVERY_ASIDE = 4
"""In one of so many seeds other processes read the store, while it is altered and maintained by several at once."""
ASIDE = "aside"
"""The names of actors in other processes begin with it."""
_SHORT_LIVES, _STEPS_OF_SHORT = (4, 6, 9), (2, 3, 5)
KINDS_OF_UPKEEP = ("flush", "flush_deltas", "compact", "minor_compact", "major_compact", "gc")
OPERATIONS = (
    "insert", "insert_ignore", "upsert", "upsert_ignore", "update", "update_ignore", "delete", "delete_ignore", "merge",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One call of an actor: its kind, and what it is called with."""

    kind: str
    table: str = "one"
    given: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.table} {' '.join(map(repr, self.given))}".rstrip()


@dataclass(frozen=True)
class Actor:
    """A thread and its steps, in order."""

    name: str
    steps: tuple[Step, ...]

    def shorter(self) -> Iterator[Actor]:
        """Yield the same without half of its steps, without fewer of them, without one."""
        size = len(self.steps) // 2
        while size:
            for start in range(0, len(self.steps), size):
                yield replace(self, steps=self.steps[:start] + self.steps[start + size :])
            size //= 2


@dataclass(frozen=True)
class Plan:
    """A run: ``lives`` follow each other on one disk, with a power failure or a kill between two."""

    seed: int
    options: dict[str, Any]
    buckets: int
    """Hash partitions of each table; 0: none."""
    lives: tuple[tuple[Actor, ...], ...]
    ends: tuple[str, ...]
    """How each life but the last one ends: at a step drawn from the seed, by ``power`` or ``kill``; or by ``close``."""
    line_every: int
    """A thread may lose its turn at a line of the engine, once in so many on the average; 0: at locks alone."""
    history_seconds: int | None = None
    """How long the tables keep history; None: as by default. A life after a crash looks back at the one before."""
    sync_seconds: float = 0.0
    """How long a sync takes, in which others go on."""
    slow_files: str = ""
    """How the names of slow files begin."""

    @property
    def store_options(self) -> StoreOptions:
        return StoreOptions(**self.options)

    def __str__(self) -> str:
        kept = f", {self.history_seconds} s of history" if self.history_seconds else ""
        slow = f", syncs of {self.slow_files or 'files'} in {self.sync_seconds} s" if self.sync_seconds else ""
        lines = [f"options {self.options}, {self.buckets} buckets{kept}{slow}, a line in {self.line_every}"]
        for number, life in enumerate(self.lives):
            lines.append(f"life {number}, {self.ends[number] if number < len(self.ends) else 'closed'}:")
            lines += [f"  {actor.name}: {'; '.join(map(str, actor.steps))}" for actor in life]
        return "\n".join(lines)

    def smaller(self) -> Iterator[Plan]:
        """Yield plans with less: a life, an actor, half of its steps, one step."""
        for number in range(len(self.lives) - 1, -1, -1):
            if len(self.lives) > 1:
                ends = tuple(end for place, end in enumerate(self.ends) if place != min(number, len(self.ends) - 1))
                yield replace(self, lives=self.lives[:number] + self.lives[number + 1 :], ends=ends)
            life = self.lives[number]
            for place, actor in enumerate(life):
                yield self._with(number, life[:place] + life[place + 1 :])
                for rest in actor.shorter():
                    yield self._with(number, (*life[:place], rest, *life[place + 1 :]))

    def _with(self, number: int, life: tuple[Actor, ...]) -> Plan:
        return replace(self, lives=(*self.lives[:number], life, *self.lives[number + 1 :]))

    @property
    def size(self) -> int:
        """How many steps it has."""
        return sum(len(actor.steps) for life in self.lives for actor in life)


def plan_of(seed: int) -> Plan:
    """Draw a plan."""
    are_short = seed % _EVERY_SHORT == _EVERY_SHORT - 1
    plan = _drawn(seed, are_short=are_short)
    is_short = not {"power", "kill"}.intersection(plan.ends) and Random(f"{seed} history").random() < 0.5
    plan = replace(plan, history_seconds=1) if is_short else plan
    if seed % _EVERY_ASIDE == _EVERY_ASIDE - 1:
        return _with_others(plan, Random(f"{seed} aside"))
    return _with_more(plan, Random(f"{seed} more")) if are_short else plan


def plan_with_slow_log(seed: int) -> Plan:
    """Draw a plan of short lives without maintenance of their own. The power fails after each, while records wait for
    the slow log."""
    plan = _with_more(_drawn(seed, are_short=True), Random(f"{seed} more"))
    ends = ("power",) * len(plan.ends)
    return replace(
        plan,
        options=plan.options | {"maintenance": "off"},
        ends=ends,
        sync_seconds=max(_SYNC_SECONDS),
        slow_files="wal/",
    )


def _drawn(seed: int, *, are_short: bool) -> Plan:
    random = Random(f"{seed} plan")
    lives = random.choice(_SHORT_LIVES if are_short else _LIVES)
    return Plan(
        seed,
        _options(random),
        random.choice((0, 0, 2, 3)),
        tuple(_life(random, _STEPS_OF_SHORT if are_short else _STEPS) for _ in range(lives)),
        tuple(random.choice(("power", "power", "kill", "close")) for _ in range(lives - 1)),
        random.choice((0, 0, 60, 300, 2_000)),
    )


def _with_others(plan: Plan, random: Random) -> Plan:
    """Add actors in other processes to a plan. The process ends, and the machine lives on: another process may see what
    a power failure then takes back."""
    ends = tuple("kill" if end == "power" else end for end in plan.ends)
    lives = []
    for life in plan.lives:
        count = max(len(actor.steps) for actor in life)
        others = range(random.choice((1, 2)))
        lives.append((*life, *(Actor(f"{ASIDE} {number}", _steps(random, count, _looking)) for number in others)))
    return _with_more(replace(plan, ends=ends, lives=tuple(lives)), random)


def _with_more(plan: Plan, random: Random) -> Plan:
    """Add alterations and more upkeep. Often the log alone is slow: records wait in memory while the manifest changes.
    Nothing bounds the memory, of which alterations may take any amount."""
    lives = []
    for life in plan.lives:
        count = max(len(actor.steps) for actor in life)
        if random.random() < 0.7:
            life = (*life, Actor("alteration", _steps(random, count, _altering)))
        if random.random() < 0.7:
            life = (*life, Actor("more upkeep", _steps(random, count, _upkeep)))
        lives.append(life)
    options = {name: value for name, value in plan.options.items() if name != "memory_bytes"}
    seconds, files = random.choice(_SYNC_SECONDS), random.choice(("", "wal/", "wal/"))
    return replace(plan, options=options, lives=tuple(lives), sync_seconds=seconds, slow_files=files)


def _options(random: Random) -> dict[str, Any]:
    """Draw options: most as they are by default, some so small that what is rare comes all the time."""
    options: dict[str, Any] = {
        "maintenance": random.choice(("on", "on", "off")),
        "scan_threads": random.choice((0, 1, 2, 4)),
        "load_threads": random.choice((1, 2)),
        "disk_reserve_bytes": 0,
        "wal_segment_bytes": random.choice((1 << 12, 1 << 14, 1 << 16)),  # the disk in memory has all of each
    }
    share = random.choice((0.1, 0.3, 0.6))
    options |= {name: random.choice(values) for name, values in TINY.items() if random.random() < share}
    if options["maintenance"] == "off":
        options.pop("memory_bytes", None)  # nobody would flush
    return options


def _life(random: Random, counts: tuple[int, ...]) -> tuple[Actor, ...]:
    count = random.choice(counts)
    writers = random.choice((1, 2, 3, 4))
    readers = random.choice((0, 1, 2))
    actors = [Actor(f"writer {number}", _steps(random, count, _writing)) for number in range(writers)]
    actors += [Actor(f"reader {number}", _steps(random, count, _reading)) for number in range(readers)]
    if random.random() < 0.8:
        actors.append(Actor("upkeep", _steps(random, count, _upkeep)))
    return tuple(actors)


def _steps(random: Random, count: int, draw: Any) -> tuple[Step, ...]:
    return tuple(draw(random) for _ in range(random.randint(1, count)))


def _rows(random: Random) -> tuple[tuple[int, int | None], ...]:
    """Draw keys and numbers to write or to add."""
    count = random.choice((1, 1, 1, 2, 5))
    numbers = [random.choice((None, *range(-3, 4))) for _ in range(count)]
    return tuple((random.randrange(KEYS), number) for number in numbers)


def _writing(random: Random) -> Step:
    table, kind = random.choice(TABLES), random.random()
    if kind < 0.6:
        is_atomic, age = random.random() < 0.3, random.choice((None, None, None, 0, 1, 3))
        return Step("write", table, (random.choice(OPERATIONS), _rows(random), is_atomic, age))
    if kind < 0.75:
        writes = tuple(
            (random.choice(TABLES), random.choice(OPERATIONS), _rows(random)) for _ in range(random.randint(1, 3))
        )
        return Step("transact", table, (writes, random.random() < 0.1))
    if kind < 0.85:
        return Step("update_where", table, (random.randrange(KEYS), random.randrange(KEYS)))
    if kind < 0.9:
        return Step("delete_where", table, (random.randrange(-3, 4),))
    return _reading(random)


def _reading(random: Random) -> Step:
    table, kind = random.choice(TABLES), random.random()
    if kind < 0.3:
        return Step("scan", table, (random.random() < 0.5,))
    if kind < 0.5:
        return Step("scan_at", table, (random.random() < 0.5, random.random()))
    if kind < 0.65:
        return Step("get", table, (random.randrange(KEYS),))
    if kind < 0.75:
        return Step("get_many", table, (tuple(random.randrange(KEYS) for _ in range(3)),))
    if kind < 0.85:
        return Step("sum", table)
    if kind < 0.95:
        return Step("changes", table, (random.random(), random.random() < 0.5))
    return Step("sleep", table, (random.choice((0.001, 0.1, 5.0)),))


def _upkeep(random: Random) -> Step:
    if random.random() < 0.2:
        return Step("sleep", "one", (random.choice((0.001, 0.1)),))
    return Step("maintain", random.choice(TABLES), (random.choice(KINDS_OF_UPKEEP),))


def _altering(random: Random) -> Step:
    return _pause(random) if random.random() < 0.4 else Step("alter", random.choice(TABLES))


def _looking(random: Random) -> Step:
    return _pause(random) if random.random() < 0.4 else _reading(random)


def _pause(random: Random) -> Step:
    return Step("sleep", "one", (random.choice(_PAUSE_SECONDS),))

"""Writers, scanners, the flushes and all the compactions at once; every scan is checked.

    python tests/campaigns/race/race.py --seconds 60 --seed 0
    python tests/campaigns/race/race.py --seconds 60 --seed 7 --options 'encryption=on scan_threads=0'

Checked: all rows of a batch are seen or none; a snapshot reads the same again, also after the compactions since; no key
is there twice; rows that are never deleted do not go; no row goes back in time; the change feed between two snapshots
is their difference, net and with every change; writers of single rows find what they wrote. The seed draws what the
scanners do; the order of the threads is chance.
A violation ends the run with exit code 1, and so does a tenth of a longer run in which nobody wrote or nobody read.
Kernels are compiled before: the compiler would keep one side waiting while the other goes on alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))
from typing import Any

import pyarrow as pa

import nyala
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.schemas.cells.timestamp import microseconds_of
from nyala.schemas.errors import SnapshotTooOldError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns import options as drawn
from tests.campaigns.race import small_writers
from tests.campaigns.race.checks import (
    as_state,
    check_births,
    check_events,
    check_feed,
    check_shared,
    check_state,
    in_key_order,
    require,
    shared_value,
)
from tests.campaigns.race.small_writers import SmallWriter
from tests.campaigns.race.tables import EVENTS, Writer, create

FEATURES = drawn.Features(drawn.LOADS, allowed={"durability", "maintenance", "home"})
WRITERS, SCANNERS = 8, 4
OPTIONS: dict[str, Any] = {
    "flush_bytes": 1 << 20,
    "flush_deltas_bytes": 1 << 18,
    "history_gc_bytes": 1 << 14,
    "scan_threads": 2,
    "direct_load_bytes": 1 << 10,
    "lease_seconds": 60,
}
REMEMBERED = 30
_PAUSE_SECONDS = dict.fromkeys(MaintenanceKind, 0.05) | {
    MaintenanceKind.MINOR_COMPACT: 0.2,
    MaintenanceKind.MAJOR_COMPACT: 0.9,
    MaintenanceKind.COMPACT: 4.0,
}
"""On the average, until a kind of work is asked for again: a merge that comes seldom leaves the others work to do."""
_PHASES = 10
_BALANCED_SECONDS = 30
"""In a shorter run a tenth is too short to ask anything of a busy machine."""
_PHASE_NAMES = (
    "commits",
    "small writes",
    "scans of state",
    "scans of events",
    "snapshots read again",
    "changes followed",
)
_ROUND_SECONDS = 60.0
"""A longer race begins anew after so long, with other options."""
_JOIN_SECONDS = 120.0
_PATIENCE_SECONDS = 120
"""A busy machine takes longer to do enough."""


@dataclass
class Memory:
    """A snapshot that was read, and what was seen."""

    snapshot: int
    state: pa.Table
    events: pa.Table | None


def age_of(snapshot: int) -> float:
    """Return for how many seconds a snapshot has been the past: by the clock of the store, whatever was read since."""
    return time.time() - microseconds_of(snapshot) / 1e6


@dataclass
class Scanner:
    """Reads, checks, and reads again what it read before."""

    database: nyala.Database
    writers: list[Writer]
    random: Random
    history_seconds: int
    done: Counter[str] = field(default_factory=Counter)
    shared: list[tuple[int, int | None]] = field(default_factory=list)
    _memory: deque[Memory] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _least: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def step(self, stop: threading.Event) -> None:
        """Read one snapshot and check it in every way."""
        del stop
        known = self._known()
        snapshot = self.database.now()
        self._look_at(snapshot, lambda: self._read_and_check(snapshot, *known))

    def _read_and_check(self, snapshot: int, known_events: list[int], known_state: list[int]) -> None:
        ordered = self.random.random() < 0.5
        state = self._read("state", snapshot, ordered)
        read_state = check_state(state, known_state)
        self.shared.append((snapshot, shared_value(state)))
        self.done["scans of state"] += 1
        events, read_events = None, known_events
        if self.random.random() < 0.3:
            events = self._read("events", snapshot, not ordered)
            read_events = check_events(events, known_events)
            self.done["scans of events"] += 1
            self.done["rows read"] += len(events)
        self._least = read_events, read_state
        now = Memory(snapshot, state, events)
        self._get(known_events, known_state)
        for check in (self._read_again, partial(self._follow, now)):
            if (then := self._remembered()) is not None:
                self._look_at(then.snapshot, partial(check, then))
        self._memory.append(now)
        self.done["rows read"] += len(state)

    def _known(self) -> tuple[list[int], list[int]]:
        """Return how many batches of events and state of each writer a scan from now on must show."""
        events, state = self._least
        seen_events, seen_state = events or [0] * len(self.writers), state or [0] * len(self.writers)
        return (
            [max(writer.events, seen) for writer, seen in zip(self.writers, seen_events, strict=True)],
            [max(writer.state, seen) for writer, seen in zip(self.writers, seen_state, strict=True)],
        )

    def _read(self, table: str, snapshot: int, ordered: bool) -> pa.Table:
        return in_key_order(self.database.table(table).scan(as_of=snapshot, ordered=ordered).to_arrow(), ordered)

    def _remembered(self) -> Memory | None:
        """Return a snapshot that history still keeps."""
        kept = [memory for memory in self._memory if age_of(memory.snapshot) < self.history_seconds / 2]
        return self.random.choice(kept) if kept else None

    def _look_at(self, snapshot: int, check: Callable[[], None]) -> None:
        """Check a snapshot; on a busy machine it may grow too old meanwhile."""
        try:
            check()
        except SnapshotTooOldError:
            age = age_of(snapshot)
            require(age >= self.history_seconds, f"{snapshot} is too old after {age:.1f} s")

    def _read_again(self, then: Memory) -> None:
        """Read a snapshot as it was read before."""
        ordered = self.random.random() < 0.5
        require(then.state.equals(self._read("state", then.snapshot, ordered)), f"state at {then.snapshot} has changed")
        if then.events is not None:
            again = self._read("events", then.snapshot, ordered)
            require(then.events.equals(again), f"events at {then.snapshot} have changed")
        self.done["snapshots read again"] += 1

    def _get(self, events: list[int], state: list[int]) -> None:
        """Look up a row that must be there, one that is changed all the time and one that is not there yet."""
        writer = self.random.choice(self.writers)
        table = self.database.table("events")
        if batches := events[writer.number]:
            place = self.random.randrange(batches * EVENTS)
            row = table.get(writer.event(place))
            require(row and row["batch"] == place // EVENTS, f"event {place} of {writer.number}: {row}")
        require(table.get(writer.event((1 << 32) - 1)) is None, "an event that nobody wrote was found")
        row = self.database.table("state").get((writer.number, 0))
        least = state[writer.number] - 1
        require(least < 0 or (row and row["batch"] >= least and row["same"] == row["batch"]), f"{row}, after {least}")
        self.done["keys looked up"] += 3

    def _follow(self, now: Memory, then: Memory) -> None:
        """Follow the changes from a remembered snapshot to this one."""
        every = self.random.random() < 0.5
        feed = self.database.table("state").changes(then.snapshot, now.snapshot, every=every).to_arrow()
        check_feed(as_state(then.state), as_state(now.state), feed, every)
        self.done["changes followed"] += len(feed)
        if then.events is not None and now.events is not None:
            feed = self.database.table("events").changes(then.snapshot, now.snapshot).to_arrow()
            check_births(then.events, now.events, feed)
            self.done["changes followed"] += len(feed)


class Race:
    """A store in a directory, all that works on it, and what was done."""

    def __init__(self, directory: Path, seed: int = 0, history_seconds: int = 4) -> None:
        """History is so short that GC has something to do; snapshots are read again for half as long."""
        self.seed = seed
        random = Random(seed)
        self.database = drawn.database_at(directory, **OPTIONS)
        create(self.database, history_seconds)
        small_writers.create(self.database, history_seconds)
        self.writers = [Writer(self.database, number, random.randrange(1 << 30)) for number in range(WRITERS)]
        self.small_writers = [
            SmallWriter(self.database, number, random.randrange(1 << 30)) for number in range(small_writers.WRITERS)
        ]
        self.scanners = [
            Scanner(self.database, self.writers, Random(random.randrange(1 << 30)), history_seconds)
            for _ in range(SCANNERS)
        ]
        self.maintained: Counter[str] = Counter()
        """How often each kind of maintenance found work."""
        self.phases: list[Counter[str]] = []
        """What was done in each tenth of the time."""
        self.failures: list[BaseException] = []
        self._stop = threading.Event()

    def run(self, seconds: float, is_enough: Callable[[Counter[str]], bool] | None = None) -> None:
        """Let all work for ``seconds``, and on until what was done ``is_enough``, within reason; then read once
        more in peace and close. Raises what failed first.
        """
        actors = (*self.writers, *self.small_writers, *self.scanners)
        works: list[Callable[[threading.Event], None]] = [actor.step for actor in actors]
        works += [self._maintainer(kind, Random(f"{self.seed} {kind}")) for kind in MaintenanceKind]
        threads = [threading.Thread(target=self._repeat, args=(work,), daemon=True) for work in works]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-4)
        try:
            for thread in threads:
                thread.start()
            self._wait(seconds)
            for _ in range(_PATIENCE_SECONDS):
                if is_enough is None or is_enough(self.done()) or self._stop.wait(1):
                    break
            self._stop.set()
            for thread in threads:
                thread.join(_JOIN_SECONDS)
        finally:
            sys.setswitchinterval(interval)
        if not self.failures and any(thread.is_alive() for thread in threads):
            self.failures.append(AssertionError("a thread hangs"))
        if self.failures:
            raise self.failures[0]
        self._finish()

    def _repeat(self, work: Callable[[threading.Event], None]) -> None:
        try:
            while not self._stop.is_set():
                work(self._stop)
        except BaseException as error:
            self.failures.append(error)
            self._stop.set()

    def _maintainer(self, kind: MaintenanceKind, random: Random) -> Callable[[threading.Event], None]:
        def work(stop: threading.Event) -> None:
            for table in ("state", "events", small_writers.TABLE):
                report = self.database.table(table).maintain(kind)
                self.maintained[kind] += bool(report["bytes_written"] or report["bytes_freed"])
            stop.wait(random.uniform(0, 2 * _PAUSE_SECONDS[kind]))

        return work

    def _wait(self, seconds: float) -> None:
        started, before = time.monotonic(), self.done()
        for number in range(1, _PHASES + 1):
            if self._stop.wait(max(started + seconds * number / _PHASES - time.monotonic(), 0)):
                return
            now = self.done()
            self.phases.append(now - before)
            before = now
            print(f"{time.monotonic() - started:5.0f} s: {described(self.phases[-1])}", flush=True)

    def check_balance(self) -> None:
        """All that is to race must have been there all the time."""
        for number, phase in enumerate(self.phases, 1):
            idle = [name for name in ("commits", "scans of state") if not phase[name]]
            require(not idle, f"phase {number} of {_PHASES} saw no {' and no '.join(idle)}")

    def _finish(self) -> None:
        for scanner in self.scanners:
            scanner.step(self._stop)
        written = [commit for writer in self.writers for commit in writer.shared]
        check_shared([seen for scanner in self.scanners for seen in scanner.shared], written)
        small_writers.check_rows(self.database.table(small_writers.TABLE).scan().to_arrow(), self.small_writers)
        self.database.close()

    def done(self) -> Counter[str]:
        """Return what was done, by name."""
        done = Counter({"commits": sum(writer.commits for writer in self.writers)})
        done["rows written"] = sum(writer.rows for writer in self.writers)
        done["small writes"] = sum(writer.writes for writer in self.small_writers)
        for scanner in self.scanners:
            done.update(scanner.done)
        done.update({f"maintenance: {kind}": self.maintained[kind] for kind in MaintenanceKind})
        return done


def described(done: Counter[str]) -> str:
    """Return in one line what was done."""
    maintained = sum(count for name, count in done.items() if name.startswith("maintenance: "))
    return ", ".join([*(f"{done[name]:,} {name}" for name in _PHASE_NAMES), f"{maintained} pieces of maintenance"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    drawn.add_to(parser)
    options = parser.parse_args()
    swarm = drawn.swarm_of(FEATURES, options)
    warm_up()
    writers = f"{WRITERS} writers, {small_writers.WRITERS} of single rows"
    print(f"seed {options.seed}: {writers}, {SCANNERS} scanners, {len(MaintenanceKind)} kinds of maintenance")
    rounds = max(1, round(options.seconds / _ROUND_SECONDS))
    for number in range(rounds):
        with swarm.round(number), tempfile.TemporaryDirectory(prefix="nyala-race-") as directory:
            _one_round(Race(Path(directory), options.seed + number), options.seconds / rounds)
    print("no violation")


def _one_round(race: Race, seconds: float) -> None:
    """Run a race, and print what was done."""
    race.run(seconds)
    print("scans of state in each tenth of the time, and commits: ", end="")
    print(", ".join(f"{phase['scans of state']}/{phase['commits']}" for phase in race.phases))
    for name, count in race.done().items():
        print(f"  {name:28} {count:12,}")
    if seconds >= _BALANCED_SECONDS:
        race.check_balance()


if __name__ == "__main__":
    main()

"""Run: one seed of the cluster, from its scenario to the verdict."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from random import Random
from typing import Any
from unittest.mock import patch

import nyala
from nyala.engine import threads
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.home import bucket
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.wal.slots import pace
from nyala.engine.wal.slots.options import SlotOptions
from nyala.schemas.errors import AlreadyPresentError
from tests.campaigns.failover.checks import check_sound, check_swept
from tests.simulation.choices import choices_of
from tests.simulation.lines import LineTurns
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import tables
from tests.simulation.store.checks import Checker
from tests.simulation.store.history import History
from tests.simulation.store.plan import TABLES, Actor, Step
from tests.simulation.store.run import Outcome
from tests.simulation.world import simulated

from .clients import Client
from .flight_clients import FlightClient
from .flight_line import FlightLine
from .flight_world import simulated_clients
from .member import Member
from .network import Network
from .rewound import Copyist, copy_of, history_of, home_of, put_back
from .scenario import STREAM, Scenario, scenario_of
from .stream import Stream
from .woes import Woes

_WARM_SEEDS = 2
_WARM_FLIGHT_SEED = 4
_STEPS_MOST = 1_000_000
_UNTIL_STAGED_IS_OLD = 40 * StoreOptions().staging_ttl_seconds


def run_seed(seed: int, lines_kept: int = 0) -> Outcome:
    """Run the scenario of a seed."""
    return run(scenario_of(seed), lines_kept)


def run(scenario: Scenario, lines_kept: int = 0) -> Outcome:
    """Run a scenario; its seed also draws the turns. No error is raised: the outcome has it."""
    _warm_process()
    if scenario.flight:
        _warm_flight()
    return _run(scenario, lines_kept)


@cache
def _warm_process() -> None:
    """Do all once that a process does only at the first time: a run must not depend on whether others were before."""
    warm_up()
    for seed in range(_WARM_SEEDS):
        _run(scenario_of(seed), 0)


@cache
def _warm_flight() -> None:
    """Do the same for what Flight clients do."""
    _run(scenario_of(_WARM_FLIGHT_SEED), 0)


def _run(scenario: Scenario, lines_kept: int) -> Outcome:
    cluster = _Cluster(scenario, lines_kept)
    logging.disable(logging.CRITICAL)  # processes that lose their store say so
    gc.disable()  # its moment is chance
    try:
        cluster.run()
    except Exception as error:
        cluster.outcome.error = error
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    return cluster.outcome


class _Cluster:
    """The servers of one store, and their clients."""

    def __init__(self, scenario: Scenario, lines_kept: int) -> None:
        self._scenario, seed = scenario, scenario.seed
        choices, time = choices_of(Random(f"{seed} choices")), Random(f"{seed} time")
        self._scheduler = Scheduler(choices, time, lines_kept=lines_kept, steps_most=_STEPS_MOST)
        self._history = History(seconds=lambda: self._scheduler.now)
        self._recovered: dict[int, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        self._have_stayed = False
        """Whether objects of a history that is gone are in the bucket."""
        self.outcome = Outcome(scenario, "", self._history)

    def run(self) -> None:
        """Let all happen, then check it."""
        scheduler, outcome, seed = self._scheduler, self.outcome, self._scenario.seed
        try:
            lines = LineTurns(scheduler, Random(f"{seed} lines"), self._scenario.line_every)
            with simulated(scheduler, Random(f"{seed} names")), _small(self._scenario), lines:
                scheduler.run(self._work)
        finally:
            outcome.steps, outcome.switches = scheduler.steps, scheduler.switches
            outcome.seconds, outcome.lines = scheduler.now, scheduler.lines
            digest = hashlib.sha256("\n".join(map(str, self._history.calls)).encode())
            outcome.trace = scheduler.trace[:16] + digest.hexdigest()[:16]
        if scheduler.failures:
            name, error = scheduler.failures[0]
            error.add_note(f"in the thread {name!r}")
            raise error
        self._check()

    def _work(self) -> None:
        scenario, seed = self._scenario, self._scenario.seed
        network = Network(self._scheduler, Random(f"{seed} network"), scenario.bytes_a_second)
        members = [
            Member(number, network, self._scheduler, scenario.options_of(number)) for number in range(scenario.servers)
        ]
        if not scenario.flight:
            self._work_at(members, network)
            return
        at = {member.location: member for member in members}
        random, connect = Random(f"{seed} flight waits"), lambda location: FlightLine(at.get(location), network)
        with simulated_clients(self._scheduler, random, connect):
            self._work_at(members, network)

    def _work_at(self, members: list[Member], network: Network) -> None:
        scenario, seed = self._scenario, self._scenario.seed
        for member in members:
            member.start()
        setup = Client(Actor("setup", ()), members, self._history, Random(seed))
        self._since = setup.ask(lambda store: _create(nyala.Database(store), scenario.buckets))
        self._history.moments.append(self._since)
        threads.sleep(2 * max(scenario.leases))  # from then on no replica may lack the tables
        if scenario.copied_after is not None:
            self._live_and_put_back(members, network, scenario.copied_after)
            for member in members:
                member.start()
        self._live(members, network)
        self._stop(members, network)
        self._look_back(network.shared)

    def _stop(self, members: list[Member], network: Network) -> None:
        """Stop all processes, and let pass what is still on its way."""
        for member in members:
            member.kill()
        while network.under_way:
            threads.sleep(1.0)
        for error in (error for member in members for error in member.defects):
            raise error

    def _live_and_put_back(self, members: list[Member], network: Network, seconds: float) -> None:
        """Let a history happen of which the bucket is copied amid; check it, and put the copy back."""
        copyist = Copyist(self._scheduler, network.shared, self._history, seconds)
        self._live(members, network, ("copyist", copyist.run))
        self._stop(members, network)
        self._look_back(copy_of(network.shared))
        self._check()
        assert copyist.copied is not None, "its thread has ended"
        self._have_stayed |= put_back(network.shared, copyist.copied, Random(f"{self._scenario.seed} put back"))
        self.outcome.events += map(str, self._history.calls)
        self.outcome.events.append(f"{self._scheduler.now:.3f} the bucket is put back")
        self._history = self.outcome.history = history_of(copyist.copied, self._history, self._since)

    def _check(self) -> None:
        recovered, self._recovered = self._recovered, defaultdict(list)
        Checker(self._history).check(recovered)

    def _live(self, members: list[Member], network: Network, *works_beside: tuple[str, Callable[[], object]]) -> None:
        """Let the clients and the failures go on side by side, then heal all, and let the clients end."""
        scenario = self._scenario
        woes = Woes(members, network, self.outcome.events, self._scheduler)
        works = [*works_beside, *((actor.name, partial(woes.run, actor)) for actor in scenario.woes)]
        works += [(actor.name, self._client_of(actor, members).run) for actor in scenario.clients]
        running = [threads.Thread(target=work, name=name) for name, work in works]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        self.outcome.crashes += woes.count

    def _client_of(self, actor: Actor, members: list[Member]) -> Client | Stream:
        if actor.name.startswith(STREAM):
            return Stream(actor, members, self._history, Random(f"{self._scenario.seed} {actor.name}"))
        kind = FlightClient if actor.name in self._scenario.flight else Client
        return kind(actor, members, self._history, Random(f"{self._scenario.seed} {actor.name}"))

    def _look_back(self, objects: MemoryObjects) -> None:
        """Open the store once more, read what the writes did that have no answer, and check what is in the bucket."""
        home = home_of(objects)
        check_sound(home)
        store = Store.open(home, self._scenario.store_options)
        database = nyala.Database(store)
        writes = (call for call in self._history.calls if call.step.kind in ("write", "transact"))
        answered = {call.answer.timestamp for call in writes if call.answer}
        now = database.now()
        for name in TABLES:
            call = self._history.begin("last", Step("scan", name, (False,)))
            call.answer = tables.rows_of(database.table(name).scan().to_arrow())
            self._history.end(call)
            for row in database.table(name).changes(self._since, now, every=True).to_arrow().to_pylist():
                if row["_timestamp"] not in answered:
                    self._recovered[row["_timestamp"]].append((name, row))
        store.close()
        if self._have_stayed:  # an opening leaves what is of a later reign than its own
            check_sound(home)
        else:
            threads.sleep(_UNTIL_STAGED_IS_OLD)  # until then rows that were staged stay
            check_swept(home)


@contextmanager
def _small(scenario: Scenario) -> Iterator[None]:
    """Let the log free and flush after few slots, and put little by one request."""
    options = partial(SlotOptions, **scenario.slots)
    with patch.object(bucket, "SlotOptions", options), patch.multiple(pace, BYTES_MIN=512, _TELLING_BYTES=256):
        yield


def _create(database: nyala.Database, buckets: int) -> int:
    try:
        tables.create(database, buckets)
    except AlreadyPresentError:  # an earlier call, which took too long, has made it since
        tables.create(database, buckets)
    return database.now()

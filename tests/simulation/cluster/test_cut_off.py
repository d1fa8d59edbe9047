"""A holder is cut off from its bucket while it commits a manifest: whoever waits for that gets an answer, and the store
is served again, by another process or by the same one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa

import nyala
from nyala.engine import threads
from nyala.engine.bucket.patient import PatientBucket
from nyala.engine.home.manifests import ManifestInBucket
from nyala.engine.kernels.compile.warmup import warm_up
from nyala.engine.options import StoreOptions
from nyala.engine.wal.silence import OnSilence, Silence
from nyala.engine.wal.sink import LogLostError
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.store.whereabouts import Whereabouts
from tests.dose import dose
from tests.simulation.choices import RandomWalk
from tests.simulation.scheduler import Scheduler
from tests.simulation.store import tables
from tests.simulation.store.history import History
from tests.simulation.store.plan import TABLES, Actor
from tests.simulation.world import simulated

from .clients import Client
from .member import Member, NoAnswerError
from .network import DistantObjects, Network, Way
from .run import run_seed

T = TypeVar("T")
TABLE = TABLES[0]
_LEASE, _PATIENCE = 2.0, 6.0
_LOOKS = 3.0
"""After its patience is over a thread takes notice within so many seconds, and lets the others go on."""
_OUTAGE = 120.0
_CUT_CHANCE = 0.15
_CUT_SECONDS = (1.0, 4.0, 12.0, 30.0)
_FIRST_SEED = 930_004
"""In it holders leave the store again and again."""


@dataclass
class Call:
    """A call of a client at the first server: how it ended, and after how long; None: it has not."""

    thread: threads.Thread | None = None
    error: Exception | None = None
    seconds: float | None = None


class Cluster:
    """Servers of one store, the first of which has it. Its table has the rows 1 and 2."""

    def __init__(self, scheduler: Scheduler, servers: int) -> None:
        self._scheduler = scheduler
        options = StoreOptions(
            maintenance="off",
            scan_threads=0,
            load_threads=1,
            lease_seconds=_LEASE,
            log_patience_seconds=_PATIENCE,
            disk_reserve_bytes=0,
        )
        network = Network(scheduler, Random("network"))
        self.members = [Member(number, network, scheduler, options) for number in range(servers)]
        self.holder = self.members[0]
        self.holder.start()
        self.client = Client(Actor("client", ()), self.members, History(), Random("client"))
        self.ask(lambda database: tables.create(database, 0))
        self.write(1, 2)
        for member in self.members[1:]:
            member.start()
        threads.sleep(2 * _LEASE)

    def ask(self, work: Callable[[nyala.Database], T]) -> T:
        """Return the answer of the server that has the store, however long that takes."""
        return self.client.ask(lambda store: work(nyala.Database(store)))

    def write(self, *keys: int) -> None:
        """Write rows."""
        self.ask(lambda database: database.table(TABLE).upsert([_row(key) for key in keys]))

    def keys(self) -> list[int]:
        """Return the keys of the rows that are there now."""
        return sorted(self.ask(lambda database: database.table(TABLE).scan().to_arrow()).column("k").to_pylist())

    def columns(self) -> list[str]:
        """Return the names of the columns that are there now."""
        return self.ask(lambda database: database.table(TABLE).schema.names)

    def begin(self, work: Callable[[nyala.Database], object]) -> Call:
        """Begin a call at the first server, which waits for its answer for long."""
        call, began = Call(), self._scheduler.now

        def run() -> None:
            try:
                self.holder.ask(lambda store: work(nyala.Database(store)), 10 * _OUTAGE)
            except (StoreError, NoAnswerError) as error:
                call.error = error
            call.seconds = self._scheduler.now - began

        thread = call.thread = threads.Thread(target=run, name="a call")
        thread.start()
        return call

    def check_fails_in_time(self, call: Call) -> None:
        """Check that a call gets no answer, and learns that in time."""
        assert call.thread is not None
        call.thread.join(_OUTAGE)
        assert call.seconds is not None and call.seconds < _PATIENCE + _LOOKS, call
        assert isinstance(call.error, UnavailableError | NoAnswerError), call

    def whereabouts(self) -> Whereabouts:
        """Return what the first server says of itself."""
        front = self.holder.front
        assert front is not None
        return front.process.whereabouts()

    @property
    def claims(self) -> int:
        """How often the first server took the store."""
        server: Any = self.holder._server
        return server._claims


def _row(key: int) -> dict[str, int]:
    return {"k": key, "v": key, "n": key}


def _alter(database: nyala.Database) -> None:
    database.table(TABLE).alter().add_column(tables.EXTRA, pa.int64()).apply()


@contextmanager
def cut_before_the_slot(way: Way, answers_alone: bool = False) -> Iterator[None]:
    """Cut a server off between the put of a manifest and the slot that names it."""
    install = ManifestInBucket.install

    def cut_first(self: ManifestInBucket, log_needed_from: int) -> None:
        way.loses_requests, way.loses_answers = not answers_alone, True
        install(self, log_needed_from)

    with patch.object(ManifestInBucket, "install", cut_first):
        yield


def _simulate(work: Callable[[Cluster], object], servers: int = 1) -> None:
    warm_up()
    scheduler = Scheduler(RandomWalk(Random("turns"), 0.1), Random("time"))
    logging.disable(logging.CRITICAL)  # processes that lose their store say so
    try:
        with simulated(scheduler, Random("names")):
            scheduler.run(lambda: work(Cluster(scheduler, servers)))
    finally:
        logging.disable(logging.NOTSET)
    assert scheduler.failures == []


def test_requests_at_a_holder_that_is_cut_off_end_and_another_process_has_the_store() -> None:
    def work(cluster: Cluster) -> None:
        with cut_before_the_slot(cluster.holder.way):
            altering = cluster.begin(_alter)
            threads.sleep(_LEASE / 4)
            writing = cluster.begin(lambda database: database.table(TABLE).upsert([_row(3)]))
            cluster.check_fails_in_time(altering)
            cluster.check_fails_in_time(writing)  # it waited for the locks of the other one
        threads.sleep(_LOOKS)
        assert cluster.members[1].has_store and not cluster.holder.has_store
        cluster.write(4)
        cluster.holder.way.mend()
        threads.sleep(_OUTAGE)
        there = cluster.whereabouts()
        assert there.state == "standby" and there.holder is not None
        assert there.holder.locations == [cluster.members[1].location]
        assert cluster.keys() == [1, 2, 4] and tables.EXTRA not in cluster.columns()

    _simulate(work, servers=2)


def test_a_process_that_left_the_store_in_an_outage_has_it_again_with_all_that_was_acknowledged() -> None:
    def work(cluster: Cluster) -> None:
        with cut_before_the_slot(cluster.holder.way):
            altering = cluster.begin(_alter)
            threads.sleep(_OUTAGE)
            cluster.check_fails_in_time(altering)
        assert not cluster.holder.has_store
        assert cluster.whereabouts().state == "standby"
        cluster.holder.way.mend()
        threads.sleep(10 * _LEASE)
        assert cluster.holder.has_store and cluster.claims == 2
        assert cluster.keys() == [1, 2] and tables.EXTRA not in cluster.columns()
        cluster.ask(_alter)
        assert tables.EXTRA in cluster.columns()

    _simulate(work)


def test_a_manifest_whose_slot_landed_before_its_holder_left_the_store_counts() -> None:
    def work(cluster: Cluster) -> None:
        with cut_before_the_slot(cluster.holder.way, answers_alone=True):
            cluster.check_fails_in_time(cluster.begin(_alter))
        cluster.holder.way.mend()
        assert cluster.keys() == [1, 2] and tables.EXTRA in cluster.columns()
        assert cluster.claims == 2

    _simulate(work)


def test_a_holder_whose_changes_nobody_waits_for_keeps_the_store_over_an_outage() -> None:
    def work(cluster: Cluster) -> None:
        cluster.holder.way.loses_requests = True
        cluster.check_fails_in_time(cluster.begin(lambda database: database.table(TABLE).upsert([_row(3)])))
        threads.sleep(_OUTAGE)
        cluster.holder.way.mend()
        assert cluster.keys() == [1, 2, 3] and cluster.claims == 1

    _simulate(work)


@contextmanager
def cut_off_now_and_then(random: Random, left: list[LogLostError]) -> Iterator[None]:
    """Cut holders off between the put of a manifest and its slot, for a while; collect the errors by which they leave
    the store."""
    install, failure = ManifestInBucket.install, Silence.failure

    def cut_first(self: ManifestInBucket, log_needed_from: int) -> None:
        objects = self._bucket.objects if isinstance(self._bucket, PatientBucket) else None
        if isinstance(objects, DistantObjects) and random.random() < _CUT_CHANCE:
            _cut(objects._way, objects._network, random)
        install(self, log_needed_from)

    def noted(self: Silence, since: float, on_silence: OnSilence) -> LogLostError | None:
        error = failure(self, since, on_silence)
        left.extend([error] if error and "leaves the store" in error.message else [])
        return error

    with patch.object(ManifestInBucket, "install", cut_first), patch.object(Silence, "failure", noted):
        yield


def _cut(way: Way, network: Network, random: Random) -> None:
    how, seconds = random.choice(("requests", "answers", "both")), random.choice(_CUT_SECONDS) * (0.5 + random.random())
    way.loses_requests, way.loses_answers = how != "answers", how != "requests"

    def mend() -> None:
        threads.sleep(seconds)
        way.mend()

    network._scheduler.start("the end of a cut", mend, network._outside)  # which outlives the process


def test_seeds_are_right_in_which_holders_are_cut_off_amid_manifests() -> None:
    run_seed(_FIRST_SEED)  # what a process does only once
    left: list[LogLostError] = []
    for seed in range(_FIRST_SEED, _FIRST_SEED + dose(4, 100)):
        with cut_off_now_and_then(Random(seed), left):
            outcome = run_seed(seed)
        assert outcome.error is None, (seed, outcome.error)
    assert left, "else nothing was tried"

"""NameServer: the life of a process that serves a store in a bucket, or waits until it may.

    standby -- nobody has the store --> opening --> holder -- another one claimed it, or it was released --> standby

A holder also stands by when a change waited too long for a bucket that does not answer, so that its log has failed.
Then it opens the store again, unless another process was faster, and learns what became of the change.

The process listens all the time. While it does not have the store it says who has: see ``AbsentStore``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...engine import threads
from ...engine.mvcc.clock import boot_seconds
from ...engine.wal.slots.standby import Standby, StandbyStoppedError
from ...schemas.errors import InvalidArgumentError, StoreError
from ...schemas.protocol.server_verbs import ServerVerbs
from ...schemas.store.metrics import MetricFamily, counter, each_of, gauge, one
from ...schemas.store.whereabouts import Whereabouts
from ..runtime.flush_before_close import HAND_OVER_SECONDS, flush_within, rest_within
from ..stores.absent_store import AbsentStore
from ..stores.replica_store import ReplicaStore

if TYPE_CHECKING:
    from ...engine.home.bucket import BucketHome, HeldBucket
    from ...schemas.protocol.service import StoreService
    from ..server import FlightServer
    from ..stores.follower import Follower

_LOG = logging.getLogger("nyala.flight_server")
_LOOK_SECONDS = 0.05
"""How often a holder looks whether it still has the store."""
_RETRY_SECONDS = 2.0
"""After the store could not be opened."""
_FLUSH_SECONDS = 30.0
_REST_SECONDS = 300.0
"""How long maintenance that runs may go on, while the store is served, before it is released."""
_WHERE_SECONDS = 10.0
"""How often a holder looks whether the hint where the store is names it."""
_FIRST_WHERE_SECONDS = 1.0
"""How long a new holder waits for the hint to be written."""


def _end_process() -> None:
    """End the process without another word: its manager starts it again."""
    logging.shutdown()
    os._exit(1)


class NameServer(ServerVerbs):
    """The life of this server process for one store of a bucket, which it serves, or for which it waits. Thread
    safe."""

    def __init__(
        self,
        home: BucketHome,
        open_store: Callable[[BucketHome], StoreService],
        version: str,
        lease_seconds: float,
        handicap_seconds: float = 0.0,
        end_process: Callable[[], object] = _end_process,
        follow: Callable[[BucketHome, Standby], Follower] | None = None,
    ) -> None:
        """``open_store`` opens the store at a home, for which it waits. Others are let first for
        ``handicap_seconds``. ``end_process`` is called if nobody looks after the store any more. ``follow`` lets the
        store be read as far as its log is known, while this process waits for it; None: it cannot."""
        self._follow = follow
        self._follower: Follower | None = None
        self.absent = (
            AbsentStore(self.whereabouts, version)
            if follow is None
            else ReplicaStore(self.whereabouts, version, lambda: self._follower, lease_seconds)
        )
        """What is served without the store."""
        self._home = home
        self._open_store = open_store
        self._lease_seconds = lease_seconds
        self._handicap_seconds = handicap_seconds
        self._locations: Sequence[str] = ()
        self._server: FlightServer | None = None
        self._standby = Standby()
        self._held: HeldBucket | None = None
        self._claims = self._fences = 0
        self._asked = threads.Event()
        """Whether the thread that waits is to look: the store is to be released, or the process stops."""
        self._left = threads.Event()
        """Whether this process is to have the store no longer, since it had it last."""
        self._is_stopping = False
        self._taking = threads.Lock()
        self._is_wanted = False
        """Whether somebody asked that this process takes the store, and it has not had it since."""
        self._settled = threads.Event()
        self._failure: Exception | None = None
        self._end_process = end_process
        self._thread = threads.Thread(target=self._run_or_end, name="nyala-standby", daemon=True)

    def begin(self, server: FlightServer, locations: Sequence[str]) -> None:
        """Stand by, and serve the store by ``server`` as soon as nobody else has it. Clients reach it at ``locations``.

        Returns when it serves the store, when another process that has it was seen to live, or when it is to stop.
        Raises what the first opening raises.
        """
        self._server, self._locations = server, locations
        server.calls.metrics.more = self.families
        self._thread.start()
        while not self._settled.wait(_LOOK_SECONDS):
            if self._standby.sees_life or self._is_stopping:
                break
        if self._failure is not None:
            raise self._failure
        seen = self._standby.seen
        holder = seen.holder if seen else None
        if holder is not None and self._held is None:
            who = " or ".join(holder.locations) or f"process {holder.process}"
            _LOG.info("standing by for the store %s, which %s has", self._home.name, who)

    def ask_to_stop(self) -> None:
        """Stand by no longer; return at once."""
        self._is_stopping = True
        self._standby.stop()
        self._asked.set()
        self._left.set()

    def stop(self, seconds: float) -> bool:
        """Stand by no longer; the store stays with the server if this process has it. Return whether that is known
        after so many seconds."""
        self.ask_to_stop()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def has_store(self) -> bool:
        """Whether this process has the store."""
        return self._held is not None

    # Verbs

    def whereabouts(self) -> Whereabouts:
        """See ServerVerbs."""
        held, standby = self._held, self._standby
        if held is not None and held.lost is None:
            update = {"end": held.end, "age_seconds": round(boot_seconds() - held.sent, 3)}
            return held.whereabouts().model_copy(update=update)
        seen, follower = standby.seen if held is None else None, self._follower
        lag = follower.lag_seconds if follower else None
        return Whereabouts(
            name=self._home.name,
            state="standby",
            holder=seen.holder if seen else None,
            end=seen.end if seen else None,
            age_seconds=round(boot_seconds() - seen.since, 3) if seen else None,
            trouble=standby.trouble or None,
            lag_seconds=None if lag is None else round(lag, 3),
            safe=follower.safe if follower else None,
        )

    def server_release(self, name: str | None = None) -> None:
        """See ServerVerbs."""
        self._check_name(name)
        if self._held is None:
            self.absent.refuse()
        self._asked.set()

    def server_take(self, name: str | None = None, force: bool = False) -> None:
        """See ServerVerbs."""
        self._check_name(name)
        if self._held is None:
            if force:
                _LOG.warning(
                    "taking the store %s from its holder, as requested by `nyala server take`", self._home.name
                )
            with self._taking:
                self._is_wanted = True
                self._standby.handicap_seconds = 0.0
                if force:
                    self._standby.take()

    def _check_name(self, name: str | None) -> None:
        if name is not None and name != self._home.name:
            raise InvalidArgumentError(f"this process serves the store {self._home.name}, not {name}")

    def families(self) -> list[MetricFamily]:
        """Return the metrics of failover."""
        held, seen = self._held, self._standby.seen
        states = {"holder": float(held is not None), "standby": float(held is None)}
        lag = boot_seconds() - (held.sent if held else seen.since if seen else boot_seconds())
        follower = self._follower
        replica_lag = follower.lag_seconds if follower else None
        return [
            gauge("nyala_failover_state", "1 for the state of this process.", *each_of("state", states)),
            counter("nyala_failover_claims", "How often this process took its store over.", one(self._claims)),
            counter("nyala_failover_fences", "How often it lost the store without a release.", one(self._fences)),
            gauge("nyala_failover_lease_seconds", "Time left of the lease.", one(held.lease_seconds if held else 0.0)),
            gauge(
                "nyala_failover_slot_age_seconds",
                "Time since the newest slot of the log that this process knows.",
                one(lag),
            ),
            *(
                [
                    gauge(
                        "nyala_replica_lag_seconds",
                        "Time since this replica had read all of the log.",
                        one(replica_lag),
                    )
                ]
                if replica_lag is not None
                else []
            ),
        ]

    # The life of the process, on its thread

    def _run_or_end(self) -> None:
        try:
            self._run()
        except Exception:
            _LOG.exception("the thread that follows the store %s has failed; the process ends", self._home.name)
            self._end_process()

    def _run(self) -> None:
        handicap = self._handicap_seconds
        while not self._is_stopping:
            try:
                store = self._open(handicap)
            except StandbyStoppedError:
                return
            except Exception as error:
                if not self._settled.is_set() and not self._standby.sees_life:
                    self._failure = error
                    self._settled.set()
                    return
                if self._held is not None:
                    raise
                self._standby.trouble = str(error)
                _LOG.exception("the store %s could not be opened; standing by", self._home.name)
                self._asked.wait(_RETRY_SECONDS)
                continue
            handicap = self._serve(store)

    def _open(self, handicap: float) -> StoreService:
        """Wait for the store, open it, and serve it."""
        assert self._server is not None, "it has begun"
        with self._taking:
            former = self._standby
            own = 0.0 if self._is_wanted else handicap
            standby = self._standby = Standby(own, handicap_later=self._handicap_seconds)
            standby.take_as(former)
            standby.trouble = former.trouble  # until it has looked at the log
        if self._is_stopping:
            standby.stop()
        home = self._home.by(standby, self._locations)
        self._follower = self._follow(home, standby) if self._follow else None
        try:
            store = self._open_store(home)
        finally:
            if self._follower is not None:
                self._follower.stop()
                self._follower = None
        assert home.held is not None, "the store is open"
        self._left = threads.Event()
        self._forget_request()
        self._held, self._is_wanted = home.held, False
        self._claims += 1
        self._server.serve_store(store)
        _LOG.info("this process has the store %s since slot %d", home.name, home.held.epoch)
        is_written = threads.Event()
        threads.Thread(
            target=_keep_where, args=(home.held, self._left, is_written), name="nyala-where", daemon=True
        ).start()
        is_written.wait(_FIRST_WHERE_SECONDS)
        self._settled.set()
        return store

    def _forget_request(self) -> None:
        """Forget that the store was to be released: that is done, or it was another time that this process had it."""
        if not self._is_stopping:
            self._asked.clear()

    def _serve(self, store: StoreService) -> float:
        """Wait until this process has lost the store, or is to leave it, and let it go unless the process stops.
        Return for how long others are let first then."""
        held, server = self._held, self._server
        assert held is not None and server is not None, "the store is open"
        while held.lost is None and not self._is_stopping and not self._asked.wait(_LOOK_SECONDS):
            pass
        if self._is_stopping:
            return 0.0
        lost = held.lost
        if lost is None:
            _LOG.info("releasing the store %s", self._home.name)
            self._prepare_release(store, held)
            if self._is_stopping:
                return 0.0
            lost = held.lost
        if lost is not None:
            self._fences += 1
            _LOG.warning("standing by from now on: %s", lost.message)
        self._left.set()
        self._standby = Standby()
        self._held = None
        self._forget_request()
        server.serve_store(self.absent)
        server.calls.end_earlier(HAND_OVER_SECONDS if lost is None else 0.0)
        try:
            store.close()
        except Exception as error:  # also of a disk, or of a defect: the process stands by nevertheless
            _LOG.warning("the store was not closed cleanly: %s", error, exc_info=not isinstance(error, StoreError))
        return self._lease_seconds if lost is None else self._handicap_seconds

    def _prepare_release(self, store: StoreService, held: HeldBucket) -> None:
        """Let maintenance end and flush, while the store is served: to close it takes as long as what runs. A process
        that stops has less time, and begins anew."""

        def gives_up() -> bool:
            return held.lost is not None or self._is_stopping

        rest_within(store, _REST_SECONDS, gives_up)
        flush_within(store, _FLUSH_SECONDS, gives_up)


def _keep_where(held: HeldBucket, left: threads.Event, is_written: threads.Event) -> None:
    """Leave the hint in the bucket where the store is, and write it again if a former holder's arrived late."""
    while not left.is_set() and held.lost is None:
        try:
            held.note_where()
        except Exception as error:
            _LOG.warning("the location of this process could not be recorded in the bucket: %s", error)
        is_written.set()
        left.wait(_WHERE_SECONDS)

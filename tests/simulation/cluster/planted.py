"""Planted: mistakes in the protocol of failover, each of which the simulation must find.

Some are of the history of this repository: their text names the commit that mended them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from nyala.clients.spark.stream_read import FailedReader, StreamReader
from nyala.engine.bucket.files import stored
from nyala.engine.bucket.files.filesystem import BucketFileSystem
from nyala.engine.home.holding import Holding, verb
from nyala.engine.maintenance.upkeep import TabletUpkeep
from nyala.engine.recovery import sweep_bucket
from nyala.engine.replica.replica import Replica
from nyala.engine.replica.slots import SlotSource
from nyala.engine.store import Store
from nyala.engine.transaction.staging import area
from nyala.engine.wal.slots.bucket_slots import BucketSlots
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.kept import KeptSlot
from nyala.engine.wal.slots.lease import Lease
from nyala.engine.wal.slots.pace import BYTES_MAX, Pace
from nyala.engine.wal.slots.slot import Slot
from nyala.engine.wal.slots.tail import Tail
from nyala.schemas.errors import UnavailableError

Plant = Callable[[], AbstractContextManager[object]]


@contextmanager
def refusal_is_mine() -> Iterator[None]:
    """A slot that another process made first passes for one's own."""
    create = BucketSlots.create

    def create_mine(self: BucketSlots, *given: Any) -> bool:
        create(self, *given)
        return True

    with patch.object(BucketSlots, "create", create_mine):
        yield


@contextmanager
def acks_unknown() -> Iterator[None]:
    """A slot counts though no answer to it came."""
    create = BucketSlots.create

    def create_somehow(self: BucketSlots, *given: Any) -> bool:
        try:
            return create(self, *given)
        except UnavailableError:
            return True

    with patch.object(BucketSlots, "create", create_somehow):
        yield


@contextmanager
def no_lease() -> Iterator[None]:
    """A process answers reads of "now" though another one may have the store."""
    with patch.object(Lease, "check", lambda self: None), patch.object(Lease, "holds", True):
        yield


@contextmanager
def ceiling_ignored() -> Iterator[None]:
    """The next holder begins at its own clock, not above what the former one may have given out."""
    with patch.object(CeilingClock, "update", lambda self, timestamp: None):
        yield


@contextmanager
def void_claims_count() -> Iterator[None]:
    """A claim counts though there are slots above it: it fell into a slot that was written and freed."""
    end = BucketSlots.end

    def no_end(self: BucketSlots, after: int = 0) -> int:
        return after + 1 if after else end(self, after)

    with patch.object(BucketSlots, "end", no_end):
        yield


@contextmanager
def former_holders_refuse() -> Iterator[None]:
    """A former holder says that there is no such table, though the next one has made it (397a0e7f)."""
    with patch.object(Holding, "judge", lambda self, error: self._note_damage(error)):
        yield


@contextmanager
def parts_of_former_holders() -> Iterator[None]:
    """A former holder acknowledges a staged part that the next one does not know (9a5f9b12)."""

    def stage(self: Store, *given: Any) -> Any:
        return self._transactions.stage(*given)

    with patch.object(Store, "stage", verb(stage)), patch.object(BucketFileSystem, "forget_stock", lambda self: None):
        yield


@contextmanager
def commits_in_one_request() -> Iterator[None]:
    """A commit is put by one request, which no beat passes, however long that takes (23c911a7)."""
    any_size = property(lambda self: BYTES_MAX, lambda self, size: None)
    with patch.object(Pace, "bytes", any_size, create=True):
        yield


@contextmanager
def claims_deleted() -> Iterator[None]:
    """Claims are freed like other slots, so that a former holder runs into none."""
    of = KeptSlot.of

    def of_any(slot: Slot, is_in_force: bool = False) -> KeptSlot:
        return replace(of(slot, is_in_force), stays=False)

    with patch.object(KeptSlot, "of", of_any):
        yield


@contextmanager
def empty_memory_flushed() -> Iterator[None]:
    """What is in memory is flushed for its pages, also if they have no rows, again and again (f867b26f)."""

    def score(self: TabletUpkeep) -> float:
        return self.tablet.version.active.nbytes / self.options.flush_bytes

    with patch.object(TabletUpkeep, "flush_score", score):
        yield


@contextmanager
def claims_too_early() -> Iterator[None]:
    """Who claims the log waits for its own lease, though its holder counts on a longer one (0859dfb5)."""
    see = Tail._see

    def see_no_lease(self: Tail, slot: Slot | None) -> None:
        see(self, slot)
        self.ttl = self._own_ttl

    with patch.object(Tail, "_see", see_no_lease):
        yield


@contextmanager
def caches_know_no_maker() -> Iterator[None]:
    """A cache of a history that is gone is believed: files of one name and size pass for the same (f11f08c1)."""
    key_of = stored.key_of
    with patch.object(stored, "key_of", lambda store, maker, *place: key_of(store, "", *place)):
        yield


@contextmanager
def clocks_judge_moments() -> Iterator[None]:
    """A replica whose clock is behind says that an acknowledged write is in the future (0edff730)."""
    wait = Replica._wait_for_moment

    def judge(self: Replica[Any], moment: int | str, what: str) -> None:
        self.check_not_ahead(moment, what)
        wait(self, moment, what)

    with patch.object(Replica, "_wait_for_moment", judge):
        yield


@contextmanager
def staged_rows_left() -> Iterator[None]:
    """A sweep leaves rows that were staged for a transaction that nobody will commit any more (15d2a278)."""
    with patch.object(sweep_bucket, "_abandoned", lambda *how: set[str]()):
        yield


@contextmanager
def names_of_the_next_holder() -> Iterator[None]:
    """A holder that opens late goes on with the numbers of what the next one has staged ("transaction/staging:
    A late holder takes no next holder's names")."""
    with patch.object(area, "reign_of", lambda number: 0):
        yield


@contextmanager
def old_listings_count() -> Iterator[None]:
    """A replica believes what it listed of a history that is gone, though files of these names were made anew
    ("replica: Files left in a bucket put back are not taken for others")."""

    def look_for(self: SlotSource, paths: Sequence[str]) -> None:
        assert self._fs is not None
        if not all(map(self._fs.exists, paths)):
            self._fs.look_again(paths[0].rpartition("/")[0])

    with patch.object(SlotSource, "look_for", look_for):
        yield


@contextmanager
def tasks_never_try_again() -> Iterator[None]:
    """A stream whose reader for tasks was made while no server answered fails for want of an attribute (1ccf7a08)."""
    with patch.object(FailedReader, "read", StreamReader.read):
        yield


PLANTED: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        refusal_is_mine,
        acks_unknown,
        no_lease,
        ceiling_ignored,
        void_claims_count,
        former_holders_refuse,
        parts_of_former_holders,
        commits_in_one_request,
        claims_deleted,
        empty_memory_flushed,
        claims_too_early,
        caches_know_no_maker,
        clocks_judge_moments,
        staged_rows_left,
        names_of_the_next_holder,
        old_listings_count,
        tasks_never_try_again,
    )
}

FIRST_SEEDS: dict[str, int] = dict.fromkeys(PLANTED, 0) | {
    "parts_of_former_holders": 17,
    "commits_in_one_request": 18,
    "empty_memory_flushed": 24,
    "tasks_never_try_again": 97,
    "claims_deleted": 31,
    "former_holders_refuse": 66,
    "old_listings_count": 951,
    "claims_too_early": 1090,
    "names_of_the_next_holder": 1845,
    "caches_know_no_maker": 24,
    "clocks_judge_moments": 3694,
}
"""The first seed that found each; 0: it is among the first few."""

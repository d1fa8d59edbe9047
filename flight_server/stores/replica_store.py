"""ReplicaStore: what a process answers for a store that it does not have, and follows.

It never answers about "now". A scan that may be so many seconds behind reads the newest snapshot here, if that has all
writes that were acknowledged longer ago; one at an earlier time reads at that time. All else is refused, as by any
process that stands by, with the locations of the one that has the store.

GRANTS are part of what it follows, so who is no administrator may read what the grants say that it has applied. They
count only while it had all of the log ``recent_seconds`` ago: for so long at most it honours one that was revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from ...engine.replica.slots import SlotReplica
from ...schemas.errors import UnavailableError
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.store.description import Health, TableDescription, TableStats, TabletMap
from ...schemas.store.grants import Grant
from ...schemas.store.whereabouts import Whereabouts
from .absent_store import AbsentStore, Denied, ForOthers
from .follower import Follower

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class ReplicaStore(AbsentStore):
    """The store that a process serves while it follows the log of another: a ``StoreService``, whose replica answers
    scans that may be behind."""

    def __init__(
        self,
        whereabouts: Callable[[], Whereabouts],
        version: str,
        follower: Callable[[], Follower | None],
        recent_seconds: float,
    ) -> None:
        """``follower`` returns who follows the store now. Names of tables, schemas and statistics are told if they were
        right ``recent_seconds`` ago."""
        super().__init__(whereabouts, version)
        self._follower = follower
        self._recent_seconds = recent_seconds

    def health(self) -> Health:
        """See StoreService."""
        follower = self._follower()
        uuid = follower.store_uuid if follower is not None else ""
        return super().health().model_copy(update={"store_uuid": uuid})

    def for_others(self, guarded: StoreService | None, denied: Denied) -> AbsentStore:
        """See AbsentStore. ``guarded`` is this store as far as the caller may use it, once grants are known."""
        if guarded is None:
            return super().for_others(guarded, denied)
        return _ReplicaForOthers(self, guarded, self._whereabouts, self._version, denied)

    def grants(self) -> list[Grant]:
        """See StoreService."""
        return self._recent(SlotReplica.grants)

    def grants_version(self) -> object:
        """See GrantKeeper. Raises UnavailableError: the grants may have changed too long ago to count."""
        return self._recent(SlotReplica.grants_version)

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        with self._naming_holder():
            stream = self._replica().scan(self.pinned(spec))
        marked = stream.marked and self._naming(stream.marked)
        return replace(stream, batches=self._naming(stream.batches), marked=marked)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        with self._naming_holder():
            return self._replica().plan(self.pinned(spec))

    def release_scan(self, lease: str) -> None:
        """See StoreService."""
        with self._naming_holder():
            self._replica().release_scan(lease)

    def tables(self) -> list[str]:
        """See StoreService. As they were a moment ago, like all that is not read at a snapshot."""
        return self._recent(SlotReplica.tables)

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return self._recent(lambda replica: replica.describe_table(name))

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return self._recent(lambda replica: replica.table_stats(name))

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return self._recent(lambda replica: replica.tablets(name))

    @property
    def lag_seconds(self) -> float | None:
        """How long ago the replica had all of the log; None: it answers nothing yet."""
        follower = self._follower()
        return None if follower is None else follower.lag_seconds

    def _replica(self) -> SlotReplica:
        follower = self._follower()
        if follower is None:
            self.refuse()
        return follower.replica

    def _recent(self, ask: Callable[[SlotReplica], Answer]) -> Answer:
        with self._naming_holder():
            lag = self.lag_seconds
            if lag is None or lag > self._recent_seconds:
                self.refuse()
            return ask(self._replica())

    def pinned(self, spec: ScanSpec) -> ScanSpec:
        """Return a scan at a snapshot that this process can know. Raises UnavailableError: it is to read "now", or this
        process is further behind."""
        if spec.moment is not None:
            return spec
        if spec.max_staleness is None:
            self.refuse()
        with self._naming_holder():
            return spec.pinned(self._replica().snapshot(spec.max_staleness))

    @contextmanager
    def _naming_holder(self) -> Iterator[None]:
        """Tell, with the error that something cannot be read here, where it can."""
        try:
            yield
        except UnavailableError as error:
            if error.locations is not None:
                raise
            raise self.refusal(error.message) from error

    def _naming(self, items: Iterator[Item]) -> Iterator[Item]:
        with self._naming_holder():
            yield from items


class _ReplicaForOthers(ForOthers):
    """What a replica answers to a caller who is no administrator: reads as far as grants allow, and nothing else.

    What is to be refused is refused before grants are asked, and these are those of after the snapshot was reached.
    """

    def __init__(
        self,
        replica: ReplicaStore,
        guarded: StoreService,
        whereabouts: Callable[[], Whereabouts],
        version: str,
        denied: Denied,
    ) -> None:
        super().__init__(whereabouts, version, denied)
        self._replica = replica
        self._guarded = guarded

    def health(self) -> Health:
        """See StoreService. To anyone, whatever is known of grants."""
        return self._replica.health()

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        return self._guarded.scan(self._replica.pinned(spec))

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        return self._guarded.plan(self._replica.pinned(spec))

    def release_scan(self, lease: str) -> None:
        """See StoreService."""
        self._guarded.release_scan(lease)

    def grants(self) -> list[Grant]:
        """See StoreService."""
        return self._guarded.grants()

    def tables(self) -> list[str]:
        """See StoreService."""
        return self._guarded.tables()

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return self._guarded.describe_table(name)

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return self._guarded.table_stats(name)

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return self._guarded.tablets(name)

"""ReadOnlyStore: a store that is opened for reading only, whoever has it meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError, UnavailableError
from ...schemas.protocol.service import RefusingStore
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.metrics import Metrics
from .. import threads
from ..commit.authors_file import AuthorsFile
from ..commit.commit_authors import CommitAuthors
from ..home.home import Aside
from ..mvcc.clock import Clock, boot_seconds, timestamp_of
from ..options import StoreOptions
from ..table.stats import health_of
from .replica import PATIENCE_SECONDS, Replica
from .source import AnyPoint, LookingSource, OtherHistoryError, ReplacedError

if TYPE_CHECKING:
    import pyarrow as pa

    from ...schemas.protocol.service import ScanStream
    from ...schemas.rows.scan_plan import ScanPlan
    from ...schemas.store.description import (
        DroppedTable,
        Health,
        TableDescription,
        TableStats,
        TabletMap,
    )
    from ...schemas.store.grants import Grant
    from ...schemas.store.placement import Placement

Answer = TypeVar("Answer")

_READS_PER_INDEXING = 64
"""After so many reads of single rows, indexes of keys are built where they pay."""
_PAUSE_SECONDS = 0.05
_LOOKS_MAX = 100
"""A holder that replaces files during each of so many looks leaves no time to open them."""


class ReadOnlyStore(RefusingStore, Generic[AnyPoint]):
    """A store that is opened for reading only: a ``StoreService``. Thread safe.

    Another process may have the store, may start or die. Each read looks first whether the log or the manifest has
    changed, on its own thread, unless it may be so old that an earlier look is enough (``max_staleness``). It takes no
    lock, and writes nothing.
    """

    def __init__(
        self,
        where: str,
        source: LookingSource[AnyPoint],
        aside: Aside,
        options: StoreOptions,
        clock: Clock,
        is_far: bool = False,
    ) -> None:
        """Use `open_to_read`. ``where`` names the store in messages, ``aside`` has the documents beside it. Raises as
        that does."""
        self._where, self._source, self._aside = where, source, aside
        self._options, self._clock, self._is_far = options, clock, is_far
        self._replica = self._new_replica()
        self._looking = threads.Lock()
        self._looked_at = float("-inf")
        """All that was acknowledged before is visible; in seconds since boot."""
        self._rows_read = 0
        self._is_closed = False
        self._process = os.getpid()
        try:
            self._look(0.0)
        except BaseException:
            self.close()
            raise

    def refuse(self) -> NoReturn:
        """Raise the error of a call that would change the store."""
        self._check_open()
        raise InvalidArgumentError(
            f"the store in {self._where} is open for reading only: to change it, use nyala.connect to the process "
            "that has it open, or, if there is no such process, nyala.open(path)"
        )

    # Reads of rows

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. Without ``max_staleness``, all that was acknowledged before the call is visible."""
        self._look_for(spec)
        return self._answered(lambda replica: replica.scan(_reached(spec, replica)), lambda stream: stream.close())

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        self._look_for(spec)
        return self._answered(lambda replica: replica.plan(_reached(spec, replica)), self._end_plan)

    def release_scan(self, lease: str) -> None:
        """See StoreService."""
        self._check_open()
        self._replica.release_scan(lease)

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        self._look(0.0)
        return self._answered(
            lambda replica: replica.check_opened().ways.look_up(table, keys), lambda stream: stream.close()
        )

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See StoreService."""
        self._look(0.0)
        row = self._answered(lambda replica: replica.check_opened().ways.get_row(table, key))
        self._rows_read += 1
        if self._rows_read % _READS_PER_INDEXING == 0:
            with suppress(StoreError):  # it is in the way of no read
                self._replica.index_keys(table.name, _READS_PER_INDEXING)
        return row

    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """See StoreService. Who made the newest commits is known once the process that has the store has noted it."""
        self._look(0.0)
        return self._answered(
            lambda replica: replica.commits(
                table, since, AuthorsFile(self._aside, CommitAuthors(), replica.readable).authored
            )
        )

    def last_change(self, table: str) -> int:
        """See StoreService."""
        self._look(0.0)
        return self._answered(lambda replica: replica.check_opened().last_change(table))

    def now(self, at_least: int = 0) -> int:
        """See StoreService. The timestamp of the last commit, or a little later."""
        self._look(0.0)
        self._look_at(at_least, "at_least")
        return self._replica.now(at_least)

    # What there is

    def tables(self) -> list[str]:
        """See StoreService."""
        return self._newest().tables()

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService."""
        return self._newest().describe_table(name)

    def table_stats(self, name: str) -> TableStats:
        """See StoreService."""
        return self._newest().table_stats(name)

    def tablets(self, name: str) -> TabletMap:
        """See StoreService."""
        return self._newest().tablets(name)

    def dropped_tables(self) -> list[DroppedTable]:
        """See StoreService."""
        return self._newest().dropped_tables()

    def grants(self) -> list[Grant]:
        """See StoreService."""
        return self._newest().grants()

    def placement(self) -> Placement:
        """See StoreService."""
        raise NotFoundError("this store shares its tables with no other server")

    def health(self) -> Health:
        """See StoreService."""
        replica = self._newest()
        why = "this process has opened the store for reading only"
        return health_of(why, "", replica.damaged_files(), [], None, replica.store_uuid, 0.0)

    def metrics(self) -> Metrics:
        """See StoreService. The process that has the store counts."""
        self._check_open()
        return Metrics()

    def close(self) -> None:
        """See StoreService. Scans that run end."""
        if self._is_closed:
            return
        self._is_closed = True
        self._replica.close()
        if self._process == os.getpid():
            with self._looking:
                self._source.close()

    def __enter__(self) -> ReadOnlyStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self._where!r})"

    # Looks

    def _new_replica(self) -> Replica[AnyPoint]:
        return Replica(self._source, self._options, self._clock, self._is_far)

    def _newest(self) -> Replica[AnyPoint]:
        self._look(0.0)
        return self._replica

    def _check_open(self) -> None:
        if self._is_closed:
            raise UnavailableError("the store is closed")
        if self._process != os.getpid():
            raise UnavailableError(
                "this process was forked from one that has opened the store for reading: open it after the fork"
            )

    def _look_for(self, spec: ScanSpec) -> None:
        """Look at the log, unless a scan may read what was there at an earlier look."""
        if spec.moment is None:
            self._look(spec.max_staleness or 0.0)
        for what, moment in spec.moments.items():
            self._look_at(moment, what)

    def _look_at(self, moment: int | str, what: str) -> None:
        """Look at the log until it has come to a moment; once, if a commit may have come there since. Raises
        InvalidArgumentError: it is far in the future."""
        self._check_open()
        timestamp, late = parse_moment(moment, what), boot_seconds() + PATIENCE_SECONDS
        if timestamp > self._replica.safe:  # a commit up to there may have come since the last look
            self._look(0.0)
        while timestamp > self._replica.readable:
            ahead = (timestamp - timestamp_of(self._clock.physical_microseconds())) / timestamp_of(1_000_000)
            if 0 < ahead <= PATIENCE_SECONDS:
                _wait(ahead)
            self._look(0.0)
            if ahead > PATIENCE_SECONDS and timestamp > self._replica.readable:
                self._replica.check_not_ahead(moment, what)
            if ahead > PATIENCE_SECONDS or boot_seconds() > late:
                return  # who reads there gets the error
            if timestamp > self._replica.readable:
                _wait(_PAUSE_SECONDS)

    def _look(self, max_staleness: float) -> None:
        """See to it that all is visible that was acknowledged more than ``max_staleness`` seconds before the call."""
        self._check_open()
        moment = boot_seconds() - max_staleness
        if self._looked_at >= moment:
            return
        with self._looking:
            if self._looked_at >= moment:  # another reader has looked meanwhile
                return
            self._check_open()
            began = boot_seconds()
            self._advance(began)
            self._looked_at = began

    def _advance(self, looked: float) -> None:
        for _ in range(_LOOKS_MAX):
            point = self._source.look()
            try:
                self._replica.advance(point, looked)
                if self._replica.end >= point.number:  # else it was void
                    return
            except OtherHistoryError:
                self._replica.close()
                self._replica = self._new_replica()
            except ReplacedError:
                continue
            except StoreError:
                self._check_open()
                try:
                    self._source.check_newest(point)
                except ReplacedError:
                    continue
                raise
        raise UnavailableError(
            "the process that has the store replaces its files faster than they can be read: try again"
        )

    def _answered(
        self, ask: Callable[[Replica[AnyPoint]], Answer], drop: Callable[[Answer], object] = lambda answer: None
    ) -> Answer:
        """Return an answer of which all is of the same tables. It may find a table, and take a snapshot after another
        thread has replaced that."""
        replica = self._replica
        try:
            shown = replica.shown
            answer = ask(replica)
            if replica is self._replica and replica.shown is shown:
                return answer
            drop(answer)
        except UnavailableError:  # it may be one that was closed meanwhile
            if replica is self._replica:
                raise
        with self._looking:
            return ask(self._replica)

    def _end_plan(self, plan: ScanPlan) -> None:
        if plan.lease is not None:
            self._replica.release_scan(plan.lease)


def _reached(spec: ScanSpec, replica: Replica[Any]) -> ScanSpec:
    """Return a scan at a snapshot. Between the newest one and the time of day no commit is known, and one may come."""
    moment, since, safe = spec.moment, spec.moments.get("since"), replica.safe
    if moment is None or not safe < parse_moment(moment) <= replica.readable:
        return spec
    return spec.pinned(safe if since is None else max(safe, parse_moment(since)))


def _wait(seconds: float) -> None:
    threads.Event().wait(seconds)

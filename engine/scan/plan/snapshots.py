"""Snapshots: turns times that clients name into snapshots of a table, and decides how much of its history is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ....schemas.cells.timestamp import check_timestamp, datetime_of, last_of, parse_moment
from ....schemas.errors import InvalidArgumentError, SnapshotTooOldError
from ....schemas.rows.scan import ScanSpec
from ... import threads
from ...mvcc.clock import Clock, microseconds_of
from ...mvcc.mvcc import MvccManager
from ...table.table import Table
from ...table.table_version import TableVersion
from ..read.chunk import ChangeRange


class Snapshots:
    """Turns the times that requests to one store name into snapshots. Thread safe."""

    def __init__(self, clock: Clock, mvcc: MvccManager, clock_error_seconds: int, server: str | None = None) -> None:
        """``server`` is the name of this server in a placement."""
        self._clock = clock
        self._mvcc = mvcc
        self._clock_error_seconds = clock_error_seconds
        self._held: dict[int, list[int]] = {}
        """By table id: timestamps from which the table's history is kept, whatever its age."""
        self._lock = threads.RLock()  # the garbage collector may end a scan on a thread that holds it
        self._whose = f"the clock of the server {server!r}" if server else "this store's clock"

    def range(self, spec: ScanSpec, table: Table, version: TableVersion) -> tuple[int, ChangeRange | None]:
        """Return the snapshot of a scan and, for a scan of changes, their range."""
        feed = spec.changes
        if feed is None:
            return self.of(spec.as_of, table, "as_of"), None
        since = self.of(feed.since, table, "since")
        until = self.of(feed.until, table, "until")
        if feed.until is None:
            until = max(until, since)  # a timestamp slightly ahead of the clock counts as now
        if until < since:
            raise InvalidArgumentError(f"until {feed.until!r} is before since {feed.since!r}")
        return until, ChangeRange(since, feed.before, feed.every, frozenset(version.schema.by_id))

    def of(self, moment: int | str | None, table: Table, what: str) -> int:
        """Return the snapshot for ``moment``, once everything at or below it is visible; None means now."""
        if moment is None:
            return self._mvcc.snapshot()
        snapshot = self.checked(moment, table, what)
        self._mvcc.wait_for(snapshot)
        return snapshot

    def checked(self, moment: int | str, table: Table, what: str) -> int:
        """Return the timestamp for ``moment``, which the table's history must reach."""
        snapshot = parse_moment(moment, what)
        self.check_not_ahead(snapshot, moment, what)
        now = self._clock.physical_microseconds()
        age = table.options.history_max_age_seconds
        if snapshot < min([last_of(now - age * 1_000_000), *self._held_of(table)]):
            at = f"{moment!r} ({datetime_of(snapshot):%Y-%m-%d %H:%M:%S} UTC)"
            raise SnapshotTooOldError(
                f"{what} {at} is older than the history of table {table.name!r}, which keeps {age:,} seconds; to "
                "keep more from now on, set a larger history_max_age_seconds"
            )
        return snapshot

    @contextmanager
    def holding(self, table: Table, moment: int) -> Iterator[None]:
        """Keep a table's history from a timestamp on while the body runs, whatever its maximum age."""
        with self._lock:
            self._held.setdefault(table.table_id, []).append(moment)
        try:
            yield
        finally:
            with self._lock:
                self._held[table.table_id].remove(moment)
                if not self._held[table.table_id]:
                    del self._held[table.table_id]

    def _held_of(self, table: Table) -> list[int]:
        with self._lock:
            return list(self._held.get(table.table_id, ()))

    def check_not_ahead(self, snapshot: int, moment: int | str, what: str) -> None:
        """Reject a timestamp further ahead of this clock, and of the newest snapshot, than clocks may differ: a clock
        that is behind makes no moment future at which another server had the store just now."""
        check_timestamp(snapshot, what)
        now, error = self._clock.physical_microseconds(), self._clock_error_seconds * 1_000_000
        if snapshot <= last_of(now + error):
            return
        if snapshot > last_of(microseconds_of(self._mvcc.newest()) + error):
            ahead = (microseconds_of(snapshot) - now) / 1e6
            raise InvalidArgumentError(
                f"{what} {moment!r} is in the future: {ahead:,.1f} s ahead of {self._whose}, and at most "
                f"{self._clock_error_seconds:,} s are allowed (clock_error_seconds)"
            )

    @property
    def seconds_ahead(self) -> float:
        """How far timestamps of this store are ahead of the wall clock: they follow other clocks, and never go back."""
        return max(microseconds_of(self._mvcc.now()) - self._clock.physical_microseconds(), 0) / 1e6

    def now(self, at_least: int = 0) -> int:
        """Return the newest snapshot, after this clock has followed another one to ``at_least``."""
        if at_least:
            self.check_not_ahead(at_least, at_least, "at_least")
            self._mvcc.wait_for(at_least)
        return max(self._mvcc.snapshot(), at_least)

    def ancient_history_mark(self, table: Table) -> int:
        """Return the oldest snapshot that the table's history keeps, never newer than the newest visible one."""
        now = self._clock.physical_microseconds()
        kept_from = last_of(max(now - table.options.history_max_age_seconds * 1_000_000, 0))
        return min(kept_from, self._mvcc.snapshot(), *self._held_of(table))

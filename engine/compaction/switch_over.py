"""Switches from old to new rowsets while writers continue: the common part of flushes and compactions.

Rows move from their old rowsets to new ones that are not visible yet. Changes made since the new files were written are
in the old rowsets; they are carried over in rounds that get shorter, and only the last, small round runs under the
tablet's write lock. Then the version is replaced, and the slot of an indexed old rowset gets the new locations of its
rows. The keys follow later, a few thousand at a time (`tablet.key_lookup`). So the lock is held for milliseconds,
however many rows move. The rows have moved by then: if their keys cannot be read, only the key index is lost
(`keys_follow`).

The new rowsets may lack a row that has been dead for longer than history goes back. If its key comes back meanwhile,
the change goes to the old row and becomes the first cells of a new row, in a MemRowSet of its own that is flushed next.
In the log it is an insert like any other. The key of such a row is read from the old file before the commit, when an
error costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from ...schemas.errors import StoreError
from ..delta import LIVE
from ..delta.run import DeltaRun
from ..manifest.environment import Environment
from ..rowset.diskrowset import DiskRowSet
from ..rowset.location import by_slot, pack, rowids_of
from ..rowset.memrowset import MemRowSet
from ..rowset.rowset import RowSet
from ..tablet.key_lookup import MovedKeys, hashes_of
from ..tablet.tablet import Tablet
from ..tablet.version import Version
from ..vectors.vector import FixedVector, stored_as
from .revived_rows import RevivedRows

_LOG = logging.getLogger("nyala.engine")

_LAST_ROUND = 2048
"""The most deltas to carry over under the lock."""
_ROUNDS = 16
"""After this many rounds writers are faster than the carrying over, and wait once."""


_DELTAS_AT_ONCE = 1 << 16
"""The most deltas of a column to copy at a time."""


@dataclass(slots=True, eq=False)
class MovedRowSet:
    """A rowset that a flush or compaction replaces, so that its rows move. During the move this is its only reference,
    see ``let_go``."""

    rowset: RowSet
    mark: dict[int, int]
    """How many deltas of its active DeltaMemStore are in the new files, or have been carried over."""
    locations: np.ndarray
    """int64: the new location of each row, -1 if it is dropped."""

    def let_go(self, targets: Sequence[DiskRowSet]) -> MovedKeys:
        """Return the keys, after the rows have moved, and release the memory stores, which scans may still hold."""
        slot, locations = self.rowset.slot, self.locations
        if isinstance(self.rowset, DiskRowSet):
            self.rowset = self.rowset.without_memory()
        else:  # a flush: all rows are in its target, in another order
            (self.rowset,) = targets
            locations = pack(self.rowset.slot, np.arange(len(self.rowset)))
        return MovedKeys(slot, locations, hashes_of(self.rowset))


class SwitchOver:
    """Moves the rows of ``moved``, the replaced rowsets, to ``targets``, whose files hold all commits up to log
    position ``lsn``."""

    def __init__(self, tablet: Tablet, moved: Sequence[MovedRowSet], targets: Sequence[DiskRowSet], lsn: int) -> None:
        self._tablet = tablet
        self._moved = moved
        self._targets = {target.slot: target for target in targets}
        self._lsn = lsn
        self._revived = RevivedRows()

    def catch_up(self) -> None:
        """Carry over concurrent changes until few are left. Needs no lock.

        Raises:
            StoreError: the keys of rows that came back cannot be read.
        """
        for _ in range(_ROUNDS):
            if self._carry_over() <= _LAST_ROUND:
                break
        self._revived.read_keys(self._tablet.schema)

    def put(self, replaced: Callable[[Version], Version], environment: Environment) -> None:
        """Install the version that ``replaced`` makes of the tablet's. The index is to ``follow``.

        Writers never see a switch-over that failed half way: the store becomes read-only before the lock is released.
        """
        tablet, moving = self._tablet, "rows could not be moved to their new files"
        with suppress(StoreError):  # of rows that came back since the commit; their keys are read once more below
            self.catch_up()
        with tablet.write_lock, environment.latch.on_failure(moving):
            self._carry_over()
            version = replaced(tablet.version)
            if self._revived:
                # Flushed first: its rows may be older in the log than those that an alteration has set aside meanwhile.
                version = replace(version, frozen=(self._revived_memrowset(), *version.frozen))
            tablet.version, tablet.being_replaced = version, ()
            for moved in self._moved:
                tablet.key_lookup.forward(moved.rowset.slot, moved.locations)
        self._revived = RevivedRows()

    def follow(self, environment: Environment) -> None:
        """Update the key index after ``put``."""
        targets = list(self._targets.values())
        with keys_follow(self._tablet, environment):
            keys = [moved.let_go(targets) for moved in self._moved]
            self._tablet.key_lookup.follow(keys, targets, self._tablet.write_lock)

    def _carry_over(self) -> int:
        """Carry over the changes since the last round; return how many deltas there were."""
        count = 0
        for moved in self._moved:
            store = moved.rowset.deltas.active
            now = store.counts()
            while moved.mark != now:
                done = moved.mark
                some = {column: min(end, done.get(column, 0) + _DELTAS_AT_ONCE) for column, end in now.items()}
                for column_id, run in store.between(moved.mark, some).items():
                    count += len(run)
                    self._place(moved, column_id, run)
                moved.mark = some
        return count

    def _place(self, moved: MovedRowSet, column_id: int, run: DeltaRun) -> None:
        locations = moved.locations[run.rowids]
        gone = locations < 0
        if gone.any():
            self._revived.add(moved.rowset, moved.locations, column_id, run.take(np.flatnonzero(gone)))
        kept = np.flatnonzero(~gone)
        for slot, group in by_slot(locations[kept]):
            target, positions = self._targets[slot], kept[group]
            rowids = rowids_of(locations[positions])
            order = np.argsort(rowids, kind="stable")
            part = run.take(positions[order])
            mine = DeltaRun(rowids[order].astype(np.int32), part.timestamps, part.values)
            append_changes(target, column_id, mine, self._lsn + 1)

    def _revived_memrowset(self) -> MemRowSet:
        tablet = self._tablet
        memrowset = tablet.new_memrowset()
        for column_id, run in self._revived.fill(memrowset, tablet.schema, tablet.encoder, self._lsn + 1).items():
            append_changes(memrowset, column_id, run, self._lsn + 1)
        return memrowset


@contextmanager
def keys_follow(tablet: Tablet, environment: Environment) -> Iterator[None]:
    """Let the key index follow rows that have moved, in the body. An error stops nothing: memory has what the manifest
    says, and the index is built anew from the files. So it is for whoever interrupts this."""
    try:
        yield
    except BaseException as error:
        tablet.key_lookup.forget(tablet.write_lock)
        if not isinstance(error, Exception):
            raise
        environment.damage.note(error)
        _LOG.warning("the key index of tablet %d is built anew after an error: %r", tablet.tablet_id, error)


def append_changes(target: RowSet, column_id: int, run: DeltaRun, lsn: int) -> None:
    """Add changes of a column, or of liveness, to an output of a compaction that is not visible yet; the log has them
    from ``lsn``."""
    columns = {column_id: (stored_as(run.values), run.values)}
    target.deltas.active.append(FixedVector(run.rowids), FixedVector(run.timestamps), columns, lsn)
    if column_id == LIVE:
        assert isinstance(run.values, FixedVector)
        is_last = np.append(run.rowids[1:] != run.rowids[:-1], True)
        alive = run.values.values.astype(np.bool_)
        target.live.set(run.rowids[is_last & alive], True)
        target.live.set(run.rowids[is_last & ~alive], False)

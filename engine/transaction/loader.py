"""Loader: writes the new rows of a transaction that belong to one tablet to disk, before any lock is taken.

As in `direct_load`: the rows come to the tablet by the commit's record, which names the rowsets they are in, and take
no memory beyond what waits to be written. Rows of keys that are there, alive or dead, and what is left of too little
for a rowset, go the ordinary way.

Rowsets are sorted, encoded and synced by the store's pool of threads, one at a time for each tablet, beside the thread
that reads what was staged.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ..table.direct_load import DirectLoad
from ..table.routed_batch import TabletRows, whole_rows
from ..table.table_version import TableVersion
from ..tablet.attach import NewKeys, StagedRowSet
from ..tablet.tablet import Tablet
from ..vectors.keys import concat_keys, slice_keys
from .tablet_part import TabletPart

_KEYS_AT_ONCE = 1 << 14
"""Keys that are looked up without letting go of the lock."""
_LAST_OF = 8
"""The last rowset of several may be so much smaller."""


class Loader:
    """The new rows of one tablet. For one thread. ``give_up`` must follow, whatever became of them."""

    def __init__(
        self, direct_load: DirectLoad, version: TableVersion, tablet: Tablet, bytes_at_once: int, pool: Executor
    ) -> None:
        """Note from now on which keys come to the tablet; ``pool`` writes."""
        self._direct_load = direct_load
        self._version = version
        self._tablet = tablet
        self._bytes_at_once = bytes_at_once
        self._pool = pool
        self._new = NewKeys(tablet, np.empty(0, np.uint64))
        self._waiting: list[TabletPart] = []
        self.waiting_bytes = 0
        """Of rows that are in no rowset yet, and not being written; with what they get by default."""
        self._writing: Future[np.ndarray] | None = None
        self._writing_bytes = 0
        self._written: list[np.ndarray] = []
        self.staged: list[StagedRowSet] = []
        self.rows = 0
        """Of those that were written."""

    @property
    def is_writing(self) -> bool:
        """Whether a rowset is being written."""
        return self._writing is not None and not self._writing.done()

    @property
    def held_bytes(self) -> int:
        """Of rows that are in no rowset yet."""
        return self.waiting_bytes + (self._writing_bytes if self.is_writing else 0)

    def add(self, piece: TabletPart) -> TabletPart | None:
        """Take the new rows of a piece, no two of one key; return the others.

        Raises:
            StorageFullError, UnavailableError: rows could not be written.
        """
        absent = self._absent(piece)
        if absent.any():
            new = piece.chosen(absent).alone()
            self._waiting.append(new)
            defaults = self._version.bytes_of_defaults(int(name) for name in new.rows.schema.names)
            self.waiting_bytes += new.rows.nbytes + len(new) * defaults
            if self.waiting_bytes >= self._bytes_at_once:
                self.write()
        return None if absent.all() else piece.chosen(~absent)

    def finish(self, room_bytes: int) -> list[TabletPart]:
        """Write what waits if it is enough for a rowset or more than ``room_bytes``, and return it if it is not.
        ``settle`` must follow."""
        enough = self._direct_load.sorted_bytes
        if self._writing or self.staged:
            enough //= _LAST_OF  # the tablet's other rows are on disk: one more rowset costs less than the log
        if self._waiting and self.waiting_bytes >= min(enough, room_bytes + 1):
            self.write()
        left, self._waiting, self.waiting_bytes = self._waiting, [], 0
        return left

    def settle(self) -> None:
        """Return when nothing is being written. Raises as ``add`` does."""
        writing, self._writing = self._writing, None
        if writing:
            self._written.append(writing.result())
            self.rows += len(self._written[-1])

    def watch(self) -> None:
        """Compare all that were written with the keys that came meanwhile, so that little is left to be compared under
        the lock."""
        if self.staged:
            self._new.hashes = np.concatenate(self._written)
            self._new.are_still_new()

    def are_still_new(self) -> bool:
        """Whether nobody else has brought one of the keys meanwhile; the answer holds under the write lock."""
        return not self.staged or self._new.are_still_new()

    def give_up(self) -> None:
        """Remove what was not attached."""
        if self._writing:
            with suppress(CancelledError):
                self._writing.exception()  # returns when it has ended
        self._new.forget()
        self._direct_load.give_up([one for one in self.staged if not one.is_logged])

    def _absent(self, piece: TabletPart) -> np.ndarray:
        """Return which keys no rowset has, alive or dead."""
        absent = np.empty(len(piece), np.bool_)
        for first in range(0, len(piece), _KEYS_AT_ONCE):
            last = min(first + _KEYS_AT_ONCE, len(piece))
            keys, hashes = slice_keys(piece.keys, first, last), piece.hashes[first:last]
            with self._tablet.write_lock:
                locations, _ = self._tablet.find(keys, hashes)
            absent[first:last] = locations < 0
        return absent

    def write(self) -> None:
        """Let what waits be written, of which there must be some; raises, as ``add`` does, what became of the last."""
        self.settle()
        waiting, self._waiting = self._waiting, []
        self._writing_bytes, self.waiting_bytes = self.waiting_bytes, 0
        self._writing = self._pool.submit(self._write, waiting)

    def _write(self, waiting: list[TabletPart]) -> np.ndarray:
        """Write pieces, and return the hashes of their keys."""
        rows = pa.concat_batches([whole_rows(self._version, piece.rows, piece.rows) for piece in waiting])
        keys, hashes = concat_keys([piece.keys for piece in waiting]), np.concatenate([p.hashes for p in waiting])
        waiting.clear()  # the rows are there twice now
        part = TabletRows(self._tablet, None, rows, keys, hashes, np.arange(len(hashes)))
        self._direct_load.write(self._version, part, self._new, self.staged)
        return hashes

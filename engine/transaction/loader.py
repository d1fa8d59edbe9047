"""Loader: writes the new rows of a transaction that belong to one tablet to disk, before any lock is taken.

As in `direct_load`, the commit's record names the rowsets and so adds the rows to the tablet. Only rows that wait to be
written take memory. Rows of existing keys, alive or dead, and a remainder too small for a rowset are written in the
ordinary way.

The store's thread pool sorts, encodes and syncs rowsets, one at a time for each tablet, beside the thread that reads
the staged rows.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress

import numpy as np
import pyarrow as pa

from ..table.direct_load import DirectLoad
from ..table.routed_batch import TabletRows
from ..table.table_version import TableVersion
from ..table.tablet_change import whole_rows
from ..tablet.attach import NewKeys, StagedRowSet
from ..tablet.tablet import Tablet
from ..vectors.keys.keys import concat_keys, key_bytes, slice_keys
from .tablet_part import TabletPart

_KEYS_AT_ONCE = 1 << 14
"""Keys to look up before the lock is released."""
_LAST_OF = 8
"""The last of several rowsets may be smaller by this factor."""


class Loader:
    """The new rows of a transaction in one tablet. For one thread. Call ``give_up`` at the end in any case."""

    def __init__(
        self, direct_load: DirectLoad, version: TableVersion, tablet: Tablet, bytes_at_once: int, pool: Executor
    ) -> None:
        """Watch from now on which keys come to the tablet; ``pool`` writes."""
        self._direct_load = direct_load
        self._version = version
        self._tablet = tablet
        self._bytes_at_once = bytes_at_once
        self._pool = pool
        self._new = NewKeys(tablet, np.empty(0, np.uint64))
        self._waiting: list[TabletPart] = []
        self.waiting_bytes = 0
        """Bytes of rows that wait to be written, with their defaults."""
        self._writing: Future[np.ndarray] | None = None
        self._writing_bytes = 0
        self._written: list[np.ndarray] = []
        self.staged: list[StagedRowSet] = []
        self.rows = 0
        """The number of rows written."""
        self.truncated = 0
        """How many of their cells were cut."""

    @property
    def is_writing(self) -> bool:
        """Whether a rowset is being written."""
        return self._writing is not None and not self._writing.done()

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that wait or are being written."""
        return self.waiting_bytes + (self._writing_bytes if self.is_writing else 0)

    def add(self, piece: TabletPart) -> TabletPart | None:
        """Take the new rows of a piece with distinct keys; return the others.

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
        """Write the waiting rows if they are enough for a rowset or more than ``room_bytes``; else return them. Call
        ``settle`` next."""
        enough = self._direct_load.sorted_bytes
        if self._writing or self.staged:
            enough //= _LAST_OF  # the tablet's other rows are on disk: one more rowset costs less than the log
        if self._waiting and self.waiting_bytes >= min(enough, room_bytes + 1):
            self.write()
        left, self._waiting, self.waiting_bytes = self._waiting, [], 0
        return left

    def settle(self) -> None:
        """Wait until nothing is being written. Raises as ``add`` does."""
        writing, self._writing = self._writing, None
        if writing:
            self._written.append(writing.result())
            self.rows += len(self._written[-1])

    def watch(self) -> None:
        """Compare all written rows with the keys that have come meanwhile, to leave little to compare under the
        lock."""
        if self.staged:
            self._new.hashes = np.concatenate(self._written)
            self._new.are_still_new()

    def are_still_new(self) -> bool:
        """Whether nobody else has written one of the keys meanwhile; the answer holds under the write lock."""
        return not self.staged or self._new.are_still_new()

    def give_up(self) -> None:
        """Remove the rowsets that were not attached."""
        if self._writing:
            with suppress(CancelledError):
                self._writing.exception()  # waits until it has ended
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
        """Start to write the waiting rows, of which there are some; raises the error of the last write."""
        self.settle()
        waiting, self._waiting = self._waiting, []
        self.truncated += sum(int(piece.cuts.sum()) for piece in waiting if piece.cuts is not None)
        self._writing_bytes, self.waiting_bytes = self.waiting_bytes, 0
        self._writing = self._pool.submit(self._write, waiting)

    def _write(self, waiting: list[TabletPart]) -> np.ndarray:
        """Write pieces, and return the hashes of their keys."""
        waiting.sort(key=lambda piece: key_bytes(piece.keys, 0))  # parts that are each in order are so together
        rows = pa.concat_batches(
            [whole_rows(self._version, piece.rows, piece.rows, piece.computing) for piece in waiting]
        )
        keys, hashes = concat_keys([piece.keys for piece in waiting]), np.concatenate([p.hashes for p in waiting])
        waiting.clear()  # the rows are in memory twice now
        part = TabletRows(self._tablet, None, rows, keys, hashes, np.arange(len(hashes)))
        self._direct_load.write(self._version, part, self._new, self.staged, pool=self._pool)
        return hashes

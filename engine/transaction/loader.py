"""Loader: writes the new rows of a transaction that belong to one tablet to disk, before any lock is taken.

As in `direct_load`: the rows come to the tablet by the commit's record, which names the rowsets they are in, and take
no memory beyond what waits to be written. Rows of keys that are there, alive or dead, and what is left of too little
for a rowset, go the ordinary way.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..direct_load import DirectLoad
from ..layout import Layout
from ..prepared import Part, whole_rows
from ..tablet.attach import NewKeys, StagedRowSet
from ..tablet.tablet import Tablet
from ..vectors.keys import concat_keys, slice_keys
from .piece import Piece

_KEYS_AT_ONCE = 1 << 14
"""Keys that are looked up without letting go of the lock."""


class Loader:
    """The new rows of one tablet. For one thread. ``give_up`` must follow, whatever became of them."""

    def __init__(self, direct_load: DirectLoad, layout: Layout, tablet: Tablet, bytes_at_once: int) -> None:
        """Note from now on which keys come to the tablet."""
        self._direct_load = direct_load
        self._layout = layout
        self._tablet = tablet
        self._bytes_at_once = bytes_at_once
        self._new = NewKeys(tablet, np.empty(0, np.uint64))
        self._waiting: list[Piece] = []
        self.waiting_bytes = 0
        """Of rows that are in no rowset yet."""
        self._written: list[np.ndarray] = []
        self.staged: list[StagedRowSet] = []
        self.rows = 0
        """Of those that were written."""

    def add(self, piece: Piece) -> Piece | None:
        """Take the new rows of a piece, no two of one key; return the others.

        Raises:
            StorageFullError, UnavailableError: rows could not be written.
        """
        absent = self._absent(piece)
        if absent.any():
            new = piece.chosen(absent).alone()
            self._waiting.append(new)
            self.waiting_bytes += new.rows.nbytes
            if self.waiting_bytes >= self._bytes_at_once:
                self.write()
        return None if absent.all() else piece.chosen(~absent)

    def finish(self, room_bytes: int) -> list[Piece]:
        """Write what waits if it is enough for a rowset or more than ``room_bytes``, and return it if it is not."""
        if self.waiting_bytes >= min(self._direct_load.sorted_bytes, room_bytes + 1):
            self.write()
        left, self._waiting = self._waiting, []
        if self.staged:
            self._new.hashes = np.concatenate(self._written)
            self._new.are_still_new()  # so that little is left to be compared under the lock
        return left

    def are_still_new(self) -> bool:
        """Whether nobody else has brought one of the keys meanwhile; the answer holds under the write lock."""
        return not self.staged or self._new.are_still_new()

    def give_up(self) -> None:
        """Remove what was not attached."""
        self._new.forget()
        self._direct_load.give_up([one for one in self.staged if not one.is_logged])

    def _absent(self, piece: Piece) -> np.ndarray:
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
        """Write what waits, of which there must be some. Raises as ``add`` does."""
        waiting, self._waiting, self.waiting_bytes = self._waiting, [], 0
        rows = pa.concat_batches([whole_rows(self._layout, piece.rows, piece.rows) for piece in waiting])
        keys, hashes = concat_keys([piece.keys for piece in waiting]), np.concatenate([p.hashes for p in waiting])
        part = Part(self._tablet, None, rows, keys, hashes, np.arange(len(hashes)))
        self._direct_load.write(self._layout, part, self._new, self.staged)
        self._written.append(hashes)
        self.rows += len(hashes)

"""RowStamps: until when a row that was read at a moment is still the newest one.

A commit stamps the rows that it changes before it becomes visible, with its timestamp. So as long as the stamp of a row
is no later than the moment at which the row was read, no later commit has changed it. Rows share stamps by the hashes
of their keys: a stamp may be later than the newest change of a row, and never earlier. Besides, each table has a stamp
for what changes many of its rows or their meaning, and the store one for what callers may see.

Stamps are kept from the first read that asks for them. Most stores are asked by none, and do nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import threads
from ..kernels.keys.row_stamps import stamp_of, stamp_rows
from ..vectors.memory.memory import address_of, allocate_zeroed

_BITS = 18
_SHIFT = 64 - _BITS
_TABLES = 1 << 10
_ROWS_MAX = 1 << (_BITS - 2)
"""A commit of more rows stamps the whole table."""


class Stamps(NamedTuple):
    """Where the stamps of a row are: addresses of timestamps (uint64)."""

    row: int
    table: int
    store: int


class RowStamps:
    """The timestamps of the newest changes of rows, by their keys' hashes. Thread safe."""

    def __init__(self, now: Callable[[], int]) -> None:
        """``now`` returns a timestamp that is greater than every snapshot handed out before."""
        self._now = now
        self._lock = threads.Lock()
        self._rows: np.ndarray | None = None
        self._tables: np.ndarray | None = None
        self._place = self._table_place = 0

    def start(self) -> None:
        """Keep stamps from now on."""
        with self._lock:
            if self._tables is None:
                self._rows, self._tables = allocate_zeroed(1 << _BITS, np.uint64), allocate_zeroed(_TABLES, np.uint64)
                self._place, self._table_place = address_of(self._rows), address_of(self._tables)

    def of(self, table: int, key: int, length: int) -> Stamps:
        """Return the stamps of a row of a table by its encoded key: ``length`` bytes at the address ``key``, or one
        uint64 with a negative length. Call ``start`` before."""
        row = stamp_of(self._place, _SHIFT, table, key, length)
        return Stamps(row, self._table_place + 8 * _slot(table), self._table_place)

    def row_changes(self, table: int, key: int, length: int, timestamp: int) -> None:
        """Stamp a row by its encoded key, as in ``of``, before its commit becomes visible."""
        with self._lock:
            if self._rows is not None:
                number = (stamp_of(self._place, _SHIFT, table, key, length) - self._place) // 8
                if self._rows[number] < timestamp:
                    self._rows[number] = timestamp

    def rows_change(self, table: int, hashes: np.ndarray, timestamp: int) -> None:
        """Stamp the rows whose keys have these hashes, before their commit becomes visible."""
        if len(hashes) > _ROWS_MAX:
            self.table_changes(table, timestamp)
            return
        with self._lock:
            if self._rows is not None:
                stamp_rows(self._place, _SHIFT, table, address_of(hashes), len(hashes), timestamp)

    def table_changes(self, table: int, timestamp: int | None = None) -> None:
        """Stamp all rows of a table: before a commit becomes visible, or, without its timestamp, after a change of the
        table itself, such as of its columns, its tablets or its name."""
        self._stamp(_slot(table), timestamp)

    def store_changes(self) -> None:
        """Stamp all rows, after a change of what callers may see."""
        self._stamp(0, None)

    def _stamp(self, slot: int, timestamp: int | None) -> None:
        with self._lock:
            if self._tables is not None:
                later = self._now() if timestamp is None else timestamp
                self._tables[slot] = max(int(self._tables[slot]), later)


def _slot(table: int) -> int:
    """Return the place of a table's stamp; the first one is the store's."""
    return 1 + table % (_TABLES - 1)

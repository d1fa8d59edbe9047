"""RowIndex: finds the newest delta of a row in a log that grows, for reads of single rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import threads
from ..kernels.reads import point_read as kernels
from ..vectors.memory.memory import address_of, allocate

_FIRST_CAPACITY = 64


class RowIndex:
    """Finds the newest delta of a row in memory: the newest entry of each row, and for each entry the one before it of
    the same row.

    Readers extend it by what was appended since the last read, so that writers pay nothing; they share a lock for that.
    It takes 20 to 36 bytes an entry once rows have been read one by one.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(_FIRST_CAPACITY, np.uint64)
        self._previous = np.empty(_FIRST_CAPACITY // 2, np.int32)
        self._address = address_of(self._slots)
        self._count = 0
        self._changing = threads.Lock()

    def newest(self, row: int, count: int, rowids: Callable[[int], np.ndarray]) -> int:
        """Return the newest of at least ``count`` entries of a row, -1 if there is none.

        ``rowids`` returns the rows (int32) of the first so many entries.
        """
        with self._changing:
            if self._count < count:
                self._extend(count, rowids(count))
            return kernels.newest_entry(self._address, len(self._slots) - 1, row)

    def newest_of(
        self,
        rows: np.ndarray,
        snapshot: int,
        count: int,
        rowids: Callable[[int], np.ndarray],
        timestamps: Callable[[int], np.ndarray],
    ) -> tuple[np.ndarray, int] | None:
        """Return the newest entry (int64) of each of ``rows`` (int64) that ``snapshot`` sees, -1 for none, and a count
        of entries above them all. None if there is none at all.

        ``timestamps`` returns those (int64) of the first so many entries; for the others see ``newest``.
        """
        entries = allocate(len(rows), np.int64)
        asked = address_of(rows), len(rows), address_of(entries)
        with self._changing:
            if self._count < count:
                self._extend(count, rowids(count))
            count = self._count
            stamps = timestamps(count)
            table = self._address, len(self._slots) - 1, address_of(self._previous)
            found = kernels.newest_entries(*table, address_of(stamps), snapshot, *asked)
        return (entries, count) if found else None

    def before(self, entry: int) -> int:
        """Return the entry of the same row before ``entry``, -1 if there is none."""
        return self._previous.item(entry)

    def _extend(self, count: int, rowids: np.ndarray) -> None:
        slots, previous, first = self._slots, self._previous, self._count
        if 2 * count > len(slots):
            capacity = 1 << (4 * count - 1).bit_length()
            slots, previous, first = np.zeros(capacity, np.uint64), np.empty(capacity // 2, np.int32), 0
        table = address_of(slots), len(slots) - 1, address_of(previous)
        kernels.index_rows(*table, address_of(rowids), first, count)
        self._slots, self._address, self._count = slots, table[0], count
        self._previous = previous  # complete before `before` reads it without the lock

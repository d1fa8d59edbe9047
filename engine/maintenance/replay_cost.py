"""ReplayCost: how long it would take to replay the log from some record on, if the process died now.

The log tells how many records and bytes it has, the tablets how many rows were changed. Both are looked at now and
then; between two looks the cost is spread evenly over the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from ..tablet.tablet import Tablet
from ..wal.store_log import StoreLog

SECONDS_A_RECORD, SECONDS_A_ROW, SECONDS_A_BYTE = 1e-6, 0.5e-6, 2e-9
"""Twice what was measured on a core of 2024: a single row of 150 bytes takes 0.8 us, one of a large batch 0.3 us."""
_SLOWNESS_MAX = 8.0
_MEASURED_SECONDS = 0.1
"""A shorter replay says little of the machine."""
_LOOKS = 512
_DUE_SHARE = 0.5
"""A flush is due at this share of the longest replay, since writers continue while it works."""


@dataclass(frozen=True, slots=True)
class ReplayedLog:
    """The log that an opening has replayed, and how long that took: by it maintenance knows what a replay costs."""

    first_lsn: int = 1
    last_lsn: int = 0
    rows: int = 0
    payload_bytes: int = 0
    seconds: float = 0.0

    @property
    def expected_seconds(self) -> float:
        """How long it takes elsewhere."""
        return _seconds(self.last_lsn + 1 - self.first_lsn, self.rows, self.payload_bytes)

    @property
    def slowness(self) -> float:
        """How many times as long as expected it took, at least 1."""
        expected = self.expected_seconds
        if expected < _MEASURED_SECONDS:
            return 1.0
        return min(max(self.seconds / expected, 1.0), _SLOWNESS_MAX)


class ReplayCost:
    """How long a replay of the log would take if the process died now, for maintenance. One thread calls it at a
    time."""

    def __init__(
        self, wal: StoreLog, tablets: Callable[[], Iterable[Tablet]], replayed: ReplayedLog, seconds_max: float
    ) -> None:
        """Begin after the ``replayed`` log. A machine that took longer than expected for it does so again.
        ``seconds_max`` is the longest replay that there should be."""
        self._wal = wal
        self._tablets = tablets
        self._seconds_due = seconds_max * _DUE_SHARE
        self._slowness = replayed.slowness
        self._lsns = [replayed.first_lsn, replayed.last_lsn + 1]
        self._costs = [0.0, replayed.expected_seconds * self._slowness]
        """What all records before each of these took."""
        self._records = self._bytes = 0
        self._rows = {tablet.tablet_id: tablet.rows_written for tablet in tablets()}

    def look(self) -> None:
        """Take note of what the log has now."""
        counters = self._wal.stats()
        rows = {tablet.tablet_id: tablet.rows_written for tablet in self._tablets()}
        changed = sum(max(count - self._rows.get(tablet_id, 0), 0) for tablet_id, count in rows.items())
        added = _seconds(counters.records - self._records, changed, counters.bytes_written - self._bytes)
        self._records, self._bytes, self._rows = counters.records, counters.bytes_written, rows
        if counters.last_lsn + 1 > self._lsns[-1]:
            self._lsns.append(counters.last_lsn + 1)
            self._costs.append(self._costs[-1] + added * self._slowness)
        else:
            self._costs[-1] += added * self._slowness
        self._forget(self._wal.first_lsn)

    def seconds_from(self, lsn: int) -> float:
        """Return how long the replay of the records from ``lsn`` on takes, as of the last look."""
        return self._costs[-1] - float(np.interp(lsn, self._lsns, self._costs))

    @property
    def overdue_lsn(self) -> int:
        """The record from which on the replay is as long as it may be, as of the last look: whatever needs earlier ones
        should be flushed. 0: it is shorter."""
        spent = self._costs[-1] - self._seconds_due
        return 0 if spent <= self._costs[0] else int(np.ceil(np.interp(spent, self._costs, self._lsns)))

    def _forget(self, first_lsn: int) -> None:
        """Forget looks at what the log has not any more, and every other one if there are many."""
        gone = int(np.searchsorted(self._lsns, first_lsn, "right")) - 1
        if gone > 0:
            del self._lsns[:gone], self._costs[:gone]
        if len(self._lsns) > _LOOKS:
            del self._lsns[1:-1:2], self._costs[1:-1:2]


def _seconds(records: int, rows: int, payload_bytes: int) -> float:
    return records * SECONDS_A_RECORD + rows * SECONDS_A_ROW + payload_bytes * SECONDS_A_BYTE

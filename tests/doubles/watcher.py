"""Somebody who stands by while a holder sends over a slow line, and claims the log once nobody was heard of."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from nyala.engine.wal.slots import SlotLog, SlotOptions, SlotStore
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.claim import Claimant
from nyala.engine.wal.slots.reader import newest_slot
from tests.doubles.clock import ManualClock
from tests.doubles.slow_line import SlowLine
from tests.doubles.waiting import until


class Watcher:
    """Looks at ``slots`` with each packet on the line. ``lapses`` counts how often the holder of ``log`` could not
    answer reads of now."""

    def __init__(self, slots: SlotStore, line: SlowLine, log: SlotLog, options: SlotOptions) -> None:
        self._slots, self._line, self._log, self._options = slots, line, log, options
        self._end, self._since = slots.end(), line.boot()
        self._is_late = False
        self.has_claimed = False
        self.lapses = 0
        line.tick = self._look

    def _look(self) -> None:
        self._let_beat()
        self.lapses += not self._log.lease.holds
        end, now = self._slots.end(), self._line.boot()
        if end != self._end:
            self._end, self._since = end, now
        elif now - self._since > self._options.ttl_seconds and not self.has_claimed:
            self.has_claimed = True
            pause: Callable[[float], object] = self._line.boot.wait
            claimant = Claimant(self._slots, self._options, lambda: UUID(int=end), self._line.boot, pause)
            seen = newest_slot(self._slots)
            claimant.claim(seen, CeilingClock(ManualClock(), 0), b"r" * 16, {}, now)

    def _let_beat(self) -> None:
        """Let the holder do what is due before time goes on; once it did not, it does not matter any more."""
        due = 1.1 * self._options.beat_seconds
        try:
            until(lambda: self._is_late or self._line.boot() < self._log.sent + due, 5)
        except AssertionError:
            self._is_late = True

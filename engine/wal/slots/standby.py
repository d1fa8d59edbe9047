"""Standby: a process that waits until it may take a log over, however long; and meanwhile reads what is written.

What the next holder would replay stays in memory, within bounds, so that to take over costs a few requests only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ....schemas.errors import UnavailableError
from ....schemas.store.whereabouts import Holder
from ... import threads
from .slot import Slot, SlotHeader
from .slot_store import SlotStore
from .tail import Tail
from .tailed import TailedSlots

_logger = logging.getLogger(__name__)
_KEPT_BYTES = 64 << 20
_FORCE_TTLS = 12
"""For so many times of silence a forced take is tried: later its holder may be one that nobody complains of."""
_AT_ONCE = 16
"""Slots that are fetched ahead before the next look at the end."""


class StandbyStoppedError(UnavailableError):
    """The standby was told to stop waiting."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a standby knows of a log of slots. ``since`` is when it saw slot ``end`` first, in seconds since the machine
    started; 0 is the end of an empty log."""

    end: int
    since: float
    holder: Holder | None
    """None: the log was released, or nobody has ever had it."""


class Standby:
    """One wait for a log that another process holds. Any thread may ask it and tell it; the one that opens the log
    waits.

    ``handicap_seconds``: it leaves the log to others for so long, also one that was released. ``kept_bytes``: the most
    that stays in memory of what a holder would replay. ``handicap_later``: the handicap once somebody else had the log.
    """

    def __init__(
        self,
        handicap_seconds: float = 0.0,
        kept_bytes: int = _KEPT_BYTES,
        handicap_later: float | None = None,
    ) -> None:
        self.handicap_seconds = handicap_seconds
        self._handicap_later = handicap_seconds if handicap_later is None else handicap_later
        self.check: Callable[[SlotHeader], None] = lambda _: None
        """Gets the newest header before a claim, and raises if this process could not open what that names."""
        self.ahead: Callable[[SlotHeader], None] = lambda _: None
        """Gets each newest header that was seen, to prepare for opening what it names. Returns at once."""
        self.seen: Seen | None = None
        """None: the log could not be read yet."""
        self.trouble = ""
        """Why the log, or what it names, could not be read last time; empty if it could."""
        self.sees_life = False
        """Whether somebody else wrote a slot meanwhile, other than to release the log."""
        self._last: Slot | None = None
        """The end of the log when it was seen last."""
        self.tail: Tail | None = None
        """The end of the log, as far as the thread that waits has followed it."""
        self._is_stopped = self.is_forced = False
        self.is_taking = False
        """Whether to claim as soon as a look found no later slot: the holder lives, and its next slot is a rival of the
        claim, which loses if anything else is asked before. A listing is not needed: one follows each claim."""
        self.is_checked = False
        """Whether ``check`` found nothing since the log is to be taken from its holder."""
        self._forced_epoch = 0
        """The claim of the holder that the log is to be taken from."""
        self._forced_until: float | None = None
        self.hold_until = float("-inf")
        """Until then a former holder that was not silent may answer reads: this one must not answer anything, and must
        not release the log to somebody who would."""
        self.others_wait = 0.0
        """So many seconds of silence others are to wait for at least: the former holder may be as slow."""
        self.process = b""
        """The uuid with which this process claims the log."""
        self.slots: TailedSlots | None = None
        """The slots of the log; None before it is opened. Those that the next holder reads are in memory."""
        self.moved = threads.Event()
        """Set whenever the end of the log is another one; who waits for it clears it."""
        self.is_read = False
        """Whether somebody reads the store meanwhile, so that the ends of its files need not be fetched ahead."""
        self.on_claim: Callable[[], object] = lambda: None
        """Called when this process has the log, before it reads what the log names."""
        self._kept_bytes = kept_bytes

    def stop(self) -> None:
        """Wait no longer: whoever opens the log gets a StandbyStoppedError."""
        self._is_stopped = True

    def take(self) -> None:
        """Claim the log at the next look at it, though its holder lives: the one that is known now, for some time."""
        self._forced_epoch = self.seen.holder.epoch if self.seen and self.seen.holder else 0
        self._forced_until = self._force_ends(self.tail) if self.tail else None
        self.is_forced = True

    def take_as(self, former: Standby) -> None:
        """Go on with the ``take`` of a wait that is over, if that goes on: from the same holder, and no longer."""
        self._forced_epoch, self._forced_until = former._forced_epoch, former._forced_until
        self.is_forced = former.is_forced

    def over(self, slots: SlotStore) -> SlotStore:
        """Return slots of which those stay in memory that the next holder reads, until ``ends``."""
        self.slots = TailedSlots(slots, self._kept_bytes)
        return self.slots

    def ends(self) -> None:
        """Keep no slots in memory any more: the log has been read."""
        if self.slots is not None:
            self.slots.keep_nothing()

    def check_stopped(self) -> None:
        """Raise StandbyStoppedError after ``stop``."""
        if self._is_stopped:
            raise StandbyStoppedError("this process is no longer a standby")

    def saw(self, tail: Tail) -> None:
        """Note the end of the log, and fetch some of what the next holder reads. Raises UnavailableError."""
        slot, slots = tail.seen, self.slots
        if slot is None:
            self.seen = Seen(0, tail.since, None)
            return
        header, before = slot.header, self._last
        if before is None or before.crc != slot.crc:
            if before is not None and slots is not None and not slots.goes_on(before, slot):
                slots.forget_before(header.number)
            self._last = slot
            self.sees_life |= self.seen is not None and not tail.is_released
            if not tail.is_released:
                self.handicap_seconds = min(self.handicap_seconds, self._handicap_later)
            self.seen = Seen(header.number, tail.since, None if tail.is_released else holder_of(tail, header))
            self.ahead(header)
            self.moved.set()
            if slots is not None:
                slots.forget_before(header.needed_slot)
        if slots is None or self.is_forced:
            return
        lacking = (each for each in range(header.needed_slot, header.number + 1) if not slots.has(each))
        for _, number in zip(range(_AT_ONCE), lacking, strict=False):
            if slots.is_full:
                return
            slots.read(number)
        slots.fetch_chunk()

    def claimed(self, header: SlotHeader, sent: float) -> None:
        """Note that this process has the log."""
        self.is_forced = False
        self.seen = Seen(header.number, sent, None)
        self.on_claim()

    def check_newest(self, tail: Tail) -> None:
        """Raise if this process could not open what the newest slot names."""
        if tail.seen is not None:
            self.check(tail.seen.header)
        self.is_checked = self.is_taking

    def may_claim(self, tail: Tail) -> bool:
        """Whether nobody holds the log, and others had their time to take it; or it is to be taken from its holder."""
        self.is_taking = False
        if tail.is_released or self.is_own(tail):
            return tail.silence >= self.handicap_seconds
        if self._takes_from(tail) and not tail.is_silent():
            self.is_taking = True
            self.hold_until, self.others_wait = tail.since + tail.ttl, tail.ttl
            return True
        return tail.is_silent(self.handicap_seconds)

    def is_own(self, tail: Tail) -> bool:
        """Whether the newest slot is a claim of this process, which does not have the log by it: it did not learn in
        time that it landed, or it is void. Nobody has the log by such a claim."""
        return tail.seen is not None and tail.seen.header.holder == self.process

    def _takes_from(self, tail: Tail) -> bool:
        """Whether the log is to be taken from its holder. Once another process was faster, it is not."""
        epoch = tail.seen.header.epoch if tail.seen else 0
        if self.is_forced:
            self._forced_epoch = self._forced_epoch or epoch
            if self._forced_until is None:
                self._forced_until = self._force_ends(tail)
            self.is_forced = self._forced_epoch == epoch and tail.now < self._forced_until
        return self.is_forced

    @staticmethod
    def _force_ends(tail: Tail) -> float:
        return tail.now + _FORCE_TTLS * tail.ttl

    def note(self, error: Exception | None) -> None:
        """Note why the log cannot be taken over now, or that it could be."""
        trouble = str(error) if error else ""
        if trouble and not self.trouble:
            _logger.warning("standing by, though the store could not be taken over now: %s", trouble)
        self.trouble = trouble


def holder_of(tail: Tail, header: SlotHeader) -> Holder:
    """Return who wrote the newest slot, as its claim tells."""
    locations = tail.about.get("locations")
    found = [each for each in locations if isinstance(each, str)] if isinstance(locations, list) else []
    return Holder(locations=found, epoch=header.epoch, process=UUID(bytes=header.holder).hex)

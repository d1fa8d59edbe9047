"""Tail: the end of a log, as a process sees it that is not its holder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...bucket.at_once import at_once
from .claim_note import TTL, note_of
from .reader import newest_slot
from .slot import Slot, SlotKind, decode_slot
from .slot_store import SlotStore

_AT_ONCE = 4
_FORGETS = 0.9
"""How much of the longest time of a request is left after another one."""


class Tail:
    """Follows the end of a log of slots, as a process sees it that is not its holder. For one thread. ``seen`` is the
    newest slot, None if there is none; it was seen first at ``since``."""

    def __init__(self, slots: SlotStore, ttl_seconds: float, boot_seconds: Callable[[], float]) -> None:
        """``ttl_seconds``: after such a silence the log is free, or after its holder's if that is longer. Raises
        CorruptionError and UnavailableError, as all methods do."""
        self._slots = slots
        self._own_ttl = ttl_seconds
        self._boot_seconds = boot_seconds
        self._slowest = 0.0
        self.ttl = ttl_seconds
        """How long the holder may be silent."""
        self.about: Mapping[str, Any] = {}
        """What the claim of the holder tells of it."""
        self._claim = 0, b""
        self.seen: Slot | None = None
        self.since = boot_seconds()
        self.looked = float("-inf")
        """Every slot that there was then is known, unless it was freed before it was seen."""
        self.seek()

    def seek(self) -> None:
        """Go to the end, wherever it is."""
        asked = self._boot_seconds()
        self._see(newest_slot(self._slots))
        self.looked = asked

    def look(self) -> bool:
        """Go on by one slot; return whether there was one."""
        number = self.seen.header.number + 1 if self.seen else 1
        asked = self._boot_seconds()
        content = self._slots.read(number)
        self._slowest = max(self._boot_seconds() - asked, _FORGETS * self._slowest)
        if content is None:
            self.looked = asked
            return False
        self._see(decode_slot(number, content))
        return True

    def look_far(self) -> bool:
        """Go on by some slots, which are asked for at once: a holder that is busy writes the next one as fast as this
        process can ask for it. Return whether there may be more."""
        first = self.seen.header.number + 1 if self.seen else 1
        numbers = range(first, first + _AT_ONCE)
        found = at_once(self._slots.read, numbers)
        for number, content in zip(numbers, found, strict=True):
            if content is None:
                break
            self._see(decode_slot(number, content))
        return found[-1] is not None

    def has_moved(self) -> bool:
        """Whether the end is elsewhere: slots after this one were written, and freed, while nobody looked, or the
        bucket was put back to an earlier state. Then it goes there."""
        number = self.seen.header.number if self.seen else 0
        is_elsewhere = self._slots.end(max(number - 1, 0)) != number
        if self.seen and not is_elsewhere:
            content = self._slots.read(number)
            is_elsewhere = content is None or decode_slot(number, content).crc != self.seen.crc
        if is_elsewhere:
            self.seek()
        return is_elsewhere

    @property
    def is_released(self) -> bool:
        """Whether nobody needs to be waited for."""
        return self.seen is None or self.seen.header.kind is SlotKind.RELEASE

    @property
    def now(self) -> float:
        """Seconds since the machine started."""
        return self._boot_seconds()

    @property
    def silence(self) -> float:
        """Seconds since the newest slot was seen."""
        return self._boot_seconds() - self.since

    def is_silent(self, longer_by: float = 0.0) -> bool:
        """Whether nobody can hold the log any more, for some seconds. If requests are slow, it is waited longer: those
        of the holder may be, too."""
        return self.silence > self.ttl + self._slowest + longer_by

    def _see(self, slot: Slot | None) -> None:
        claim = (slot.header.epoch, slot.header.holder) if slot else self._claim
        if slot is not None and claim != self._claim:
            self.about = self._claim_of(slot)  # first: if it raises, nothing was seen whose TTL is not known
            self._claim, ttl = claim, self.about.get(TTL)
            self.ttl = max(self._own_ttl, float(ttl)) if isinstance(ttl, int | float) else self._own_ttl
        self.seen, self.since = slot, self._boot_seconds()

    def _claim_of(self, slot: Slot) -> Mapping[str, Any]:
        """Return what the claim of a slot's holder tells; empty if that cannot be understood."""
        number = slot.header.epoch
        content = None if number == slot.header.number else self._slots.read(number)
        return note_of(decode_slot(number, content) if content is not None else slot)

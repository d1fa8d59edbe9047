"""A holder's knowledge of the slots that are in its log."""

from __future__ import annotations

from dataclasses import dataclass, field

from ... import threads
from .claim_note import is_fence
from .slot import Slot, SlotKind


@dataclass(slots=True)
class KeptSlot:
    """A slot of a log that is not freed."""

    number: int
    next_lsn: int
    size_bytes: int
    stays: bool
    """Whether it is a claim that must not be deleted."""
    chunk_names: list[str]

    @classmethod
    def of(cls, slot: Slot, is_in_force: bool = False) -> KeptSlot:
        """Return a slot; ``is_in_force``: it is of this holder, whose claim others read."""
        header = slot.header
        stays = is_fence(slot) or (is_in_force and header.kind is SlotKind.CLAIM)
        return cls(header.number, header.next_lsn, slot.size_bytes, stays, slot.chunk_names)


@dataclass(slots=True)
class KeptSlots:
    """The slots that a holder keeps in its log, from the first that is needed on, ascending. Thread safe."""

    kept: list[KeptSlot] = field(default_factory=list)
    is_whole: bool = False
    """Whether the slots before the claim are known, too."""
    mutex: threads.Lock = field(default_factory=threads.new_lock)

    def add(self, slot: Slot) -> None:
        with self.mutex:
            if not self.kept or self.kept[-1].number < slot.header.number:
                self.kept.append(KeptSlot.of(slot, is_in_force=True))

    def precede(self, earlier: list[KeptSlot]) -> None:
        """Add what is before the claim."""
        with self.mutex:
            self.kept[:0] = [slot for slot in earlier if not self.kept or slot.number < self.kept[0].number]
            self.is_whole = True

    def all(self) -> list[KeptSlot]:
        with self.mutex:
            return list(self.kept)

    def needed_for(self, lsn: int, otherwise: int) -> int:
        """Return the first slot that has a record from ``lsn`` on; ``otherwise`` if none has."""
        return next((slot.number for slot in self.all() if slot.next_lsn > lsn), otherwise)

    def lsn_behind(self, count: int) -> int:
        """Return the lsn from which on records need fewer than ``count`` slots; 0 if all together do."""
        with self.mutex:
            return self.kept[-count].next_lsn if len(self.kept) >= count else 0

    def drop_before(self, number: int) -> None:
        with self.mutex:
            self.kept = [slot for slot in self.kept if slot.number >= number]

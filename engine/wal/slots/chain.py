"""The link between a slot and the slot before it: no gap, one chain of checksums, and fields that never decrease."""

from __future__ import annotations

from ....schemas.errors import CorruptionError
from .slot import Slot, SlotHeader, SlotKind, path_of


class Chain:
    """Follows the slots of a log, one after the other."""

    def __init__(self, store_uuid: bytes | None = None) -> None:
        """``store_uuid``: whose log it must be; None takes the first slot's word for it."""
        self._store_uuid = store_uuid
        self.last: Slot | None = None

    def follow(self, slot: Slot) -> None:
        """Go on with a slot. Raises CorruptionError if it cannot be the next one."""
        header = slot.header
        self._store_uuid = self._store_uuid or header.store_uuid
        if header.store_uuid != self._store_uuid:
            raise CorruptionError(path_of(header.number), 16, f"this slot is of store {header.store_uuid.hex()}")
        why = self._fault(self.last, header) or _fault_in(header)
        if why:
            raise CorruptionError(path_of(header.number), 0, why)
        self.last = slot

    def _fault(self, last: Slot | None, header: SlotHeader) -> str | None:
        if last is None:
            return None
        before = last.header
        if header.number != before.number + 1:
            return f"slot {before.number + 1} is missing"
        if header.previous_crc != last.crc:
            return "it does not continue the slot before it"
        if header.first_lsn != before.next_lsn:
            return f"its records start at {header.first_lsn}, not at {before.next_lsn}"
        if header.kind is SlotKind.CLAIM:
            if header.reign != before.reign + 1:
                return f"a claim after reign {before.reign} begins reign {header.reign}, not the next reign"
        elif (header.epoch, header.reign, header.holder) != (before.epoch, before.reign, before.holder):
            return f"its epoch {header.epoch}, or its holder, did not claim the log"
        elif before.kind is SlotKind.RELEASE:
            return "its holder continues, although it has released the log"
        if header.kind is SlotKind.CLAIM and header.safe < before.ceiling:
            return f"it claims the log from timestamp {header.safe} on, which is below the ceiling {before.ceiling}"
        rising = ("safe", "needed_slot", "needed_lsn")
        for name in rising if header.kind is SlotKind.RELEASE else ("ceiling", *rising):
            if getattr(header, name) < getattr(before, name):
                return f"{name} falls from {getattr(before, name)} to {getattr(header, name)}"
        return None


def _fault_in(header: SlotHeader) -> str | None:
    """Return what is wrong with a slot by itself."""
    if (header.kind is SlotKind.CLAIM) != (header.epoch == header.number):
        return f"a slot of epoch {header.epoch} cannot have the kind {header.kind.name}"
    if (header.kind is SlotKind.RECORDS) != (header.count > 0):
        return f"a slot of {header.count} records cannot have the kind {header.kind.name}"
    if header.kind is SlotKind.RELEASE and header.ceiling != header.safe:
        return f"it releases the log at timestamp {header.safe}, but with the ceiling {header.ceiling}"
    if not 1 <= header.needed_slot <= header.number or header.needed_lsn > header.next_lsn:
        return f"it needs the log from slot {header.needed_slot} and record {header.needed_lsn} on, which are later"
    return None

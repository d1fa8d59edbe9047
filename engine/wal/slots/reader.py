"""Reads the slots that a store needs: from the one that the newest slot names, to the newest."""

from __future__ import annotations

from collections.abc import Iterator

from ....schemas.errors import CorruptionError
from ...bucket.at_once import at_once, in_order
from .chain import Chain
from .payload import whole
from .slot import Slot, decode_slot, path_of
from .slot_store import SlotStore
from .tailed import TailedSlots

_FIRST = 16
"""How many slots are fetched at once before anybody reads."""
_KEPT_BYTES = 64 << 20


def newest_slot(slots: SlotStore) -> Slot | None:
    """Return the newest slot, at the end of a log; None if there is none. Raises CorruptionError and
    UnavailableError."""
    while end := slots.end():
        content = slots.read(end)
        if content is not None:
            return decode_slot(end, content)
        # It was freed: then there is a later one.
    return None


class SlotReader:
    """Reads the slots of a log up to ``newest``, any number of times; what was read first stays in memory while it is
    little."""

    def __init__(self, slots: SlotStore, newest: Slot) -> None:
        self._slots = TailedSlots(slots, _KEPT_BYTES)
        self._newest = newest
        self.makers = newest.header.makers
        """Who makes files in the reigns of the slots that were read; see ``SlotHeader``."""

    def fetch(self) -> None:
        """Fetch the slots that ``read`` begins with. Raises UnavailableError."""
        at_once(self._slots.read, self._numbers[:_FIRST])

    def read(self) -> Iterator[Slot]:
        """Yield the slots in order, checked, with their payloads. Raises CorruptionError and UnavailableError."""
        last = self._newest.header
        chain = Chain(last.store_uuid)
        numbers = self._numbers
        is_kept = all(map(self._slots.has, numbers))
        contents = map(self._slots.read, numbers) if is_kept else in_order(self._slots.read, numbers)
        for number, content in zip(numbers, contents, strict=True):
            if content is None:
                raise CorruptionError(path_of(number), 0, f"this slot is missing, but slot {last.number} needs it")
            slot = decode_slot(number, content)
            chain.follow(slot)
            self.makers |= slot.header.makers
            yield whole(self._slots, slot)
        if chain.last is None or chain.last.crc != self._newest.crc:
            raise CorruptionError(path_of(last.number), 0, "this slot changed after it was first read")

    @property
    def _numbers(self) -> range:
        last = self._newest.header
        return range(last.needed_slot, last.number + 1)

"""Claim: the step by which a process becomes the holder of a log, and its predecessor ceases to be.

A claim is the slot after the end. Its rival for that slot is the holder's next one: whichever is created first decides.
Three rules make it safe (each was left out once in a model of the protocol, and data was lost):

* every attempt has a nonce of its own. Without one, a process that restarts takes a claim of its former self, which
  landed long ago, for its own, and counts its lease from now;
* after a claim has landed, nothing may be above it. Else it fell into a slot that a living holder had written and
  freed: it is void, stays where it is and means nothing;
* a claim is never deleted, unless nobody had the log before it (``claim_note``): it is what the next slot of the former
  holder, however late, runs into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from ....schemas.errors import StoreError, UnavailableError
from ....schemas.store.whereabouts import Holder
from .ceiling import CeilingClock
from .claim_note import pack_note
from .options import SlotOptions
from .slot import Slot, SlotHeader, SlotKind, encode_slot
from .slot_store import SlotStore
from .standby import Standby, holder_of
from .tail import Tail

Answer = TypeVar("Answer")
_LOOKS_MAX = 16
"""So many slots a standby follows one by one before it goes to the end, wherever that is."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim of a log that holds: a slot, first sent at ``sent``, in seconds since the machine started."""

    slot: Slot
    sent: float


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that wants a log of slots."""

    slots: SlotStore
    options: SlotOptions
    new_uuid: Callable[[], UUID]
    """Returns a new UUID, which no other process returns."""
    boot_seconds: Callable[[], float]
    """Seconds since the machine started, with the time that it slept."""
    pause: Callable[[float], object]
    """Waits for so many seconds."""

    def wait_for_silence(self, until: float | None) -> Slot | None:
        """Wait until nobody can hold the log; return its end, None if there is no slot yet.

        Raises UnavailableError if somebody still does at ``until``, after 2 TTL if that is None.
        """
        began = self.boot_seconds()
        tail = Tail(self.slots, self.options.ttl_seconds, self.boot_seconds)
        while not tail.is_released:
            found = tail.look()
            if tail.is_released or tail.is_silent():
                break
            if self.boot_seconds() >= (began + 2 * tail.ttl if until is None else until):
                assert tail.seen is not None, "an empty log is free"
                raise held_elsewhere(holder_of(tail, tail.seen.header))
            if not found:
                self.pause(self.options.poll_seconds)
        return tail.seen

    def stand_by(self, standby: Standby) -> Slot | None:
        """Wait, however long, until this process is to claim the log; return its end as ``wait_for_silence`` does.

        Raises StandbyStoppedError.
        """
        found_in_a_row = 0
        while True:
            standby.check_stopped()
            found = False
            try:
                tail = standby.tail = standby.tail or Tail(self.slots, self.options.ttl_seconds, self.boot_seconds)
                before = tail.seen
                found = tail.look_far() if standby.is_forced else tail.look()
                if tail.seen is not before and standby.is_own(tail):
                    tail.seek()  # the claim is void, or its outcome was unknown
                found_in_a_row = found_in_a_row + 1 if found else 0
                if found_in_a_row > _LOOKS_MAX:  # the holder may write faster than this process reads
                    tail.seek()
                    found_in_a_row = 0
                standby.saw(tail)
                if not found and standby.may_claim(tail):
                    if standby.is_taking and not standby.is_checked:
                        standby.check_newest(tail)
                        continue  # the holder went on meanwhile
                    if standby.is_taking or not tail.has_moved():
                        if not standby.is_taking:
                            standby.check_newest(tail)
                        standby.note(None)
                        return tail.seen
                else:
                    standby.note(None)
            except (StoreError, OSError) as error:
                standby.note(error)
            if not found:
                self.pause(self.options.poll_seconds)

    def claim(
        self,
        seen: Slot | None,
        clock: CeilingClock,
        holder: bytes,
        about: Mapping[str, object],
        until: float,
        others_wait: float = 0.0,
    ) -> Claimed | None:
        """Claim the slot after ``seen``, the end of a log that nobody holds; None if somebody was faster.

        ``about`` tells others of the holder, and that they are to wait for its silence, ``others_wait`` seconds at
        least. Raises UnavailableError if there is no answer by ``until``.
        """
        payload = pack_note(about, max(self.options.ttl_seconds, others_wait), seen)
        ceiling = clock.ceiling_for(self.options.ttl_seconds)
        header = self._header(seen.header if seen else None, seen.crc if seen else 0, holder, ceiling)
        content, crc = encode_slot(header, [payload])
        sent = self.boot_seconds()
        if not self._answer(lambda: self.slots.create(header.number, content), until):
            return None
        if self._answer(partial(self.slots.end, header.number - 1), until) > header.number:
            return None
        clock.raise_ceiling(header.ceiling)
        return Claimed(Slot(header, crc, memoryview(payload), len(content)), sent)

    def _answer(self, question: Callable[[], Answer], until: float) -> Answer:
        """Ask until there is an answer."""
        while True:
            try:
                return question()
            except UnavailableError:
                if self.boot_seconds() >= until:
                    raise
            self.pause(self.options.poll_seconds)

    def _header(self, last: SlotHeader | None, crc: int, holder: bytes, ceiling: int) -> SlotHeader:
        """Return a claim's header: all is carried over. Nothing more will come below the last ceiling."""
        number = last.number + 1 if last else 1
        return SlotHeader(
            kind=SlotKind.CLAIM,
            count=0,
            store_uuid=last.store_uuid if last else self.new_uuid().bytes,
            holder=holder,
            nonce=self.new_uuid().bytes,
            number=number,
            epoch=number,
            reign=last.reign + 1 if last else 1,
            previous_crc=crc,
            first_lsn=last.next_lsn if last else 1,
            safe=last.ceiling if last else 0,
            ceiling=max(ceiling, last.ceiling if last else 0),
            needed_slot=last.needed_slot if last else 1,
            needed_lsn=last.needed_lsn if last else 1,
            manifest=last.manifest if last else "",
            manifest_crc=last.manifest_crc if last else 0,
        )


def held_elsewhere(holder: Holder) -> UnavailableError:
    """Return the error for who may not wait for a log that somebody has, with where that one is, if it told that."""
    if where := " or ".join(holder.locations):
        what, to = f"another process has the store, at {where}", holder.locations[0]
    else:
        what, to = f"another process has the store ({holder.process}), but has recorded no location", "URL"
    way = f"connect to it with --url {to} or nyala.connect, or hand the store over first (nyala server release)"
    return UnavailableError(f"{what}: {way}", locations=holder.locations)

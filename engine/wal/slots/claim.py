"""Claim: how a process becomes the holder of a log, and the one before it no longer is.

A claim is the slot after the end. Its rival for that slot is the holder's next one: whichever is created first decides.
Three rules make it safe (each was left out once in a model of the protocol, and data was lost):

* every attempt has a nonce of its own. Without one, a process that restarts takes a claim of its former self, which
  landed long ago, for its own, and counts its lease from now;
* after a claim has landed, nothing may be above it. Else it fell into a slot that a living holder had written and
  freed: it is void, stays where it is and means nothing;
* a claim is never deleted: it is what the next slot of the former holder, however late, runs into.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from ....schemas.errors import UnavailableError
from .ceiling import CeilingClock
from .options import SlotOptions
from .reader import newest_slot
from .slot import Slot, SlotHeader, SlotKind, decode_slot, encode_slot
from .slot_store import SlotStore

Answer = TypeVar("Answer")

_TTL = "ttl_seconds"  # a member of what a claim tells others


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim that holds; it was first sent at ``sent``, in seconds since the machine started."""

    slot: Slot
    sent: float


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that wants a log."""

    slots: SlotStore
    options: SlotOptions
    new_uuid: Callable[[], UUID]
    """Returns another one at each call, whoever calls."""
    boot_seconds: Callable[[], float]
    """Seconds since the machine started, with the time that it slept."""
    pause: Callable[[float], object]
    """Waits for so many seconds."""

    def wait_for_silence(self, until: float | None) -> Slot | None:
        """Wait until nobody can hold the log; return its end, None if there is no slot yet.

        Raises UnavailableError if somebody still does at ``until``, after 2 TTL if that is None.
        """
        began = self.boot_seconds()
        seen, since = newest_slot(self.slots), self.boot_seconds()
        epoch, ttl = 0, self.options.ttl_seconds
        while seen is not None and seen.header.kind is not SlotKind.RELEASE:
            if seen.header.epoch != epoch:
                epoch, ttl = seen.header.epoch, max(self.options.ttl_seconds, self._ttl_of(seen))
            number = seen.header.number + 1
            if (content := self.slots.read(number)) is not None:
                seen, since = decode_slot(number, content), self.boot_seconds()
                if seen.header.kind is SlotKind.RELEASE:
                    return seen
            now = self.boot_seconds()
            if now - since > ttl:
                return seen
            if now >= (began + 2 * ttl if until is None else until):
                raise UnavailableError(f"another process has the store: {_holder(seen)}; stop it first")
            if content is None:
                self.pause(self.options.poll_seconds)
        return seen

    def claim(
        self, seen: Slot | None, clock: CeilingClock, holder: bytes, about: Mapping[str, object], until: float
    ) -> Claimed | None:
        """Claim the slot after ``seen``, the end of a log that nobody holds; None if somebody was faster.

        ``about`` tells others of the holder. Raises UnavailableError if there is no answer by ``until``.
        """
        payload = json.dumps({**about, _TTL: self.options.ttl_seconds}).encode()
        ceiling = clock.ceiling_for(self.options.ttl_seconds)
        header = self._header(seen.header if seen else None, seen.crc if seen else 0, holder, ceiling)
        content, crc = encode_slot(header, [payload])
        sent = self.boot_seconds()
        if not self._answer(lambda: self.slots.create(header.number, content), until):
            return None
        if self._answer(self.slots.end, until) > header.number:
            return None
        clock.raise_ceiling(header.ceiling)
        return Claimed(Slot(header, crc, memoryview(payload), len(content)), sent)

    def _ttl_of(self, seen: Slot) -> float:
        """Return how long the holder believes that it has the log, as its claim says; 0 if it does not say."""
        number = seen.header.epoch
        content = None if number == seen.header.number else self.slots.read(number)
        claim = decode_slot(number, content) if content is not None else seen
        try:
            ttl = json.loads(bytes(claim.payload))[_TTL]
        except (ValueError, KeyError, TypeError):
            return 0.0
        return float(ttl) if isinstance(ttl, int | float) else 0.0

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


def _holder(slot: Slot) -> UUID:
    return UUID(bytes=slot.header.holder)

"""Mistakes that the campaign, or a drill of two machines, must find when they are planted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from nyala.engine.bucket import PatientBucket
from nyala.engine.moving.departures import Departures
from nyala.engine.moving.moves import Mover
from nyala.engine.wal.slots.ceiling import CeilingClock
from nyala.engine.wal.slots.claim import Claimant
from nyala.engine.wal.slots.kept import KeptSlot
from nyala.engine.wal.slots.lease import Lease
from nyala.engine.wal.slots.slot_sink import SlotSink
from nyala.engine.wal.slots.tail import Tail
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.errors import UnavailableError

Set = Callable[[object, str, Any], None]
"""Replaces an attribute: ``setattr``, or what a test takes back."""


def _no_lease(put: Set) -> None:
    """Reads of now need no lease."""
    put(Lease, "check", lambda self: None)
    put(Lease, "holds", True)


def _lease_from_answer(put: Set) -> None:
    """A lease counts from the answer, not from sending."""
    renew = Lease.renew
    put(Lease, "renew", lambda self, sent: renew(self, self._boot_seconds()))


def _acks_unknown(put: Set) -> None:
    """A slot without an answer counts as landed."""
    sync = SlotSink.sync

    def trusting(self: SlotSink, group: Any) -> None:
        try:
            sync(self, group)
        except UnavailableError:
            self._land(group, group.landing)

    put(SlotSink, "sync", trusting)


def _refusal_is_mine(put: Set) -> None:
    """A refusal is taken for one's own success, without reading the object back."""

    def create(self: PatientBucket, name: str, content: bytes) -> bool:
        for _ in self.patience.attempts():
            try:
                self.objects.put_if_absent(name, content)
                return True
            except FileExistsError:
                return True
            except OSError:
                continue
        raise UnavailableError("no answer")

    put(PatientBucket, "create", create)


def _ceiling_ignored(put: Set) -> None:
    """A new holder's clock does not start above the ceiling."""
    put(CeilingClock, "update", lambda self, timestamp: None)


def _claims_at_once(put: Set) -> None:
    """Whoever wants the log claims it without waiting for silence."""
    put(Tail, "is_silent", lambda self, *more: True)


def _claims_deleted(put: Set) -> None:
    """Claims are freed with other slots."""
    of = KeptSlot.of
    put(KeptSlot, "of", lambda slot, *more, **named: replace(of(slot, *more, **named), stays=False))


class _Blind:
    """Slots of which nobody sees the end."""

    def __init__(self, slots: Any) -> None:
        self._slots = slots

    def end(self, after: int = 0) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slots, name)


def _no_look_above(put: Set) -> None:
    """A claim that landed is not looked above."""
    claim: Any = Claimant.claim
    put(Claimant, "claim", lambda self, *given: claim(replace(self, slots=_Blind(self.slots)), *given))


PLANTED: dict[str, Callable[[Set], None]] = {
    "no lease": _no_lease,
    "lease from the answer": _lease_from_answer,
    "acks unknown": _acks_unknown,
    "refusal is mine": _refusal_is_mine,
    "ceiling ignored": _ceiling_ignored,
    "claims at once": _claims_at_once,
    "claims deleted": _claims_deleted,
    "no look above": _no_look_above,
}


def _moves_without_lease(put: Set) -> None:
    """Answers about moves need no lease."""
    put(Departures, "status", Departures._status)
    put(Mover, "_surely", lambda self: nullcontext())


def _freed_before_the_hand_over(put: Set) -> None:
    """A source frees the files of a tablet before the slot has landed that hands it over."""
    commit = Departures._commit

    def freeing(self: Departures, departure: Any, empty: Any) -> None:
        fs: Any = self._environment.fs
        if objects := departure.round.objects:
            fs._bucket.delete([f"{objects.directory}{name}" for name in departure.files])
        commit(self, departure, empty)

    put(Departures, "_commit", freeing)


def _handed_over_unprepared(put: Set) -> None:
    """A source hands a tablet over though nobody knows whether the target has prepared it, and a target takes that
    for prepared which it only has."""
    put(Gateway, "move_hand_over", lambda self, asked: self._local.move_hand_over(asked))
    put(Gateway, "move_prepare", lambda self, asked: None)


PLANTED_IN_MOVES: dict[str, Callable[[Set], None]] = {
    "moves without a lease": _moves_without_lease,
    "freed before the hand-over": _freed_before_the_hand_over,
    "handed over unprepared": _handed_over_unprepared,
}
"""These are for the campaign of moves, ``tests/clients/cluster/moves_campaign.py``."""


def plant(name: str, put: Set = setattr) -> None:
    """Plant a mistake in this process; none if the name is empty."""
    if name:
        {**PLANTED, **PLANTED_IN_MOVES}[name](put)

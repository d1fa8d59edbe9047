"""Puts the groups of a log into slots: a group is one object, and one is on its way at a time.

The content of a slot is made once, before it is first sent: whatever the answers, the same bytes go to the same number
until they are there, or others are. Others mean that somebody has claimed the log: this process writes no more, and
deletes nothing more. Nothing of the group will ever be in the log if the answer comes in the time of a lease. Later it
may have been there: the next holder replayed it, freed it, and a late claim, which is void, fell into its slot.

A slot without records is made on request: to name a new manifest, to show that the holder lives, to release the log.
After a release no slot is sent: the claim that would stop it may be freed (``claim_note``).

No beat passes a slot that was sent. So one that would be on its way for long waits until its payload was put, in
chunks. While that lasts, however long, slots without records pass it, and it gets its number at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from ....schemas.errors import CorruptionError, UnavailableError
from ... import threads
from ..format import EncodedRecord, timestamp_of_record
from ..group import TakenGroup
from ..reader import CleanStop
from ..sink import LogLostError, UnansweredError
from ..turn import UNLOGGED
from .ceiling import CeilingClock
from .claim import Claimed
from .kept import KeptSlots
from .lease import Lease
from .options import SlotOptions
from .pace import Pace
from .slot import NO_NONCE, Slot, SlotHeader, SlotKind, decode_slot, encode_slot, path_of, payload_of
from .slot_store import SlotStore
from .upload import Upload

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.05, 0.5  # between two attempts, of which each takes its own time; ever longer
_LOOK_SECONDS = 0.02
"""How often it looks whether a payload was put, or a slot is to pass it."""
_LATE = 1.1
"""A beat that nobody has asked for in so many times its interval: who asks may still wait for the last one."""


@dataclass(slots=True, eq=False)
class SlotRequest:
    """A thread's request for a slot of the log. Also what the thread waits for: ``lsn`` is 0 once the slot has
    landed."""

    kind: SlotKind = SlotKind.BEAT
    manifest: tuple[str, int] | None = None
    """The name and the crc of the manifest that counts from this slot on."""
    needed_lsn: int = 1
    """With ``manifest``: it needs the records from this one on."""
    lsn: int = UNLOGGED


@dataclass(slots=True)
class SlotGroup(TakenGroup):
    """A group of the log that becomes a slot. ``content`` and ``landing`` are made when it is first sent."""

    requests: list[SlotRequest]
    kind: SlotKind
    safe: int
    upload: Upload | None = None
    """Of its payload, if that is not to be in the slot."""
    sent: float = 0.0
    content: bytes = b""
    landing: Slot | None = None
    pause_seconds: float = _PAUSE_SECONDS
    """Before it is tried again."""


class SlotSink:
    """Puts the groups of a log into slots. See the module's text, and ``Sink``."""

    free_bytes = 1 << 62
    group_bytes = 8 << 20
    """Less of it would bound the rate of a load: a request takes some 30 ms, however little it has."""

    def __init__(
        self,
        slots: SlotStore,
        claimed: Claimed,
        clock: CeilingClock,
        lease: Lease,
        options: SlotOptions,
        boot_seconds: Callable[[], float],
        pause: Callable[[float], object],
        new_uuid: Callable[[], UUID],
    ) -> None:
        self._slots = slots
        self._clock = clock
        self._lease = lease
        self._ttl_seconds, self._beat_seconds = options.ttl_seconds, options.beat_seconds
        self._boot_seconds = boot_seconds
        self._pause = pause
        self._new_uuid = new_uuid
        self._pace = Pace(options.ttl_seconds)
        self.heard_at = 0.0
        self.wake: Callable[[], None] = lambda: None
        """Called when requests are answered amid a sync."""
        self._passing: SlotGroup | None = None
        """A slot that passes the group which waits for its payload, until it has landed."""
        self.in_doubt = False
        self._process = os.getpid()
        self.newest = claimed.slot
        """The last slot that landed."""
        self.sent = claimed.sent
        """When it was first sent."""
        self.kept = KeptSlots()
        self.kept.add(claimed.slot)
        lease.renew(claimed.sent)

        self._asking = threads.Lock()
        self._requests: list[SlotRequest] = []
        self._is_closed = False

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the holder."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raise LogLostError in a process that was forked from the holder: its slots would pass for the holder's."""
        if self.is_forked:
            raise LogLostError(
                "this process was forked from one that has the store open, and only one process may open it: open "
                "it after the fork, or use a server"
            )

    @property
    def has_request(self) -> bool:
        return bool(self._requests)

    def ask(self, request: SlotRequest) -> SlotRequest:
        """Have the next slot that is taken answer a request, which is to be waited for. Raises UnavailableError."""
        self.check_process()
        with self._asking:
            if self._is_closed:
                raise UnavailableError("the log is closed")
            self._is_closed = request.kind is SlotKind.RELEASE
            self._requests.append(request)
        return request

    def make_room(self, claimed: int, mutex: threads.Lock) -> None:
        """There is always room."""

    def take(self, records: list[EncodedRecord], first_lsn: int, claims: int, is_all: bool) -> SlotGroup:
        with self._asking:
            requests, self._requests = self._requests, []
        kind = SlotKind.RECORDS if records else SlotKind.BEAT
        if not records and any(request.kind is SlotKind.RELEASE for request in requests):
            kind, safe = SlotKind.RELEASE, self._clock.freeze()
        else:
            safe = self._clock.settle() if is_all else timestamp_of_record(records[-1])
        return SlotGroup(records, first_lsn, claims, 0, requests, kind, safe)

    def write(self, group: SlotGroup) -> None:
        if group.upload is None and group.landing is None:
            payload = payload_of(group.records)
            if sum(map(len, payload)) > self._pace.bytes:
                reign, nonce = self.newest.header.reign, self._new_uuid().bytes
                group.upload = Upload(self._slots, self._pace, reign, nonce, payload, self._boot_seconds)

    def survives_process(self, group: SlotGroup) -> bool:
        return False

    def sync(self, group: SlotGroup) -> None:
        self.check_process()
        try:
            if group.landing is None and group.upload is not None:
                self._put_payload(group, group.upload)
            self._create(group)
        except LogLostError:
            if group.upload is not None:
                group.upload.stop()
            raise

    def close(self, is_clean: bool) -> None:
        """There is nothing open."""

    def clean_stop(self, last_lsn: int) -> CleanStop | None:
        return None

    def _put_payload(self, group: SlotGroup, upload: Upload) -> None:
        """Put the payload of a group as chunks, and let slots pass it meanwhile."""
        upload.go_on()
        while not upload.is_at_rest(_LOOK_SECONDS) or self._passing:
            self.heard_at = upload.heard_at
            if self._passing or group.requests or self.has_request or self._is_beat_late():
                self._let_pass(group)
        try:
            upload.check()
        except UnavailableError as error:
            raise self._unanswered(group, "the payload of the next slot", error) from error

    def _is_beat_late(self) -> bool:
        return self._boot_seconds() >= self.sent + _LATE * self._beat_seconds

    def _let_pass(self, group: SlotGroup) -> None:
        """Make a slot without records that passes a group, and answers what the group would answer."""
        if self._passing is None:
            self.in_doubt = True  # a request that is lost is waited for
            with self._asking:
                requests = group.requests + self._requests
                group.requests, self._requests = [], []
            self._passing = SlotGroup([], group.first_lsn, 0, 0, requests, SlotKind.BEAT, safe=0)
            self.in_doubt = False
        self._create(self._passing)
        self._passing = None
        self.wake()

    def _create(self, group: SlotGroup) -> None:
        """Make the slot of a group, and take note of it."""
        landing = group.landing or self._encode(group)
        number = landing.header.number
        try:
            is_ours = self._slots.create(number, group.content)
        except UnavailableError as error:
            raise self._unanswered(group, path_of(number), error) from error
        if not is_ours:
            # Nobody can have claimed the log after this slot, replayed and freed it, while a lease from it would hold.
            is_nowhere = self._lease.covers(group.sent)
            if is_nowhere:
                outcome = "nothing of the change was applied; send it to that process"
            else:
                outcome = (
                    "whether the change was applied is unknown; check in that process, or send a numbered write again"
                )
            self._lease.lose()
            raise LogLostError(f"{self._who(number)}; {outcome}", locations=[] if is_nowhere else None)
        self._pace.note(len(group.content), self._boot_seconds() - group.sent)
        self._land(group, landing)

    def _encode(self, group: SlotGroup) -> Slot:
        """Make the content of a slot, which is to be sent now. Raises LogLostError after a release."""
        if self.newest.header.kind is SlotKind.RELEASE:
            raise LogLostError("this process has released the store")
        header, upload = self._header(group), group.upload
        chunks = tuple(upload.chunks) if upload else ()
        group.content, crc = encode_slot(header, [] if upload else payload_of(group.records), chunks)
        group.size = len(group.content) + sum(chunk.size_bytes for chunk in chunks)
        group.sent = self._boot_seconds()
        group.landing = Slot(header, crc, memoryview(b""), group.size, chunks)
        return group.landing

    def _unanswered(self, group: SlotGroup, what: str, error: UnavailableError) -> UnansweredError:
        """Return the error after which a group is tried again, and let some time pass before."""
        self._pause(group.pause_seconds)
        group.pause_seconds = min(2 * group.pause_seconds, _PAUSE_SECONDS_MAX)
        return UnansweredError(f"{what} could not be written and is tried again: {error.message}")

    def _land(self, group: SlotGroup, landed: Slot) -> None:
        """Take note of a slot that landed. May be repeated."""
        self._lease.renew(group.sent)
        self._clock.raise_ceiling(landed.header.ceiling)
        self.kept.add(landed)
        self.newest, self.sent = landed, group.sent
        for request in group.requests:
            request.lsn = 0

    def _header(self, group: SlotGroup) -> SlotHeader:
        last = self.newest.header
        safe = max(last.safe, group.safe)
        ceiling = max(last.ceiling, self._clock.ceiling_for(self._ttl_seconds))
        header = replace(
            last,
            kind=group.kind,
            count=len(group.records),
            nonce=group.upload.nonce if group.upload else NO_NONCE,
            number=last.number + 1,
            previous_crc=self.newest.crc,
            first_lsn=group.first_lsn,
            safe=safe,
            ceiling=safe if group.kind is SlotKind.RELEASE else ceiling,
        )
        for request in group.requests:
            if request.manifest:
                header = self._with_manifest(header, *request.manifest, request.needed_lsn)
        return header

    def _with_manifest(self, header: SlotHeader, name: str, crc: int, needed_lsn: int) -> SlotHeader:
        needed = header.needed_slot
        if self.kept.is_whole:
            needed = max(needed, self.kept.needed_for(needed_lsn, header.number))
        needed_lsn = max(needed_lsn, header.needed_lsn)
        return replace(header, manifest=name, manifest_crc=crc, needed_slot=needed, needed_lsn=needed_lsn)

    def _who(self, number: int) -> str:
        """Say who has the log, as far as can be learned."""
        try:
            content = self._slots.read(number, is_patient=False)  # those who wait have not heard yet
            holder = UUID(bytes=decode_slot(number, content or b"").header.holder)
        except (UnavailableError, CorruptionError):
            return f"another process has the store: slot {number} of its log is not ours"
        return f"another process has the store since slot {number} of its log: {holder}"

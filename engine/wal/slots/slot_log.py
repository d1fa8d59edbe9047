"""The write-ahead log of a store in a bucket: groups are numbered objects, and a rival's object stops this process.

log = SlotLog.open(slots, clock, uuid4)      # waits until nobody has the log, and claims it
log.newest.manifest, log.newest.manifest_crc # the manifest that counts; "" in a new store
log.reign                                    # for numbers of files that nobody else gives
MvccManager(log.clock)                       # gives out no timestamp that the next holder may give out
for records in log.replay():
    apply(records)

log.writer                                   # as every StoreLog
log.commit_manifest(name, crc, needed_lsn)   # from its slot on it counts
log.lease.check()                            # before "now" is read
log.failed                                   # set once somebody else has the store: stop
log.close()                                  # releases the log: the next process need not wait
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from ....schemas.errors import CorruptionError, InternalError, UnavailableError
from ... import threads
from ...mvcc.clock import Clock, boot_seconds
from ..records import LogRecords
from ..silence import OnSilence
from ..store_log import StoreLog
from ..turn import Position
from ..writer import LogWriter
from .beats import Beats
from .ceiling import CeilingClock
from .chunk import reign_of_chunk
from .claim import Claimant, Claimed
from .claim_note import is_fence
from .kept import KeptSlot
from .lease import Lease
from .options import SlotOptions
from .payload import whole
from .reader import SlotReader
from .slot import NO_EPOCH, SlotHeader, SlotKind, decode_slot
from .slot_sink import SlotGroup, SlotRequest, SlotSink
from .slot_store import SlotStore
from .standby import Standby

_logger = logging.getLogger(__name__)


def pause(seconds: float) -> None:
    """Wait ``seconds`` between two attempts at a log of slots."""
    threads.Event().wait(seconds)


class SlotLog(StoreLog):
    """The write-ahead log of a store in a bucket, as slots. See the module's text, and ``StoreLog``. From ``open`` to
    ``close`` this process is the holder, and beats."""

    def __init__(
        self,
        slots: SlotStore,
        claimed: Claimed,
        clock: CeilingClock,
        options: SlotOptions,
        boot: Callable[[], float],
        pause: Callable[[float], object],
        new_uuid: Callable[[], UUID],
        standby: Standby | None = None,
    ) -> None:
        self.clock = clock
        """Gives the timestamps of commits and snapshots: within what the log allows this holder."""
        self.lease = Lease(options.ttl_seconds, boot)
        """Until when nobody else can have the store. Ask before "now" is read; the past needs no lease."""
        self.on_alone: Callable[[], object] = lambda: None
        """Called during the replay, once a former holder that was not silent answers nothing any more."""
        self._slots = slots
        self._options = options
        self._boot, self._pause = boot, pause
        self._standby = standby
        self._reader: SlotReader | None = SlotReader(slots, claimed.slot)
        self._makers = self._reader.makers
        self._claim = claimed.slot.header
        self._sink = SlotSink(slots, claimed, clock, self.lease, options, boot, pause, new_uuid)
        self._inner: LogWriter[SlotGroup] = LogWriter(
            self._sink,
            self._claim.next_lsn - 1,
            options.queue_bytes,
            options.linger_seconds,
            options.patience_seconds,
            max(options.patience_seconds, options.ttl_seconds) if standby else None,
        )
        self._sink.wake = self._inner.hand_over
        self._freeing = threads.Lock()
        self._chunks: set[str] = set()
        """The chunks that earlier holders put, as far as no slot was found that names them."""
        self._former_claim = NO_EPOCH
        """The claim before this holder's, if it is before the slots that are read."""
        self._is_closed = False
        self._beats = Beats(self._inner, self._sink, options.beat_seconds, boot)

    @classmethod
    def open(
        cls,
        slots: SlotStore,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        options: SlotOptions | None = None,
        about: Mapping[str, object] | None = None,
        wait_seconds: float | None = None,
        boot: Callable[[], float] = boot_seconds,
        pause: Callable[[float], object] = pause,
        standby: Standby | None = None,
    ) -> SlotLog:
        """Claim the log as soon as nobody has it, and open it; a log without slots is made.

        At once if its last holder released it, after ``ttl_seconds`` of silence if that one died, or those of that one
        if they are more. ``clock`` tells the time of day. ``new_uuid`` must return a uuid that nobody else has.
        ``about`` tells others of this process: what JSON can say. ``wait_seconds`` (by default 2 TTL) bounds the wait
        for a living holder. With ``standby`` there is no bound: it waits until told to stop.

        Raises:
            StandbyStoppedError: the standby was told to stop.
            UnavailableError: another process has the log, or there is no answer.
            CorruptionError: the end of the log is not what was written.
        """
        options = options or SlotOptions()
        slots = standby.over(slots) if standby else slots
        claimant = Claimant(slots, options, new_uuid, boot, pause)
        until = None if wait_seconds is None else boot() + wait_seconds
        limited, holder = CeilingClock(clock, 0), new_uuid().bytes
        if standby:
            standby.process = holder
        while True:
            seen = claimant.stand_by(standby) if standby else claimant.wait_for_silence(until)
            if seen is not None:
                limited.update(seen.header.ceiling)
            answer_by = boot() + 2 * options.ttl_seconds if until is None else until
            try:
                others_wait = standby.others_wait if standby else 0.0
                claimed = claimant.claim(seen, limited, holder, about or {}, answer_by, others_wait)
            except UnavailableError as error:
                if standby is None:
                    raise
                standby.note(error)  # if the claim lands nevertheless, it is one that falls silent
                continue
            if claimed:
                if standby:
                    standby.claimed(claimed.slot.header, claimed.sent)
                return cls(slots, claimed, limited, options, boot, pause, new_uuid, standby)

    @property
    def newest(self) -> SlotHeader:
        """What the newest slot of this holder says: the manifest, and from where the log is needed."""
        return self._sink.newest.header

    @property
    def sent(self) -> float:
        """When the newest slot was first sent, in seconds since the machine started."""
        return self._sink.sent

    @property
    def store_uuid(self) -> bytes:
        return self._claim.store_uuid

    @property
    def reign(self) -> int:
        """How many holders there were up to this one: no other holder has the same."""
        return self._claim.reign

    @property
    def epoch(self) -> int:
        """The number of this holder's claim."""
        return self._claim.epoch

    @property
    def process(self) -> bytes:
        """The uuid of this holder."""
        return self._claim.holder

    @property
    def first_lsn(self) -> int:
        return self.newest.needed_lsn

    @property
    def failed(self) -> UnavailableError | None:
        """Why the log can no longer be written, also during the replay, or None."""
        return self._inner.failed

    @property
    def makers(self) -> Mapping[int, str]:
        return self._makers

    def fetch(self) -> None:
        """Fetch the slots that ``peek`` begins with, before it: what else is asked for meanwhile takes no longer.
        Raises UnavailableError."""
        if self._reader is not None:
            self._reader.fetch()

    def note_chunks(self, names: Iterable[str]) -> None:
        """Take note of the chunks that are there since this process has the log, before it is replayed. Those of
        earlier holders that no slot names are deleted then: nobody can come to name them any more."""
        self._chunks = {name for name in names if reign_of_chunk(name) < self.reign}

    def peek(self) -> Iterator[LogRecords]:
        if self._reader is None:
            raise InternalError("a log is looked through before it is replayed")
        for slot in self._reader.read():
            if slot.header.count:
                yield slot.records()

    def replay(self) -> Iterator[LogRecords]:
        reader, self._reader = self._reader, None
        if reader is None:
            raise InternalError("a log is replayed once")
        self._is_replaying = True
        kept: list[KeptSlot] = []
        former = NO_EPOCH
        for slot in reader.read():
            kept.append(KeptSlot.of(slot))
            former = slot.header.epoch if slot.header.epoch != self.epoch else former
            self._chunks.difference_update(slot.chunk_names)
            if slot.header.count:
                yield slot.records()
        self._sink.kept.precede(kept)
        self._former_claim = former if former < kept[0].number else NO_EPOCH
        if self._chunks:
            with suppress(UnavailableError):  # the next holder deletes them
                self._slots.delete_chunks(self._chunks)
        if self._standby:
            self._standby.ends()
            if self._hold_seconds > 0:
                while (seconds := self._hold_seconds) > 0:
                    self._pause(seconds)
                self.on_alone()
        self._writer = self._inner

    def check_held(self) -> None:
        """Raise UnavailableError if another process has the log, or there is no answer for a while: ask by a slot."""
        self._inner.wait_for(self._sink.ask(SlotRequest()))

    def commit_manifest(self, name: str, crc: int, needed_lsn: int) -> None:
        """Make a manifest count, which is stored durably under ``name``: a slot says so, with the records that wait.

        ``needed_lsn``: the manifest needs the log from this record on; all before are in the log. Allowed during the
        replay. Waits until the outcome is known, or the log fails: nobody may go on here without it. A process that
        stands by opens the log again then, which shows the outcome. Another one waits for however long.

        Raises:
            UnavailableError: somebody else has the store, and the manifest does not count. Or the log is closed, or did
                not answer for ``patience_seconds`` and for TTL, and the outcome is unknown.
            InternalError: there are no such records, and the log could never be opened again.
        """
        if needed_lsn > self._inner.last_lsn + 1:
            raise InternalError(f"a manifest needs records from {needed_lsn} on; the last is {self._inner.last_lsn}")
        self._inner.wait_for(Position(needed_lsn - 1), OnSilence.FAILS)  # a slot may not have room for all that wait
        request = SlotRequest(manifest=(name, crc), needed_lsn=needed_lsn)
        self._inner.wait_for(self._sink.ask(request), OnSilence.FAILS)

    @property
    def overdue_lsn(self) -> int:
        return self._sink.kept.lsn_behind(self._options.flush_slots)

    def can_free_before(self, lsn: int) -> bool:
        """Whether so much is not needed that a manifest which says so is worth its slot."""
        needed = self._sink.kept.needed_for(lsn, self.newest.number + 1)
        free = [slot for slot in self._sink.kept.all() if slot.number < needed and not slot.stays]
        size = sum(slot.size_bytes for slot in free)
        return len(free) >= self._options.free_slots or size >= self._options.free_bytes

    def free_before(self, lsn: int) -> int:
        """Delete the slots before the one that the newest slot needs; return their bytes. Claims stay if they must
        (``claim_note``).

        ``lsn`` does not matter: a manifest that needs less has landed, and its slot decides. Raises UnavailableError.
        """
        return self._free()

    def records_up_to(self, lsn: int) -> Iterator[LogRecords]:
        for kept in self._sink.kept.all():
            content = self._slots.read(kept.number)
            slot = whole(self._slots, decode_slot(kept.number, content or b""))
            if slot.header.first_lsn > lsn:
                return
            if slot.header.count:
                yield slot.records()

    def sizes(self) -> Sequence[int]:
        return [slot.size_bytes for slot in self._sink.kept.all()]

    def close(self) -> None:
        """Make all appended records durable, free the log, and release it: another process may claim it at once.

        Without an answer it gives up after ``patience_seconds``; then the next process waits for TTL, as it does while
        a former holder that was not silent may answer reads. In a process that was forked from the holder it does
        nothing.
        """
        if self._sink.is_forked:
            return
        try:
            self._inner.close()
            if self.failed is None and not self._is_closed:
                self._is_closed = True
                for step in (self._free,) if self._hold_seconds > 0 else (self._free, self._release):
                    try:
                        step()
                    except UnavailableError as error:
                        _logger.warning("while closing, the log could not be freed or released: %s", error.message)
        finally:
            self._give_up()

    @property
    def _hold_seconds(self) -> float:
        """How long a former holder that was not silent may still answer reads."""
        return self._standby.hold_until - self._boot() if self._standby else 0.0

    def _free(self) -> int:
        with self._freeing:
            needed = self.newest.needed_slot
            free = [slot for slot in self._sink.kept.all() if slot.number < needed and not slot.stays]
            if self.failed or not (free or self._former_claim):
                return 0
            numbers = [slot.number for slot in free] + self._free_claims()
            if numbers:
                self._slots.delete(numbers)
            self._former_claim = NO_EPOCH
            if chunks := [name for slot in free for name in slot.chunk_names]:
                self._slots.delete_chunks(chunks)
            self._sink.kept.drop_before(needed)
            return sum(slot.size_bytes for slot in free)

    def _free_claims(self) -> list[int]:
        """Return the number of the claim before this holder's if it was left before the slots that are read, and may be
        deleted. Raises UnavailableError."""
        content = self._slots.read(self._former_claim) if self._former_claim else None
        if content is None:
            return []
        try:
            return [] if is_fence(decode_slot(self._former_claim, content)) else [self._former_claim]
        except CorruptionError:
            return []  # who verifies the log is told

    def _give_up(self) -> None:
        self._beats.stop()
        self.lease.lose()

    def _release(self) -> None:
        self._give_up()  # before others may write: what is read here would not be the newest
        self._inner.wait_for(self._sink.ask(SlotRequest(SlotKind.RELEASE)), OnSilence.LASTS)

"""Several holders to be, whose requests fail, are late and stand still at random, over one log.

Nothing that was acknowledged is lost or doubled, whoever has the log; and whoever believes to know what is current
knows all that was acknowledged before it asked.
"""

import threading
from contextlib import suppress
from itertools import chain
from random import Random
from uuid import UUID

import pytest

from nyala.engine.mvcc.clock import SystemClock, boot_seconds
from nyala.engine.wal.slots import SlotLog, SlotOptions, check_slots
from nyala.engine.wal.slots.slot import SlotKind, decode_slot
from nyala.schemas.errors import StoreError
from tests.doubles.slots import FaultySlots, MemorySlots
from tests.engine.wal.slots.slot_bench import appended

SECONDS = 3.0
OPTIONS = SlotOptions(ttl_seconds=0.15, beat_seconds=0.04, poll_seconds=0.005, patience_seconds=0.1, free_slots=20)


class Race:
    """What all processes together were told; the log must agree with it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.slots = MemorySlots()
        self.acked: list[bytes] = []
        self.manifests: dict[str, list[bytes]] = {"": []}
        self.ends_at = boot_seconds() + SECONDS
        self.failures: list[BaseException] = []
        self.checked_reads = 0

    def process(self, name: int) -> None:
        try:
            lives = 0
            while boot_seconds() < self.ends_at:
                lives += 1
                self._live(b"%d-%d" % (name, lives), Random(self.random.random()))
        except BaseException as error:
            self.failures.append(error)

    def _live(self, name: bytes, random: Random) -> None:
        way = FaultySlots(self.slots)
        way.fault = lambda call, number: self._fault(random, way)
        pause = threading.Event().wait
        try:
            log = SlotLog.open(way, SystemClock(), lambda: UUID(int=random.getrandbits(128)), OPTIONS, wait_seconds=0.5)
        except StoreError:
            return
        try:
            needed = log.newest.needed_lsn
            held = list(self.manifests[log.newest.manifest])
            held += [bytes(record.payload) for record in chain.from_iterable(log.replay()) if record.lsn >= needed]
            for step in range(random.randrange(10, 400)):
                if boot_seconds() > self.ends_at:
                    break
                self._read(log, held)
                payload = b"%s-%d" % (name, step)
                lsn = appended(log, payload)
                held.append(payload)
                log.wait(lsn)
                self.acked.append(payload)
                if step % 25 == 24:
                    self._flush(log, held)
                if random.random() < 0.01:
                    pause(random.uniform(0, 0.4))  # it stands still, with what it believes
        except StoreError:
            pass
        finally:
            way.fault = lambda call, number: "dead" if random.random() < 0.5 else None
            with suppress(OSError):  # it dies while it frees the log
                log.close()

    def _fault(self, random: Random, way: FaultySlots) -> str | None:
        chance = random.random()
        if chance < 0.004:
            threading.Event().wait(random.uniform(0, 0.4))  # slow, or the process stands still
        if chance > 0.99 and way.late:
            way.deliver()
        return {0: "before", 1: "after", 2: "late"}.get(int(chance * 200))

    def _read(self, log: SlotLog, held: list[bytes]) -> None:
        acked = list(self.acked)
        if log.lease.holds:
            missing = set(acked) - set(held)
            assert not missing, f"a stale read misses {missing}"
            self.checked_reads += 1

    def _flush(self, log: SlotLog, held: list[bytes]) -> None:
        name = f"manifests/{log.reign}-{log.writer.last_lsn}"
        self.manifests[name] = held[:-3]
        log.commit_manifest(name, 1, log.writer.last_lsn - 2)
        log.free_before(0)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_read_stale_whoever_has_the_log(seed: int) -> None:
    race = Race(seed)
    threads = [threading.Thread(target=race.process, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert race.failures == []
    report = check_slots(race.slots)
    assert report.problems == []
    newest = decode_slot(report.end, race.slots.content[report.end]).header
    found = list(race.manifests[newest.manifest])
    for number in range(newest.needed_slot, report.end + 1):
        slot = decode_slot(number, race.slots.content[number])
        found += [bytes(record.payload) for record in slot.records() if record.lsn >= newest.needed_lsn]
    assert sorted(payload for payload in found if payload in set(race.acked)) == sorted(race.acked)
    assert len(found) == len(set(found)) == newest.next_lsn - 1
    claims = [decode_slot(number, race.slots.content[number]).header for number in report.claims]
    assert len(claims) > 2 and all(claim.kind is SlotKind.CLAIM for claim in claims)
    assert len(race.acked) > 20 and race.checked_reads > 20

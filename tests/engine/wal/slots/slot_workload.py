"""A fixed workload over a log of slots, and what must be true of it, whatever failed on the way."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from nyala.engine.wal.slots import SlotLog, SlotOptions, SlotStore, check_slots
from nyala.engine.wal.slots.claim_note import is_fence
from nyala.engine.wal.slots.slot import decode_slot
from nyala.schemas.errors import UnavailableError
from tests.engine.wal.slots.slot_bench import SlotBench, appended

PATIENT = SlotOptions(beat_seconds=1e6, patience_seconds=20.0)


@dataclass
class Journal:
    """What a process was told. Each manifest has what the records before the one it needs say."""

    tried: list[bytes] = field(default_factory=list)
    acked: list[bytes] = field(default_factory=list)
    manifests: dict[str, list[bytes]] = field(default_factory=lambda: {"": []})
    committed: str = ""
    errors: list[Exception] = field(default_factory=list)

    def noting(self, step: Callable[[], object]) -> bool:
        """Whether a step came through; its error is noted."""
        try:
            step()
        except (UnavailableError, OSError) as error:
            self.errors.append(error)
            return False
        return True


def workload(bench: SlotBench, way: SlotStore, journal: Journal) -> None:
    """Two lives of a log: claims, records, manifests, deletions, beats and releases; errors are noted, not hidden."""
    for life in (1, 2):
        logs: list[SlotLog] = []
        if not journal.noting(lambda logs=logs: logs.append(bench.unread(PATIENT, way, wait_seconds=20))):
            continue
        (log,) = logs
        held: list[bytes] = []
        needed, base = log.newest.needed_lsn, journal.manifests[log.newest.manifest]

        def replay(log: SlotLog = log, held: list[bytes] = held, needed: int = needed) -> None:
            held += [bytes(record.payload) for record in chain.from_iterable(log.replay()) if record.lsn >= needed]

        if journal.noting(replay):
            held[:0] = base
            for step in range(4):
                write(log, b"%d-%d" % (life, step), journal, held)
                if step % 2:
                    flush(log, f"manifests/{log.reign}-{step}", journal, held)
        journal.noting(log.close)


def write(log: SlotLog, payload: bytes, journal: Journal, held: list[bytes]) -> None:
    lsns: list[int] = []
    if journal.noting(lambda: lsns.append(appended(log, payload))):
        held.append(payload)
        journal.tried.append(payload)
        if journal.noting(lambda: log.wait(lsns[0])):
            journal.acked.append(payload)


def flush(log: SlotLog, name: str, journal: Journal, held: list[bytes]) -> None:
    """Commit a manifest that has all but the last record, as a flush does whose rows are durable in the log."""
    needed = log.writer.last_lsn
    if not journal.noting(lambda: log.wait(needed - 1)):
        return
    journal.manifests[name] = held[:-1]
    if journal.noting(lambda: log.commit_manifest(name, 1, needed)):
        journal.committed = name
        journal.noting(lambda: log.free_before(needed))


def check(bench: SlotBench, journal: Journal) -> list[bytes]:
    """Check the log, and what the next process finds in it; return that."""
    report = check_slots(bench.slots)
    assert report.problems == []
    fences = {each for each in report.claims if is_fence(decode_slot(each, bench.slots.read(each)))}
    log = bench.unread(PATIENT)
    names = list(journal.manifests)
    assert names.index(log.newest.manifest) >= names.index(journal.committed)
    needed = log.newest.needed_lsn
    found = [bytes(record.payload) for record in chain.from_iterable(log.replay()) if record.lsn >= needed]
    found = journal.manifests[log.newest.manifest] + found
    assert [payload for payload in found if payload in journal.acked] == journal.acked
    assert found == [payload for payload in journal.tried if payload in found], "each once, in order"
    log.close()
    assert fences <= set(bench.slots.numbers()), "claims that a former holder may run into stay"
    return found

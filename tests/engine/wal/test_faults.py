"""Every call of a fixed workload fails in turn: what was acknowledged stays, the error has a name, reopening works."""

import errno
from dataclasses import dataclass, field
from itertools import chain
from random import Random

import pytest

from nyala.engine.fs import FileSystem, MemoryFileSystem
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.schemas.errors import StorageFullError, UnavailableError
from tests.dose import dose
from tests.doubles.faulty import WRITES, FaultRule, FaultyFileSystem
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))
OPTIONS = WalOptions(segment_bytes=512, queue_bytes=2048)
SIZES = [10, 100, 0, 300, 50, 1200, 90, 90, 90, 400, 8, 200]


@dataclass
class Outcome:
    appended: dict[int, bytes] = field(default_factory=dict)
    acknowledged: int = 0
    freed_before: int = 1
    errors: list[Exception] = field(default_factory=list)


def payload_of(lsn: int) -> bytes:
    return bytes([lsn]) * SIZES[lsn % len(SIZES)]


def workload(fs: FileSystem, outcome: Outcome) -> None:
    """Two lives of a log with rolls, a record larger than a segment, and deletes; errors are noted, not hidden."""
    expect = None
    for _ in range(2):
        log = None
        try:
            log = WriteAheadLog.open(fs, "wal", STORE, OPTIONS, expect)
            for _ in chain.from_iterable(log.replay()):
                pass
            for step in range(12):
                one_write(log, outcome)
                if step == 8:
                    outcome.freed_before = max(outcome.freed_before, log.writer.durable_lsn - 3)
                    log.free_before(outcome.freed_before)
        except (UnavailableError, StorageFullError) as error:
            outcome.errors.append(error)
        expect = log.close() if log else None


def one_write(log: WriteAheadLog, outcome: Outcome) -> None:
    payload = payload_of(log.writer.last_lsn + 1)
    try:
        log.writer.reserve(len(payload))
    except StorageFullError as error:
        outcome.errors.append(error)
        log.writer.reserve(len(payload))
    lsn = append_record(log, lsn_timestamp(log.writer.last_lsn + 1), [payload])
    outcome.appended[lsn] = payload
    log.wait(lsn)
    outcome.acknowledged = max(outcome.acknowledged, lsn)


def lsn_timestamp(lsn: int) -> int:
    return lsn * 10


def check(disk: FileSystem, outcome: Outcome) -> None:
    log = WriteAheadLog.open(disk, "wal", STORE, OPTIONS)
    records = list(chain.from_iterable(log.replay()))
    lsns = [record.lsn for record in records]
    assert log.first_lsn <= max(1, outcome.freed_before)
    assert lsns == list(range(log.first_lsn, log.writer.last_lsn + 1))
    assert log.writer.last_lsn >= outcome.acknowledged
    assert all(record.payload == payload_of(record.lsn) for record in records)
    lsn = append_record(log, 1, [b"goes on"])
    log.wait(lsn)
    log.close()


def calls_of_the_workload() -> int:
    fs = FaultyFileSystem(MemoryFileSystem())
    outcome = Outcome()
    workload(fs, outcome)
    assert not outcome.errors
    assert outcome.acknowledged == 24
    check(fs, outcome)
    return fs.calls


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_call_fails_in_turn(error: int, sticky: bool) -> None:
    named = 0
    every = dose(5, 1)
    for nth in range(1, calls_of_the_workload() + 1, every):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk, [FaultRule(nth=nth, error=error, sticky=sticky)])
        outcome = Outcome()
        workload(fs, outcome)
        if fs.injected:
            named += 1
            assert outcome.errors or "unlink" in fs.injected[0], fs.injected
        check(disk.crash_image(Random(nth)), outcome)
        check(disk, outcome)
    assert named > 100 // every


@pytest.mark.parametrize("written", [1, 20, 64, 130])
def test_every_write_is_cut_short_in_turn(written: int) -> None:
    for nth in range(1, 60):
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk, [FaultRule(calls=WRITES, nth=nth, error=errno.ENOSPC, short_write=written)])
        outcome = Outcome()
        workload(fs, outcome)
        if fs.injected:
            assert outcome.errors
        check(disk.crash_image(Random(nth)), outcome)
        check(disk, outcome)


def test_a_full_disk_stops_no_log_for_good() -> None:
    rule = FaultRule(calls=frozenset({"create"}), nth=3, error=errno.ENOSPC)
    fs, outcome = FaultyFileSystem(MemoryFileSystem(), [rule]), Outcome()
    workload(fs, outcome)
    assert [type(error) for error in outcome.errors] == [StorageFullError]
    assert outcome.acknowledged == 24

"""The power fails, or the process dies, at every call of a log's life; then again while it recovers.

The oracle lives outside the disk: what was appended under each lsn, and up to where it was acknowledged.  After each
crash the log must open, hold all that was acknowledged and nothing that was not appended, and take new records, which
must survive the next crash.  The same checker must report a loss for each of the protocol bugs planted at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from random import Random

import pytest

from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.reader import CleanStop, LogReader
from nyala.engine.wal.segments import NewSegment, SegmentInfo, SegmentList
from nyala.engine.wal.writer import LogWriter
from nyala.schemas.errors import CorruptionError, UnavailableError
from tests.dose import dose
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))
OPTIONS = WalOptions(segment_bytes=1024, queue_bytes=4096)
SIZES = [10, 700, 0, 300, 1500, 40]
IMAGES = dose(4, 20)


@dataclass
class Oracle:
    """``appended`` keeps, of each lsn, what was appended under it since the last recovery."""

    appended: dict[int, bytes] = field(default_factory=dict)
    acknowledged: int = 0
    freed_before: int = 1
    stop: CleanStop | None = None

    def copy(self) -> "Oracle":
        return Oracle(dict(self.appended), self.acknowledged, self.freed_before, self.stop)

    def loss(self, first_lsn: int, records: list[tuple[int, bytes]]) -> str | None:
        """Return what is wrong with the records that a log holds, None if nothing is."""
        lsns = [lsn for lsn, _ in records]
        last_lsn = lsns[-1] if lsns else first_lsn - 1
        if lsns != list(range(first_lsn, last_lsn + 1)):
            return f"a hole: {lsns}"
        if last_lsn < self.acknowledged:
            return f"lsn {self.acknowledged} was acknowledged, the log ends at {last_lsn}"
        if first_lsn > self.freed_before:
            return f"the log begins at {first_lsn}, but was freed before {self.freed_before}"
        strange = [lsn for lsn, payload in records if self.appended.get(lsn) != payload]
        return f"lsns {strange} hold what nobody appended" if strange else None


def open_log(disk: MemoryFileSystem, oracle: Oracle) -> tuple[WriteAheadLog, list[tuple[int, bytes]]]:
    log = WriteAheadLog.open(disk, "wal", STORE, OPTIONS, oracle.stop)
    return log, [(record.lsn, bytes(record.payload)) for record in chain.from_iterable(log.replay())]


def append(log: WriteAheadLog, oracle: Oracle, payload: bytes, wait: bool = True) -> None:
    log.writer.reserve(len(payload))
    oracle.appended[log.writer.last_lsn + 1] = payload
    lsn = append_record(log, 1, [payload])
    if wait:
        log.wait(lsn)
        oracle.acknowledged = lsn


def life(disk: MemoryFileSystem, oracle: Oracle, seed: int) -> None:
    """Open, write and roll, free some, write several in flight, close."""
    random = Random(seed)
    log, _ = open_log(disk, oracle)
    try:
        for size in SIZES:
            append(log, oracle, random.randbytes(size))
        oracle.freed_before = max(oracle.freed_before, oracle.acknowledged - 1)
        log.free_before(oracle.freed_before)
        for size in (5, 5, 200):
            append(log, oracle, random.randbytes(size), wait=False)
        log.wait(log.writer.last_lsn)
        oracle.acknowledged = log.writer.last_lsn
    finally:
        oracle.stop = log.close() or oracle.stop


def workload(disk: MemoryFileSystem, oracle: Oracle) -> None:
    life(disk, oracle, 1)
    life(disk, oracle, 2)


def run_until(call: int | None) -> tuple[MemoryFileSystem, Oracle]:
    """Run the workload with the power failing at ``call``."""
    disk, oracle = MemoryFileSystem(crash_at=call), Oracle()
    try:
        workload(disk, oracle)
    except (PowerFailure, UnavailableError):
        assert call is not None
    return disk, oracle


def examine(disk: MemoryFileSystem, oracle: Oracle) -> str | None:
    """Open the log as a restart would; return what it lost."""
    try:
        log, records = open_log(disk, oracle)
    except CorruptionError as error:
        return f"a legal state is called corrupt: {error}"
    loss = oracle.loss(log.first_lsn, records)
    if loss is None:
        # What a restart has seen it may build upon, so it counts as acknowledged from here on.
        oracle.acknowledged = records[-1][0] if records else log.first_lsn - 1
        oracle.appended = dict(records)
    log.close()
    return loss


def crash_again(disk: MemoryFileSystem, oracle: Oracle, random: Random) -> MemoryFileSystem:
    """Recover and go on writing until the power fails once more, anywhere from the first call of the recovery on."""
    disk.crash_at = disk.operations + random.randint(1, 25)
    with suppress(PowerFailure, UnavailableError):
        life(disk, oracle, random.randrange(1000))
    return disk.crash_image(random)


def losses(calls: range, images: int) -> Iterator[str]:
    """Yield every loss over crashes at ``calls``: of the power, and of the process with the power failing later."""
    for call in calls:
        for seed in range(images):
            disk, oracle = run_until(call)
            random = Random(call * 1000 + seed)
            process_only = seed % 4 == 0
            if process_only:
                disk.crash_at = None
            else:
                disk = disk.crash_image(random)
            for step in range(3):
                loss = examine(disk, oracle)
                if loss is not None:
                    yield f"crash at call {call}, image {seed}, step {step}: {loss}"
                    break
                disk = crash_again(disk, oracle, random)


def count_of_calls() -> int:
    disk, oracle = run_until(None)
    assert (oracle.acknowledged, oracle.stop is not None) == (18, True)
    return disk.operations


@pytest.mark.parametrize("part", range(4))
def test_no_crash_loses_what_was_acknowledged(part: int) -> None:
    calls = range(1 + part, count_of_calls() + 2, 4)
    assert list(losses(calls, IMAGES)) == []


def test_recovery_changes_nothing_twice() -> None:
    """Reading, closing and reading again gives the same, whatever the crash left."""
    for call in range(1, count_of_calls() + 2, 3):
        disk, oracle = run_until(call)
        image = disk.crash_image(Random(call))
        assert examine(image, oracle) is None
        once = {name: bytes(image.open(f"wal/{name}").view()) for name in image.list("wal")}
        assert examine(image, oracle) is None
        assert once == {name: bytes(image.open(f"wal/{name}").view()) for name in image.list("wal")}


def test_reading_alone_changes_nothing() -> None:
    for call in range(10, count_of_calls(), 7):
        image = run_until(call)[0].crash_image(Random(call))
        if image.exists("wal"):
            before = image.operations
            list(LogReader(image, "wal", STORE).groups())
            assert image.operations == before


def skip_the_sync_of_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryWritableFile, "sync", lambda file: None)


def skip_the_sync_of_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFileSystem, "sync_directory", lambda disk, path: None)


def acknowledge_when_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "wait", LogWriter.wait_written)


def skip_the_sync_at_opening(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryFileSystem, "sync_file", lambda disk, path: None)


def skip_the_sync_of_a_header(patch: pytest.MonkeyPatch) -> None:
    real = NewSegment.begin

    def begin(segment: NewSegment, *link: object) -> SegmentInfo:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MemoryWritableFile, "sync", lambda file: None)
            return real(segment, *link)  # type: ignore[arg-type]

    patch.setattr(NewSegment, "begin", begin)


def free_the_newest_first(patch: pytest.MonkeyPatch) -> None:
    def free_before(segments: SegmentList, lsn: int) -> int:
        for segment in reversed(segments.all()[:-1]):
            if segment.last_lsn < lsn:
                segments._unlink(segment)
        return 0

    patch.setattr(SegmentList, "free_before", free_before)


@pytest.mark.parametrize(
    "plant",
    [
        skip_the_sync_of_groups,
        skip_the_sync_of_names,
        acknowledge_when_written,
        skip_the_sync_at_opening,
        skip_the_sync_of_a_header,
        free_the_newest_first,
    ],
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_of_calls()
    plant(monkeypatch)
    assert any(True for _ in losses(range(1, calls + 2), IMAGES))

"""Who writes a group: a writer that waits, for all that wait; the log's thread only where nobody does."""

import errno
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.wal import writer
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.turn import Position, Turn, link
from nyala.engine.wal.writer import LogWriter
from nyala.schemas.errors import UnavailableError
from tests.doubles.waiting import until
from tests.engine.wal.appending import append_record

WRITERS = 8


class Syncs:
    """Runs ``before`` in front of each sync of a file, and notes the names of the threads that sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[], None] = lambda: None
        self.threads: list[str] = []
        real = MemoryWritableFile.sync

        def sync(file: MemoryWritableFile) -> None:
            self.threads.append(threading.current_thread().name)
            self.before()
            real(file)

        monkeypatch.setattr(MemoryWritableFile, "sync", sync)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.fixture
def log(bench: Any) -> Iterator[WriteAheadLog]:
    """A log with one durable record."""
    log, _ = bench.open(segment_bytes=1 << 20, queue_bytes=1 << 20)
    appended(log, b"first")
    log.wait(1)
    yield log


def appended(log: WriteAheadLog, payload: bytes) -> int:
    log.writer.reserve(len(payload))
    return append_record(log, 1, [payload])


def raising(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def waiters(log: WriteAheadLog, lsns: list[int]) -> list[tuple[threading.Thread, list[object]]]:
    """Start a thread for each lsn that waits for it; its list gets the lsn or the error."""
    found: list[tuple[threading.Thread, list[object]]] = []
    for lsn in lsns:
        outcome: list[object] = []

        def wait(lsn: int = lsn, outcome: list[object] = outcome) -> None:
            try:
                log.wait(lsn)
                outcome.append(lsn)
            except UnavailableError as error:
                outcome.append(error)

        thread = threading.Thread(target=wait, name=f"waits for {lsn}")
        thread.start()
        found.append((thread, outcome))
    return found


def test_a_lone_writer_syncs_by_itself(log: WriteAheadLog, syncs: Syncs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer._LINGER_SECONDS", 10)
    for _ in range(20):
        log.wait(appended(log, b"x"))
    assert syncs.threads == [threading.current_thread().name] * 20


def test_a_record_that_nobody_waits_for_becomes_durable(log: WriteAheadLog, syncs: Syncs) -> None:
    lsn = appended(log, b"x")
    until(lambda: log.writer.durable_lsn == lsn)
    assert syncs.threads == ["nyala-wal"]


def gathering(log: WriteAheadLog, count: int) -> None:
    """Let the next leader gather so many records."""

    def gather() -> None:
        log.writer.append_at_once([b"gathered"] * count, lambda count: [2] * count)

    log.writer.gatherer = gather


def is_asleep(log: WriteAheadLog) -> bool:
    return bool(log.writer._work._waiters)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def woken(log: WriteAheadLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the queue was whenever the log's thread, which is idle, was told of work."""
    lengths: list[int] = []
    ready = log.writer
    until(lambda: ready._is_idle)
    monkeypatch.setattr(ready._work, "notify", lambda: lengths.append(len(ready._queue)))
    return lengths


def test_records_that_a_leader_gathers_do_not_wake_the_logs_thread(log: WriteAheadLog, woken: list[int]) -> None:
    gathering(log, 1)
    log.writer.wait_for(Position(2))
    assert log.writer.durable_lsn == 2 and not woken
    log.writer.gatherer = lambda: None
    appended(log, b"alone")
    assert len(woken) == 1


def test_records_that_a_leader_leaves_wake_the_logs_thread(
    log: WriteAheadLog, woken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GROUP_RECORDS_MAX", 3)
    gathering(log, 5)
    log.writer.wait_for(Position(2))
    log.writer.gatherer = lambda: None
    assert woken == [2] and log.writer.durable_lsn == 4
    log.wait(6)


@pytest.mark.parametrize("gathered", [0, 2])
def test_an_interrupted_gatherer_leaves_records_to_the_logs_thread(
    log: WriteAheadLog, syncs: Syncs, gathered: int
) -> None:
    def gather() -> None:
        log.writer.gatherer = lambda: None
        log.writer.append_at_once([b"gathered"] * gathered, lambda count: [2] * count)
        raise KeyboardInterrupt

    until(lambda: log.writer._is_idle)
    log.writer.gatherer = gather
    with pytest.raises(KeyboardInterrupt):
        log.writer.wait_for(Position(2))
    until(lambda: log.writer.durable_lsn == 1 + gathered and is_asleep(log))  # its thread sleeps again
    appended(log, b"later")
    until(lambda: log.writer.durable_lsn == 2 + gathered)
    assert set(syncs.threads) == {"nyala-wal"}


def test_a_gatherer_interrupted_twice_leaves_records_to_the_logs_thread(log: WriteAheadLog) -> None:
    """The second time when the leader is about to say so."""
    ready, mutex = log.writer, log.writer._mutex

    class Interrupting:
        def __enter__(self) -> None:
            ready._mutex = mutex
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None: ...

    def gather() -> None:
        log.writer.gatherer = lambda: None
        ready._mutex = Interrupting()  # pyright: ignore[reportAttributeAccessIssue]
        raise KeyboardInterrupt

    until(lambda: ready._is_idle)
    log.writer.gatherer = gather
    with pytest.raises(KeyboardInterrupt):
        log.writer.wait_for(Position(2))
    lsn = appended(log, b"later")
    until(lambda: log.writer.durable_lsn == lsn)


def test_many_bytes_do_not_wait_for_their_writer(
    log: WriteAheadLog, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer._LINGER_SECONDS", 600)
    lsn = appended(log, b"x" * (200 << 10))
    until(lambda: log.writer.durable_lsn == lsn)
    small = appended(log, b"x")
    log.writer.wait_written(small)
    assert set(syncs.threads) == {"nyala-wal"}


def test_those_that_wait_during_a_sync_share_the_next(
    log: WriteAheadLog, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer._RECHECK_SECONDS", 600)  # each must be woken
    reached, opened = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert opened.wait(10)

    syncs.before = hold
    groups = log.stats().groups
    first = waiters(log, [appended(log, b"leads")])
    assert reached.wait(10)
    others = waiters(log, [appended(log, b"x") for _ in range(WRITERS)])
    opened.set()
    for thread, outcome in [*first, *others]:
        thread.join(10)
        assert isinstance(outcome[0], int)
    assert log.stats().groups - groups == 2
    assert log.writer.durable_lsn == log.writer.last_lsn == 2 + WRITERS


def test_waits_shorter_than_a_sync_are_resumed(
    log: WriteAheadLog, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks again is still in the queue, or leaves a chain that it is in to the others."""
    monkeypatch.setattr("nyala.engine.wal.writer._RECHECK_SECONDS", 0.001)
    syncs.before = lambda: time.sleep(0.02)
    for _ in range(5):
        for thread, outcome in waiters(log, [appended(log, b"x") for _ in range(WRITERS)]):
            thread.join(10)
            assert isinstance(outcome[0], int)
    assert log.writer.durable_lsn == log.writer.last_lsn == 1 + 5 * WRITERS
    assert not log.writer.turns.waiting


def test_who_waits_no_longer_passes_the_chain_on() -> None:
    first, second, third = turns = [Turn(Position(1)) for _ in range(3)]
    link(turns)
    first.come()
    first.wait(10)
    second.wait(0)
    third.wait(0)
    assert [turn.has_come for turn in turns] == [True, False, False]
    second.pass_on()
    third.wait(10)
    first.pass_on()  # its successor left before
    assert [turn.has_come for turn in turns] == [True, False, True]


def test_a_failed_sync_fails_all_of_its_group(bench: Any, log: WriteAheadLog, syncs: Syncs) -> None:
    syncs.before = raising(OSError(errno.EIO, "no more"))
    for thread, outcome in waiters(log, [appended(log, b"x") for _ in range(WRITERS)]):
        thread.join(10)
        assert isinstance(outcome[0], UnavailableError)
        assert "restart to recover" in str(outcome[0])
    syncs.before = lambda: None
    with pytest.raises(UnavailableError):
        log.wait(2)
    assert log.writer.durable_lsn == 1
    assert len(set(syncs.threads)) == 1, "nobody syncs again after a failure"
    assert log.close() is None


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_an_interrupted_leader_leaves_its_group_to_another(
    bench: Any, log: WriteAheadLog, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(MemoryWritableFile, call)
    interrupts = iter([KeyboardInterrupt])

    def interrupted(file: MemoryWritableFile, *what: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            for interrupt in interrupts:
                raise interrupt
        real(file, *what)

    monkeypatch.setattr(MemoryWritableFile, call, interrupted)
    lsn = appended(log, b"second")
    with pytest.raises(KeyboardInterrupt):
        log.wait(lsn)
    until(lambda: log.writer.durable_lsn == lsn)
    assert log.writer.failed is None
    log.wait(appended(log, b"third"))
    log.close()
    assert [payload for _, _, payload in bench.open()[1]] == [b"first", b"second", b"third"]


def test_a_leader_interrupted_in_a_new_segment_begins_it_once(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open(segment_bytes=256)
    log.wait(appended(log, b"a" * 100))
    real = MemoryFileSystem.sync_directory
    interrupts = iter([KeyboardInterrupt])

    def interrupted(disk: MemoryFileSystem, path: str) -> None:
        if threading.current_thread() is threading.main_thread():
            for interrupt in interrupts:
                raise interrupt
        real(disk, path)

    lsn = appended(log, b"b" * 200)
    monkeypatch.setattr(MemoryFileSystem, "sync_directory", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.wait(lsn)
    until(lambda: log.writer.durable_lsn == lsn)
    assert [(each.first_lsn, each.last_lsn) for each in log._segments.all()] == [(1, 1), (2, 2)]
    log.close()
    assert [lsn for lsn, _, _ in bench.open()[1]] == [1, 2]


def test_an_interruption_after_an_error_of_the_disk_stops_the_log(log: WriteAheadLog, syncs: Syncs) -> None:
    def fail() -> None:
        try:
            raise OSError(errno.EIO, "the disk")
        finally:
            raise KeyboardInterrupt  # as a handler of signals does, which runs while the error is handled

    syncs.before = fail
    with pytest.raises(UnavailableError, match="restart to recover"):
        log.wait(appended(log, b"x"))
    assert syncs.threads == [threading.current_thread().name]


class InterruptedLock:
    """A lock; whoever takes it in the function ``where`` is interrupted, once, before it is taken."""

    def __init__(self, lock: threading.Lock, where: str) -> None:
        self._lock, self._where = lock, where

    def __enter__(self) -> None:
        if sys._getframe(1).f_code.co_name == self._where:
            self._where = ""
            raise KeyboardInterrupt
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_leader_interrupted_before_it_takes_a_group_leaves_it_to_another(
    log: WriteAheadLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer._LINGER_SECONDS", 10)
    writer = log.writer
    monkeypatch.setattr(writer, "_mutex", InterruptedLock(writer._mutex, "_take"))
    lsn = appended(log, b"second")
    with pytest.raises(KeyboardInterrupt):
        log.wait(lsn)
    until(lambda: log.writer.durable_lsn == lsn)
    assert log.writer.failed is None


def test_a_leader_interrupted_while_it_hands_over_leaves_no_writer_without_a_place(
    bench: Any, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nyala.engine.wal.writer._RECHECK_SECONDS", 0.01)
    log, _ = bench.open(segment_bytes=1 << 16, queue_bytes=4096)
    log.wait(appended(log, b"first"))
    writer = log.writer
    lsn = appended(log, b"a" * 3000)
    other = threading.Thread(target=lambda: appended(log, b"b" * 3000))
    interrupts, hand_over = iter([KeyboardInterrupt]), LogWriter.hand_over

    def interrupted(writer: LogWriter) -> None:
        if threading.current_thread() is threading.main_thread():
            for interrupt in interrupts:
                raise interrupt
        hand_over(writer)

    def start_other() -> None:
        syncs.before = lambda: None
        other.start()
        until(lambda: bool(writer._space._waiters))  # pyright: ignore[reportAttributeAccessIssue]

    monkeypatch.setattr(LogWriter, "hand_over", interrupted)
    syncs.before = start_other
    with pytest.raises(KeyboardInterrupt):
        log.wait(lsn)
    other.join(10)
    assert not other.is_alive(), "it waits for a place that it has"
    until(lambda: log.writer.durable_lsn == log.writer.last_lsn == 3)
    assert log.stats().records == 3 and writer._admitted == 0


def test_a_log_whose_thread_cannot_start_starts_it_later(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", staticmethod(raising(RuntimeError("no more threads"))))
        with pytest.raises(RuntimeError):
            appended(log, b"x")
    writer = log.writer
    assert (log.writer.last_lsn, writer._admitted, writer._claimed) == (0, 0, 0)
    lsn = appended(log, b"y")
    until(lambda: log.writer.durable_lsn == lsn)
    assert [payload for _, _, payload in bench.open()[1]] == [b"y"]


def test_many_writers_and_a_rolling_log(bench: Any) -> None:
    log, _ = bench.open(segment_bytes=2048, queue_bytes=4096)
    lsns: list[int] = []

    def write(number: int) -> None:
        for step in range(40):
            lsn = appended(log, bytes([number, step]) * (1 + step))
            log.wait(lsn)
            assert log.writer.durable_lsn >= lsn
            lsns.append(lsn)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert sorted(lsns) == list(range(1, WRITERS * 40 + 1))
    records = bench.open()[1]
    for number in range(WRITERS):
        mine = [payload for _, _, payload in records if payload[0] == number]
        assert mine == [bytes([number, step]) * (1 + step) for step in range(40)]

"""The log as its callers see it."""

import errno
import logging
import struct
import sys
import threading
import time
from collections.abc import Callable
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pytest

from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.fs.memory import MemoryWritableFile
from nyala.engine.wal import writer
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.reader import CleanStop
from nyala.schemas.errors import CorruptionError, InternalError, StorageFullError, UnavailableError
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.wal.appending import append_record

STORE = bytes(range(16))


def put(log: WriteAheadLog, *payloads: bytes) -> int:
    """Append each payload as a group of its own; return the last lsn."""
    lsn = 0
    for payload in payloads:
        log.writer.reserve(len(payload))
        lsn = append_record(log, 1000 + log.writer.last_lsn + 1, [payload])
        log.wait(lsn)
    return lsn


class Gate:
    """Holds every sync of a written file until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()
        real = MemoryWritableFile.sync

        def sync(file: MemoryWritableFile) -> None:
            self.reached.set()
            assert self.opened.wait(10)
            real(file)

        monkeypatch.setattr(MemoryWritableFile, "sync", sync)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start ``work``; the list gets its result or its error."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_what_is_appended_comes_back_in_order(bench: Any) -> None:
    log, records = bench.open()
    assert (records, log.first_lsn, log.writer.last_lsn) == ([], 1, 0)
    assert put(log, b"one", b"", b"three" * 30) == 3
    log.writer.reserve(20)
    lsn = append_record(log, 2**64 - 1, [b"in ", bytearray(b"many "), memoryview(b"pieces"), np.array([1], "<u2"), b""])
    log.wait(lsn)
    stop = log.close()
    again, records = bench.open(expect=stop)
    assert records == [
        (1, 1001, b"one"),
        (2, 1002, b""),
        (3, 1003, b"three" * 30),
        (4, 2**64 - 1, b"in many pieces\x01\0"),
    ]
    assert (again.first_lsn, again.writer.last_lsn, again.writer.durable_lsn) == (1, 4, 4)
    assert put(again, b"five") == 5
    again.close()
    assert [record[2] for record in bench.open()[1]][3:] == [b"in many pieces\x01\0", b"five"]


def test_a_record_larger_than_a_segment_gets_its_own(bench: Any) -> None:
    log, _ = bench.open(segment_bytes=512)
    put(log, b"small", b"x" * 5000, b"small again")
    log.close()
    sizes = log.sizes()
    assert sizes[0] == 512
    assert sizes[1] > 5000
    assert [len(payload) for _, _, payload in bench.open()[1]] == [5, 5000, 11]


def test_it_works_on_a_real_disk(tmp_path: Any) -> None:
    fs = LocalFileSystem(tmp_path)
    log = WriteAheadLog.open(fs, "deep/wal", STORE, WalOptions(segment_bytes=8192))
    assert list(log.replay()) == []
    put(log, *[bytes([number]) * 1000 for number in range(30)])
    stop = log.close()
    assert stop is not None
    log = WriteAheadLog.open(fs, "deep/wal", STORE, expect=stop)
    assert [bytes(record.payload) for record in chain.from_iterable(log.replay())] == [
        bytes([number]) * 1000 for number in range(30)
    ]
    assert log.free_before(31) > 0
    log.close()


def test_payloads_are_aligned_for_arrow(bench: Any) -> None:
    log, _ = bench.open()
    put(log, b"odd", b"even")
    log.close()
    log = WriteAheadLog.open(bench.disk, "wal", STORE)
    whole = np.frombuffer(bench.disk.open("wal/0000000001.wal").view(), np.uint8).tobytes()
    for record in chain.from_iterable(log.replay()):
        assert whole.index(bytes(record.payload)) % 8 == 0


def test_one_sync_serves_all_who_wait(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open()
    put(log, b"first")
    gate = Gate(monkeypatch)
    for _ in range(20):
        append_record(log, 1, [b"x"])
        gate.reached.wait(10)
    groups = log.stats().groups
    assert log.writer.durable_lsn == 1
    gate.opened.set()
    log.wait(21)
    assert log.stats().groups - groups <= 2
    log.close()
    assert len(bench.open()[1]) == 21


def test_sixteen_threads_share_syncs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryWritableFile.sync
    # A sync of memory takes no time: each thread could be done before the next one starts.
    monkeypatch.setattr(MemoryWritableFile, "sync", lambda file: (time.sleep(0.002), real(file))[1])
    log, _ = bench.open(segment_bytes=1 << 20, queue_bytes=1 << 20)
    threads = [in_thread(lambda: put(log, *[b"x" * 50] * 50)) for _ in range(16)]
    for thread, outcome in threads:
        thread.join()
        assert isinstance(outcome[0], int), outcome
    assert log.writer.last_lsn == log.writer.durable_lsn == 800
    assert log.stats().groups < 800
    log.close()
    assert [lsn for lsn, _, _ in bench.open()[1]] == list(range(1, 801))


def test_a_group_has_a_bound(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GROUP_RECORDS_MAX", 3)
    log, _ = bench.open()
    put(log, b"first")
    gate = Gate(monkeypatch)
    for number in range(20):
        append_record(log, 1, [bytes([number])])
    gate.opened.set()
    log.wait(21)
    assert log.stats().groups >= 1 + 7
    log.close()
    assert [payload for _, _, payload in bench.open()[1]] == [b"first", *(bytes([number]) for number in range(20))]


def test_written_comes_before_durable(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open()
    put(log, b"first")
    gate = Gate(monkeypatch)
    lsn = append_record(log, 1, [b"second"])
    log.writer.wait_written(lsn)
    assert log.writer.durable_lsn == 1
    waiter, outcome = in_thread(lambda: log.wait(lsn))
    time.sleep(0.02)
    assert waiter.is_alive()
    gate.opened.set()
    waiter.join()
    assert outcome == [None]


def test_a_full_queue_holds_reserve_back(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open(segment_bytes=100_000, queue_bytes=1000)
    put(log, b"first")
    gate = Gate(monkeypatch)
    log.writer.reserve(800)
    append_record(log, 1, [b"x" * 800])
    waiter, outcome = in_thread(lambda: put(log, b"y" * 800))
    time.sleep(0.02)
    assert waiter.is_alive()
    assert log.writer.last_lsn == 2
    gate.opened.set()
    waiter.join()
    assert outcome == [3]


def test_a_record_larger_than_the_queue_goes_alone(bench: Any) -> None:
    log, _ = bench.open(queue_bytes=100)
    assert put(log, b"x" * 5000, b"y" * 5000) == 2


def test_what_was_released_makes_room(bench: Any) -> None:
    log, _ = bench.open(queue_bytes=1000)
    log.writer.reserve(800)
    log.writer.release()
    log.writer.release()
    thread, outcome = in_thread(lambda: put(log, b"x" * 800))
    thread.join(5)
    assert outcome == [1]


def test_a_second_reserve_replaces_the_first(bench: Any) -> None:
    log, _ = bench.open(queue_bytes=1000)
    for _ in range(50):
        log.writer.reserve(800)
    assert put(log, b"x" * 800) == 1


def test_append_takes_what_was_not_reserved(bench: Any) -> None:
    log, _ = bench.open(segment_bytes=256)
    log.writer.reserve(10)
    lsn = append_record(log, 1, [b"x" * 5000])
    append_record(log, 1, [b"y"])
    log.wait(lsn + 1)
    log.close()
    assert [len(payload) for _, _, payload in bench.open()[1]] == [5000, 1]


def test_every_claim_is_given_back(bench: Any) -> None:
    """After all is durable nothing is held: otherwise a log would fill up with what is long gone."""
    log, _ = bench.open(segment_bytes=700, queue_bytes=2000)
    random = Random(1)
    for _ in range(300):
        log.writer.reserve(random.randrange(1500))
        if random.random() < 0.8:
            append_record(log, 1, [b"x" * random.randrange(1500)])
        else:
            log.writer.release()
    log.wait(log.writer.last_lsn)
    log.writer.release()
    inner = log._writer
    assert (inner._admitted, inner._claimed, inner._reserved) == (0, 0, {})


def test_a_full_disk_refuses_before_anything_happened(bench: Any) -> None:
    bench.disk.capacity_bytes = 3000
    log, _ = bench.open(segment_bytes=1024)
    with pytest.raises(StorageFullError):
        put(log, *[b"x" * 300] * 100)
    stored = log.writer.last_lsn
    assert stored == log.writer.durable_lsn == 4
    assert log.writer.failed is None
    with pytest.raises(StorageFullError):
        append_record(log, 1, [b"x" * 5000])
    assert log.writer.last_lsn == stored
    assert put(log, b"fits") == stored + 1
    bench.disk.capacity_bytes = 1 << 20
    assert put(log, b"x" * 400) == stored + 2
    log.close()
    assert len(bench.open()[1]) == stored + 2


def test_a_failed_sync_stops_the_log_for_good() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=frozenset({"sync"}), nth=3, error=errno.EIO)])
    log = WriteAheadLog.open(fs, "wal", STORE)
    assert list(log.replay()) == []
    assert put(log, b"durable") == 1
    log.writer.reserve(5)
    lsn = append_record(log, 1, [b"lost?"])
    with pytest.raises(
        UnavailableError, match=r"the log cannot be written: .*EIO.*; reads continue; restart to recover"
    ):
        log.wait(lsn)
    log.wait(1)
    assert isinstance(log.writer.failed, UnavailableError)
    for call in (lambda: log.writer.reserve(1), lambda: append_record(log, 1, [b"x"]), lambda: log.wait(lsn)):
        with pytest.raises(UnavailableError, match="restart to recover"):
            call()
    calls = fs.calls
    assert log.close() is None
    assert fs.calls == calls


def test_a_failure_wakes_everybody(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = bench.open(segment_bytes=100_000, queue_bytes=1000)
    put(log, b"first")
    gate = Gate(monkeypatch)
    log.writer.reserve(800)
    lsn = append_record(log, 1, [b"x" * 800])
    log.writer.wait_written(lsn)
    waits = [
        in_thread(lambda: log.wait(lsn)),
        in_thread(lambda: log.writer.reserve(800)),
        in_thread(lambda: log.writer.wait_written(lsn + 1)),
    ]
    bench.disk.crash_at = bench.disk.operations + 1
    gate.opened.set()
    for thread, outcome in waits:
        thread.join(5)
        assert isinstance(outcome[0], UnavailableError)


def test_a_closed_log_takes_nothing(bench: Any) -> None:
    log, _ = bench.open()
    put(log, b"one")
    stop = log.close()
    assert log.close() == stop
    for call in (lambda: log.writer.reserve(1), lambda: append_record(log, 1, [b"x"])):
        with pytest.raises(UnavailableError, match="closed"):
            call()


def test_close_writes_what_was_appended(bench: Any) -> None:
    log, _ = bench.open()
    for _ in range(50):
        append_record(log, 1, [b"x"])
    stop = log.close()
    assert stop is not None
    assert stop.last_lsn == 50
    assert len(bench.open(expect=stop)[1]) == 50


def test_close_leaves_no_unused_segment(bench: Any) -> None:
    log, _ = bench.open()
    log.writer.reserve(100)
    assert bench.disk.list("wal") == ["0000000001.wal"]
    assert log.close() == CleanStop(0, 0)
    assert bench.disk.list("wal") == []


def test_a_log_is_replayed_first_and_once(bench: Any) -> None:
    log = WriteAheadLog.open(bench.disk, "wal", STORE)
    with pytest.raises(InternalError, match="replayed"):
        append_record(log, 1, [b"x"])
    assert log.close() is None
    assert list(log.replay()) == []
    with pytest.raises(InternalError, match="once"):
        list(log.replay())


def test_a_timestamp_that_does_not_fit_is_refused(bench: Any) -> None:
    log, _ = bench.open()
    for timestamp in (-1, 2**64):
        with pytest.raises(struct.error):
            append_record(log, timestamp, [b"x"])
    assert log.writer.failed is None
    assert put(log, b"x") == 1


def test_free_before_deletes_whole_segments_only(bench: Any) -> None:
    log, _ = bench.open(segment_bytes=512)
    put(log, *[b"x" * 100] * 12)
    segments = log._segments.all()
    assert len(segments) > 3
    assert log.free_before(segments[1].first_lsn) == 512
    assert log.first_lsn == segments[1].first_lsn
    assert log.free_before(segments[2].last_lsn) == 512
    assert log.first_lsn == segments[2].first_lsn
    assert log.free_before(1) == 0
    put(log, b"more")
    assert log.free_before(10**9) == sum(segment.size_bytes for segment in segments[2:-1])
    assert log.first_lsn <= log.writer.last_lsn
    assert log.stats().segment_count == len(log.sizes()) == 1
    stop = log.close()
    again, records = bench.open(expect=stop)
    assert [lsn for lsn, _, _ in records] == list(range(again.first_lsn, 14))


def test_the_last_segment_stays_while_the_next_is_unborn(bench: Any) -> None:
    """It holds the link: without it the log would begin again at 1."""
    log, _ = bench.open()
    put(log, b"x", b"y")
    log.close()
    log, _ = bench.open()
    log.writer.reserve(10)
    assert log.free_before(100) == 0
    bench.disk.crash_at = bench.disk.operations + 1
    append_record(log, 1, [b"z"])
    with pytest.raises(UnavailableError):
        log.wait(3)
    bench.disk.crash_at = None
    again, records = bench.open()
    assert [lsn for lsn, _, _ in records] == [1, 2]
    assert put(again, b"z") == 3


def test_a_delete_that_fails_says_so_and_harms_nothing() -> None:
    rule = FaultRule(calls=frozenset({"unlink"}), error=errno.EIO)
    log = WriteAheadLog.open(FaultyFileSystem(MemoryFileSystem(), [rule]), "wal", STORE, WalOptions(512))
    assert list(log.replay()) == []
    put(log, *[b"x" * 100] * 12)
    with pytest.raises(UnavailableError, match="cannot be deleted"):
        log.free_before(10)
    assert log.first_lsn == 1
    assert log.free_before(10) > 0
    assert log.close() is not None


def test_a_torn_tail_is_counted_and_said(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    log, _ = bench.open()
    put(log, b"kept", b"torn" * 10)
    log.close()
    torn = bench.content()
    torn[200] ^= 1
    bench.replace(1, bytes(torn))
    with caplog.at_level(logging.WARNING):
        log, records = bench.open()
    assert [payload for _, _, payload in records] == [b"kept"]
    assert log.torn_bytes == log.stats().torn_bytes == 40 + 16 + 40
    assert "torn tail of 96 bytes after lsn 1" in caplog.text


def test_a_cut_log_that_was_not_written_has_no_clean_stop(bench: Any) -> None:
    log, _ = bench.open()
    put(log, b"kept", b"torn")
    log.close()
    torn = bench.content()
    torn[180] ^= 1
    bench.replace(1, bytes(torn))
    log, _ = bench.open()
    assert log.close() is None
    log, _ = bench.open()
    assert put(log, b"after") == 2
    stop = log.close()
    assert stop is not None
    assert [payload for _, _, payload in bench.open(expect=stop)[1]] == [b"kept", b"after"]


def test_a_log_that_lost_what_was_durable_is_corrupt(bench: Any) -> None:
    log, _ = bench.open()
    put(log, b"one", b"two")
    log.close()
    bench.open(reached=2)
    with pytest.raises(CorruptionError, match="ends at lsn 2, but lsn 3 was durable"):
        bench.open(reached=3)


def test_concurrent_writers_rolls_and_frees() -> None:
    """Every claim finds its room while segments roll and go; nothing is lost or reordered."""
    disk = MemoryFileSystem()
    log = WriteAheadLog.open(disk, "wal", STORE, WalOptions(segment_bytes=2000, queue_bytes=3000))
    assert list(log.replay()) == []
    sent: list[list[tuple[int, bytes]]] = [[] for _ in range(6)]
    deadline = time.monotonic() + 2
    interval = sys.getswitchinterval()

    def write(number: int) -> None:
        random = Random(number)
        while time.monotonic() < deadline:
            payload = random.randbytes(random.choice([3, 100, 700, 2500]))
            log.writer.reserve(len(payload) + random.randrange(300))
            if random.random() < 0.1:
                log.writer.release()
                continue
            lsn = append_record(log, number, [payload[:50], payload[50:]])
            sent[number].append((lsn, payload))
            if random.random() < 0.5:
                log.wait(lsn)
                assert log.writer.durable_lsn >= lsn

    sys.setswitchinterval(1e-5)
    try:
        threads = [in_thread(lambda number=number: write(number)) for number in range(6)]
        freed = 0
        while time.monotonic() < deadline:
            freed += log.free_before(log.writer.durable_lsn // 2)
        for thread, outcome in threads:
            thread.join()
            assert outcome == [None]
    finally:
        sys.setswitchinterval(interval)
    first, stop = log.first_lsn, log.close()
    assert stop is not None
    assert freed > 0
    expected = {lsn: (number, payload) for number, mine in enumerate(sent) for lsn, payload in mine}
    assert sorted(expected) == list(range(1, stop.last_lsn + 1))
    assert all(mine == sorted(mine, key=lambda entry: entry[0]) for mine in sent)
    again = WriteAheadLog.open(disk, "wal", STORE, expect=stop)
    for lsn, timestamp, payload in chain.from_iterable(again.replay()):
        assert (timestamp, bytes(payload)) == expected[lsn]
    assert again.first_lsn == first
    assert again.writer.last_lsn == stop.last_lsn

"""Replay: what it flushes on the way may claim no more than was replayed, whatever other files hold already."""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.record.logged_rows import LoggedRows
from nyala.engine.record.parts import Parts
from nyala.engine.recovery import log_replay, recovery
from nyala.engine.store import Store
from nyala.engine.wal.reader import LogReader
from nyala.schemas.errors import CorruptionError
from nyala.schemas.protocol.service import MaintenanceKind
from tests.dose import by_night
from tests.doubles.clock import ManualClock
from tests.doubles.faulty import FaultRule, FaultyFileSystem
from tests.engine.subject import Subject


def reopened(subject: Subject, flush_bytes: int, flush_deltas_bytes: int = 1 << 30) -> Store:
    """Open what a crash leaves, flushing in the replay as soon as more bytes are in memory."""
    update = {"flush_bytes": flush_bytes, "flush_deltas_bytes": flush_deltas_bytes}
    subject.options = subject.options.model_copy(update=update)
    subject.crash(Random(1))
    return subject.store


def test_a_flush_in_the_replay_keeps_the_rows_that_come_later_in_the_log() -> None:
    subject = Subject()
    subject.upsert(1, 2)
    subject.flush()
    for key in range(10, 20):
        subject.upsert(key, v=key)
    subject.upsert(1, v=100)
    subject.flush_deltas()  # the files now hold the end of the log, but not the rows before it
    reopened(subject, flush_bytes=1)
    assert len(subject.tablet.version.disk) > 2, "the replay flushed"
    subject.check()
    subject.restart()
    subject.close()


def test_deltas_are_flushed_in_the_replay() -> None:
    subject = Subject()
    subject.upsert(*range(1000))
    subject.flush()
    for value in range(20):
        subject.upsert(*range(1000), v=value, s="x" * 20)
    (rowset,) = subject.tablet.version.disk
    held = rowset.deltas.memory_bytes
    reopened(subject, 1 << 30, held // 4)
    (rowset,) = subject.tablet.version.disk
    assert rowset.deltas.memory_bytes < held // 2 and rowset.deltas.stores.redo
    subject.check()
    subject.restart()
    subject.close()


def test_a_flush_in_the_replay_keeps_the_other_changes_of_its_commit() -> None:
    subject = Subject()
    subject.upsert(1, 2, v=1)
    subject.upsert(*range(2, 3000), v=2)  # one commit: rows from 3 on are stored, row 2 is updated
    reopened(subject, flush_bytes=60_000)
    assert subject.tablet.version.disk, "the replay flushed"
    subject.check()
    subject.restart()
    subject.close()


@pytest.mark.parametrize("seed", by_night(range(8), range(3)))
def test_replays_with_flushes_after_any_history(seed: int) -> None:
    random = Random(seed)
    subject = Subject()
    for _ in range(12):
        subject.some_writes(random, range(12), commits=2)
        random.choice([subject.flush, subject.flush_deltas, lambda: 0])()
        if random.random() < 0.3:
            reopened(subject, random.choice([1, 1 << 30]), random.choice([1, 1 << 30]))
            subject.check()
    subject.close()


def test_changes_that_are_in_files_are_neither_decoded_nor_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(wal_segment_bytes=1 << 16)
    decoded: list[int] = []
    rows_of = log_replay.rows_of

    def counted(changes: Parts) -> list[LoggedRows]:
        forms = rows_of(changes)
        decoded.extend(map(len, forms))
        return forms

    def nothing_is_decoded(end: Callable[[], object]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(log_replay, "rows_of", counted)
            patched.setattr(log_replay, "replay", lambda *_: pytest.fail("changes that files hold are looked up"))
            end()
        assert decoded == []

    subject.upsert(1, 2)
    subject.flush()
    nothing_is_decoded(lambda: subject.crash(Random(1)))
    subject.upsert(2, 3, v=1)
    subject.delete(1)
    subject.flush_deltas()
    subject.flush()
    nothing_is_decoded(subject.restart)
    subject.upsert(1, 4, v=2)
    subject.flush()  # of new rows: the change of row 1 is in memory only
    subject.upsert(5)
    subject.flush()
    with monkeypatch.context() as patched:
        patched.setattr(log_replay, "rows_of", counted)
        subject.crash(Random(1))
    assert sum(decoded) == 3, "the change of row 1, and what came with it and after it"
    subject.close()


@pytest.mark.parametrize("seed", by_night(range(10), range(3)))
def test_positions_up_to_which_files_hold_all_after_any_history(seed: int) -> None:
    random = Random(seed)
    clock = ManualClock(1_700_000_000_000_000)
    options: dict[str, Any] = {"direct_load_bytes": random.choice([1, 1 << 30]), "direct_load_unsorted_bytes": 1 << 30}
    subject = Subject(clock=clock, wal_segment_bytes=1 << 16, table_options={"history_max_age_seconds": 5}, **options)
    for _ in range(20):
        subject.some_writes(random, range(12), commits=random.randint(0, 2))
        subject.store.maintain("t", random.choice(list(MaintenanceKind)))
        if random.random() < 0.2:
            clock.advance(20_000_000)
        subject.history = [(subject.store.now(), subject.state)]
        if random.random() < 0.5:
            subject.crash(random)
        elif random.random() < 0.3:
            subject.restart()
        subject.check()
    subject.close()


def test_what_is_read_again_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is looked through first, then it is replayed. Segments but the last are read again: a disk that decays
    in between changes no row."""
    subject = Subject(wal_segment_bytes=1 << 12)
    for key in range(60):
        subject.upsert(key, s="x" * 50)
    start = LogReader._start

    def decayed(reader: LogReader, path: str, size: int) -> memoryview:
        content = bytearray(start(reader, path, size))
        content[-40] ^= 1
        return memoryview(content)

    with monkeypatch.context() as patched:
        patched.setattr(LogReader, "_start", decayed)
        with pytest.raises(CorruptionError, match="sound a moment ago"):
            subject.crash(Random(2))


def test_a_store_on_a_full_disk_can_be_opened_and_read() -> None:
    disk = MemoryFileSystem()
    subject = Subject(disk)
    for value in range(5):
        subject.upsert(*range(value, 50), v=value)
    image = disk.crash_image(Random(3))
    subject.store.close()
    full = FaultRule(calls=frozenset({"create"}), path="tablets/*", error=errno.ENOSPC, sticky=True)
    after = Subject(FaultyFileSystem(image, [full]), flush_bytes=1, flush_deltas_bytes=1)
    after.state, after.history = subject.state, subject.history
    after.check()
    after.store.close()
    again = Subject(image)
    again.state, again.history = subject.state, subject.history
    again.close()


def test_a_log_that_starts_too_late_is_corruption() -> None:
    subject = Subject()
    subject.upsert(1)
    manifest = subject.environment.manifest.current
    with pytest.raises(CorruptionError, match="records from 1 are needed"):
        recovery.check_log(2, manifest)
    subject.store.close()

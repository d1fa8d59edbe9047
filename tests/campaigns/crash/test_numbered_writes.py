"""The power fails at every call while numbered writes come, and while the log that holds their answers is freed."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from nyala.engine.fs.memory import MemoryFileSystem, PowerFailure
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand, WriteResult
from tests.dose import dose
from tests.engine.subject import Subject, batch

WRITES = 12
INSERT = WriteCommand(table="t", op=Operation.INSERT, writer="w")


def send(subject: Subject, seq: int) -> WriteResult:
    """Insert three rows, of which one is the last of the write before: so every answer has an error but the first."""
    return subject.store.write(INSERT, batch([(2 * seq + row, seq, "x" * 300) for row in range(3)]), seq)


def workload(subject: Subject, answers: dict[int, WriteResult]) -> None:
    for seq in range(WRITES):
        answers[seq] = send(subject, seq)
        if seq % 4 == 3:
            subject.flush()


def test_every_numbered_write_is_applied_once_wherever_the_power_fails() -> None:
    disk = MemoryFileSystem()
    subject = Subject(disk, wal_segment_bytes=1 << 11)
    start, expected = disk.operations, {}
    workload(subject, expected)
    calls = disk.operations - start
    assert subject.store._wal.first_lsn > WRITES // 2, "the log of the first writes is gone"
    subject.store.close()
    rows = sorted((key, max(0, (key - 1) // 2), "x" * 300) for key in range(2 * WRITES + 1))
    for call in range(1, calls + 1, dose(4, 1)):
        disk = MemoryFileSystem()
        subject = Subject(disk, wal_segment_bytes=1 << 11)
        disk.crash_at = disk.operations + call
        answers: dict[int, WriteResult] = {}
        with suppress(PowerFailure, StoreError):
            workload(subject, answers)
        for seed in range(2):
            after = Subject(disk.crash_image(Random(call * 10 + seed)), wal_segment_bytes=1 << 11)
            for seq in range(WRITES):
                again = send(after, seq)
                assert again == answers.get(seq, again), f"call {call}: write {seq} got another answer"
                assert (again.applied, again.error_count) == ((3, 0) if seq == 0 else (2, 1)), f"call {call}, {seq}"
            assert after.scan(ordered=True) == rows
            after.store.close()
        with suppress(PowerFailure, StoreError):
            subject.store.close()

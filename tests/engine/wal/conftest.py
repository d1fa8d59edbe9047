"""A small log on a disk in memory, and what tests do with it again and again."""

from collections.abc import Iterator
from itertools import chain

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.wal.log import WriteAheadLog
from nyala.engine.wal.options import WalOptions
from nyala.engine.wal.reader import CleanStop

STORE = bytes(range(16))


class LogBench:
    """Opens logs on ``disk`` and closes what a test leaves open."""

    def __init__(self, disk: MemoryFileSystem) -> None:
        self.disk = disk
        self.logs: list[WriteAheadLog] = []

    def open(
        self, expect: CleanStop | None = None, segment_bytes: int = 1024, queue_bytes: int = 4096, reached: int = 0
    ) -> tuple[WriteAheadLog, list[tuple[int, int, bytes]]]:
        """Return the log and all its records, as (lsn, timestamp, payload)."""
        options = WalOptions(segment_bytes, queue_bytes)
        log = WriteAheadLog.open(self.disk, "wal", STORE, options, expect, reached)
        self.logs.append(log)
        return log, [(lsn, timestamp, bytes(payload)) for lsn, timestamp, payload in chain.from_iterable(log.replay())]

    def content(self, number: int = 1) -> bytearray:
        return bytearray(self.disk.open(f"wal/{number:010d}.wal").view())

    def replace(self, number: int, content: bytes) -> None:
        """Put other bytes in the place of a segment."""
        path = f"wal/{number:010d}.wal"
        if self.disk.exists(path):
            self.disk.unlink(path)
        file = self.disk.create(path)
        file.append(content)
        file.close()


@pytest.fixture
def bench() -> Iterator[LogBench]:
    bench = LogBench(MemoryFileSystem())
    yield bench
    for log in bench.logs:
        log.close()

"""The interface of the write-ahead log of a store, wherever the log is kept.

Open the log, replay it to the end in one thread, then append by its ``writer`` from any number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...schemas.errors import InternalError
from ...schemas.store.metrics import Histogram
from .reader import CleanStop
from .records import LogRecords
from .writer import LogWriter


@dataclass(frozen=True, slots=True)
class WalStats:
    """Counts of the log: records, groups (each one sync) and bytes since it was opened."""

    segment_count: int
    size_bytes: int
    first_lsn: int
    last_lsn: int
    durable_lsn: int
    records: int
    groups: int
    bytes_written: int
    torn_bytes: int
    sync_seconds: Histogram


class StoreLog(ABC):
    """The write-ahead log of a store, wherever it is kept. See the module's text."""

    _writer: LogWriter[Any] | None = None
    """Made at the end of the replay."""
    _is_replaying = False
    """From the first record that is replayed on."""
    torn_bytes = 0
    """What was cut off behind the last group when the log was opened."""

    @property
    def overdue_lsn(self) -> int:
        """Records before this lsn keep so much of the log that whatever needs them is worth a flush; 0: none do."""
        return 0

    @property
    def makers(self) -> Mapping[int, str]:
        """Who made files in the reigns of which ``peek`` has read a record, and in that of this process; see the
        manifest's ``makers``. None in a directory."""
        return {}

    @property
    @abstractmethod
    def first_lsn(self) -> int:
        """The smallest lsn still in the log; last_lsn + 1 if it has none."""

    @abstractmethod
    def peek(self) -> Iterator[LogRecords]:
        """Yield every record in order, to the end, before the log is replayed. Raises as ``replay`` does.

        The records may not be durable yet: write nothing to files that depends on them.
        """

    @abstractmethod
    def replay(self) -> Iterator[LogRecords]:
        """Yield every record in order; at the end the log is ready to append.  Call once, and read to the end.

        A payload is a view, valid as long as it is referenced.  Raises CorruptionError and UnavailableError.
        """

    @abstractmethod
    def can_free_before(self, lsn: int) -> bool:
        """Whether ``free_before`` would free anything."""

    @abstractmethod
    def free_before(self, lsn: int) -> int:
        """Delete what has only records < ``lsn``, which the manifest no longer needs; return the bytes freed."""

    @abstractmethod
    def records_up_to(self, lsn: int) -> Iterator[LogRecords]:
        """Yield the records up to ``lsn``, the last one of a durable group, while others append. Nobody may free the
        log until it ends. Raises as ``replay`` does."""

    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """Return the bytes of each segment or slot that is kept."""

    @abstractmethod
    def close(self) -> CleanStop | None:
        """Make all appended records durable, and stop. Closing again returns the same.

        Returns what the next ``open`` should expect; None if nothing may be expected.
        """

    def stats(self) -> WalStats:
        sizes, writer = self.sizes(), self.writer
        return WalStats(
            segment_count=len(sizes),
            size_bytes=sum(sizes),
            first_lsn=self.first_lsn,
            last_lsn=writer.last_lsn,
            durable_lsn=writer.durable_lsn,
            records=writer.counters.records,
            groups=writer.counters.groups,
            bytes_written=writer.counters.bytes_written,
            torn_bytes=self.torn_bytes,
            sync_seconds=writer.counters.sync_seconds,
        )

    @property
    def writer(self) -> LogWriter[Any]:
        """Appends records, from the end of the replay on. Raises InternalError before."""
        if self._writer is None:
            raise InternalError("a log must be replayed to its end before it is used")
        return self._writer

    def wait(self, lsn: int) -> None:
        """Wait as the writer does. During the replay this returns at once: replayed records are durable."""
        if self._writer or not self._is_replaying:
            self.writer.wait(lsn)

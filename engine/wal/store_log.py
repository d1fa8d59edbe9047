"""The interface of the write-ahead log of a store, wherever the log is kept.

Open the log, replay it to the end in one thread, then append from any number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...schemas.errors import InternalError, UnavailableError
from ...schemas.store.metrics import Histogram
from .group import Stamp
from .reader import CleanStop
from .records import LogRecords
from .turn import Awaited
from .writer import LogWriter

if TYPE_CHECKING:
    from ..fs.filesystem import BytesLike


@dataclass(frozen=True, slots=True)
class WalStats:
    """Counts of records, groups (each one sync) and bytes since the log was opened."""

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
    """See the module's text. What follows the replay is the same for every log: its writer does it."""

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
        sizes, writer = self.sizes(), self._ready
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
    def last_lsn(self) -> int:
        """The lsn of the last record appended."""
        return self._ready.last_lsn

    @property
    def durable_lsn(self) -> int:
        """The lsn up to which all records are durable."""
        return self._ready.durable_lsn

    @property
    def written_lsn(self) -> int:
        """The lsn up to which all records survive this process."""
        return self._ready.written_lsn

    @property
    def failed(self) -> UnavailableError | None:
        """Why the log can no longer be written, or None."""
        return self._writer.failed if self._writer else None

    def reserve(self, *sizes: int) -> None:
        """Reserve space in memory and on disk for this thread's next ``append``, of records of up to these ``sizes``.

        Waits while too many bytes wait for the disk: before it, take no lock that appenders need.
        Raises StorageFullError (nothing has happened; later calls may succeed) and UnavailableError.
        """
        self._ready.reserve(*sizes)

    def release(self) -> None:
        """Release an unused reservation; does nothing if there is none."""
        self._ready.release()

    def append(self, timestamp: int, payload: Iterable[BytesLike]) -> int:
        """Enqueue one record, the concatenation of these pieces, and return its lsn: 1, 2, 3, ...

        The pieces are not copied; leave them unchanged until the record is durable.  Raises only if ``reserve`` was not
        called for this size, or the log has failed or is closed; then the record is not in the log.
        """
        return self._ready.append([list(payload)], lambda _: [timestamp])

    def append_all(self, payloads: Sequence[Sequence[BytesLike]], stamp: Stamp, is_awaited_early: bool = False) -> int:
        """Enqueue records, each as pieces, without others in between; return the lsn of the first.

        ``stamp`` returns the timestamps for so many records. It is called when nothing can fail any more, under the
        lock that gives the lsns: both rise together. All of the records or none are in the log, though a crash may
        leave only the first of them. ``is_awaited_early``: somebody will wait for ``written``. Else like ``append``.
        """
        return self._ready.append(payloads, stamp, is_awaited_early)

    def append_at_once(self, payloads: Sequence[bytes], stamp: Stamp, is_awaited_early: bool = False) -> int | None:
        """Enqueue records that have no reservation, like ``append_all``; None if only ``reserve`` can make room."""
        return self._ready.append_at_once(payloads, stamp, is_awaited_early)

    def wait(self, lsn: int) -> None:
        """Wait until the record is durable; UnavailableError if that cannot be known, now or before a restart.

        During the replay this returns at once: replayed records are durable.
        """
        if self._writer or not self._is_replaying:
            self._ready.wait(lsn)

    def wait_for(self, awaited: Awaited) -> None:
        """Wait, like ``wait``, for a record that may not be in the log yet: the gatherer puts it there."""
        self._ready.wait_for(awaited)

    def written(self, lsn: int) -> None:
        """Wait until the record survives this process, though perhaps not a power failure."""
        self._ready.wait_written(lsn)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever ``written_lsn``, ``durable_lsn`` or ``failed`` has changed.

        The changing thread calls it, before callers of ``wait`` or ``written`` for that group continue. It must be
        quick and may not append. There is one listener.
        """
        self._ready.listener = listener

    def gather_by(self, gatherer: Callable[[], None]) -> None:
        """Call ``gatherer`` before a group is written, to append by ``append_at_once`` what waits to be part of it.

        The thread that writes the group calls it, and holds no lock. It may not wait for the log, nor for a lock that
        somebody may hold who does. What it raises stops the log. There is one gatherer.
        """
        self._ready.gatherer = gatherer

    def hurry(self) -> None:
        """Say that the log is about to be closed. One that does not answer then fails after its patience, so that those
        who wait for it end, and whoever waits for them."""
        self._ready.hurry()

    @property
    def waiting_count(self) -> int:
        """How many threads wait while another writes."""
        return len(self._ready.turns.waiting)

    @property
    def _ready(self) -> LogWriter[Any]:
        if self._writer is None:
            raise InternalError("a log must be replayed to its end before it is used")
        return self._writer

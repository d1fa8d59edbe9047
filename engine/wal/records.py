"""LogRecords: many consecutive records of the log, where they are in memory, without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..kernels.log import log_groups as kernels
from ..vectors.memory.memory import address_of, allocate
from .format import GroupHeader, MalformedError

_UNSIGNED = (1 << 64) - 1


class LogRecord(NamedTuple):
    """One record of the log. ``payload`` stays valid as long as it is referenced."""

    lsn: int
    timestamp: int
    payload: memoryview


@dataclass(frozen=True, slots=True, eq=False)
class LogRecords:
    """Records of the log with the lsns ``first_lsn``, ``first_lsn + 1`` and so on; as a sequence, each as a
    ``LogRecord``."""

    first_lsn: int
    timestamps: np.ndarray
    """int64, ascending: the clock never gives more."""
    addresses: np.ndarray
    """int64: where the payload of each starts."""
    lengths: np.ndarray
    """int64: its bytes."""
    memory: tuple[memoryview, ...]
    """What the payloads are in, which lives as long as this."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def __iter__(self) -> Iterator[LogRecord]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, place: int) -> LogRecord:
        """Return a record by its place from the first, or with a negative ``place`` from the end."""
        place = range(len(self))[place]
        payload = self._payload(int(self.addresses[place]), int(self.lengths[place]))
        return LogRecord(self.first_lsn + place, int(self.timestamps[place]) & _UNSIGNED, payload)

    @property
    def last_lsn(self) -> int:
        """``first_lsn - 1`` if there are none."""
        return self.first_lsn + len(self) - 1

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads."""
        return int(self.lengths.sum())

    def part(self, first: int, last: int) -> LogRecords:
        """Return the records at places [first, last)."""
        return LogRecords(
            self.first_lsn + first,
            self.timestamps[first:last],
            self.addresses[first:last],
            self.lengths[first:last],
            self.memory,
        )

    def _payload(self, address: int, length: int) -> memoryview:
        for memory in self.memory:
            offset = address - address_of(np.frombuffer(memory, np.uint8))
            if 0 <= offset <= len(memory) - length:
                return memory[offset : offset + length]
        raise AssertionError("every payload is in one of the memories")


def decode_records(payload: memoryview, header: GroupHeader) -> LogRecords:
    """Return the records of a group's checked payload. Raises MalformedError if they do not fill it exactly."""
    count = header.record_count
    timestamps, addresses, lengths = (allocate(count, np.int64) for _ in range(3))
    content = np.frombuffer(payload, np.uint8)
    columns = [address_of(column) for column in (timestamps, addresses, lengths)]
    outcome = -1 - int(kernels.read_records(address_of(content), len(content), count, *columns))
    if outcome == count:
        raise MalformedError("bytes follow the last record of the group")
    if outcome >= 0:
        raise MalformedError(f"record {header.first_lsn + outcome} extends past the end of its group")
    return LogRecords(header.first_lsn, timestamps, addresses, lengths, (payload,))


def gathered(parts: Iterable[LogRecords], payload_bytes: int) -> Iterator[LogRecords]:
    """Yield the records of the log of consecutive ``parts``, in parts of about so many bytes of payload, of one record
    at least.

    Groups of the log hold what was written at one moment: as little as a record each.
    """
    waiting: list[LogRecords] = []
    size = 0
    for part in parts:
        for piece in _pieces(part, payload_bytes):
            if waiting and size + piece.payload_bytes > payload_bytes:
                yield _joined(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += piece.payload_bytes
    if waiting:
        yield _joined(waiting)


def _pieces(records: LogRecords, payload_bytes: int) -> Iterator[LogRecords]:
    """Cut records into pieces of at most so many bytes, or of one record."""
    ends = np.cumsum(records.lengths)
    first = 0
    while first < len(records):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + payload_bytes, "right")), first + 1)
        yield records if last - first == len(records) else records.part(first, last)
        first = last


def _joined(parts: Sequence[LogRecords]) -> LogRecords:
    if len(parts) == 1:
        return parts[0]
    return LogRecords(
        parts[0].first_lsn,
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.addresses for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        tuple({id(memory): memory for part in parts for memory in part.memory}.values()),
    )

"""A group of records on its way from the queue to the disk, what it links to, and the count of those that arrived."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...schemas.store.metrics import Histogram
from .format import GROUP_HEADER_BYTES, EncodedRecord

Stamp = Callable[[int], Sequence[int]]
"""Returns the timestamps of so many records, ascending."""


@dataclass(slots=True)
class TakenGroup:
    """A group of records that a leader has taken to write to the log: ``size`` bytes, which gave up so many bytes of
    ``claims``."""

    records: list[EncodedRecord]
    first_lsn: int
    claims: int
    size: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of the log: what the first group to be written must link to, and where its segment goes."""

    store_uuid: bytes
    last_lsn: int
    crc: int
    next_segment: int
    tail_cut: bool


@dataclass(slots=True)
class WriterCounters:
    """Counts of the log's writer since the log was opened."""

    records: int = 0
    groups: int = 0
    bytes_written: int = 0
    sync_seconds: Histogram = field(default_factory=Histogram)

    def add(self, group: TakenGroup) -> None:
        """Count a group that is on the disk."""
        self.records += len(group.records)
        self.groups += 1
        self.bytes_written += group.size


def fitting(records: list[EncodedRecord], group_bytes: int) -> tuple[list[EncodedRecord], int]:
    """Return the first records whose claims fit in a group of the log, one at least if there are any, and their
    claims."""
    extents = [record.extent for record in records]
    claims = sum(extents) + GROUP_HEADER_BYTES * len(extents)
    if claims <= group_bytes:
        return records, claims
    up_to = list(accumulate(extent + GROUP_HEADER_BYTES for extent in extents))
    count = max(bisect_right(up_to, group_bytes), 1)
    return records[:count], up_to[count - 1]

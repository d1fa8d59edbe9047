"""Writes a log from the groups of another one: what a repair saves, or what a checkpoint takes along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..fs.filesystem import FileSystem
from .format import GROUP_HEADER_BYTES, SEGMENT_HEADER_BYTES, EncodedRecord, encode_group, seed_of
from .segments import NewSegment


@dataclass(slots=True)
class LogRewriter:
    """Writes groups of a log into new segments, one after the other, without a thread."""

    fs: FileSystem
    directory: str
    store_uuid: bytes
    number: int
    """That of the next segment."""
    segment_bytes: int
    """The size of a segment, unless a group needs more."""
    crc: int = 0
    """That of the last group."""
    segment: NewSegment | None = None

    def add(self, records: Sequence[EncodedRecord], first_lsn: int) -> None:
        """Write one group."""
        size = GROUP_HEADER_BYTES + sum(record.extent for record in records)
        segment = self.segment
        if segment is None or segment.free_bytes < size:
            segment = self._begin(size, first_lsn)
        offset = segment.take(size)
        pieces, self.crc = encode_group(records, seed_of(self.store_uuid, segment.number, offset), first_lsn, self.crc)
        segment.file.pwrite(offset, *pieces)

    def end(self, next_lsn: int) -> None:
        """Write the rest. A log without records has the next lsn in its header."""
        if self.segment is None:
            self._begin(0, next_lsn)
        self._close()

    def _close(self) -> None:
        if self.segment:
            self.segment.file.sync()
            self.segment.file.close()
            self.segment, self.number = None, self.number + 1

    def _begin(self, size: int, first_lsn: int) -> NewSegment:
        self._close()
        size = max(self.segment_bytes, SEGMENT_HEADER_BYTES + size)
        self.segment = NewSegment.create(self.fs, self.directory, self.number, size)
        self.segment.begin(self.store_uuid, first_lsn, self.crc, False)
        return self.segment

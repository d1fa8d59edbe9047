"""Reads the sound parts of a damaged log, and reports what is missing between them.

A group's first lsn and count are under a checksum that includes its position, so a sound group is recognised wherever
the damage before it ends; lsns show how many records are lost. A damaged group is lost as a whole: its records are
under one checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...schemas.errors import CorruptionError
from ..fs.filesystem import FileSystem
from ..fs.salvage import salvaged
from .format import (
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    MalformedError,
    SegmentHeader,
    decode_group_header,
    decode_payload,
    seed_of,
)
from .reader import Group, content_end, sound_header_after
from .records import decode_records
from .segments import segment_numbers, segment_path


@dataclass(frozen=True, slots=True)
class Hole:
    """Lost records of a damaged log, at least one, and their actual or expected position."""

    path: str
    offset: int
    why: str
    first_lsn: int
    last_lsn: int


class LogSalvage:
    """Reads a damaged log once, forwards: iterate ``found`` to the end, then use the rest."""

    def __init__(self, fs: FileSystem, directory: str, store_uuid: bytes, needed_from: int, reached: int) -> None:
        """The log must have the records from ``needed_from`` to ``reached``, as files prove."""
        self._fs = fs
        self._directory = directory
        self._store_uuid = store_uuid
        self._needed_from = needed_from
        self._reached = reached
        self._next: int | None = None
        self._crc: int | None = None
        self._fault: tuple[str, int, str] | None = None
        """The position of the first damage since the last sound group."""
        self.faults: list[str] = []
        """A line for each damage."""
        self.numbers = segment_numbers(fs, directory) if fs.exists(directory) else []

    @property
    def paths(self) -> list[str]:
        """The files of the log."""
        return [segment_path(self._directory, number) for number in self.numbers]

    @property
    def next_lsn(self) -> int:
        """The lsn of the next record to write; known after ``found`` ends."""
        assert self._next is not None, "what is found comes first"
        return self._next

    def found(self) -> Iterator[Group | Hole]:
        """Yield sound groups and the holes between them, in order of the lsns, which have no gaps.

        Raises:
            CorruptionError: sound groups do not follow each other: a segment is of another time, or of another store.
        """
        expected = self.numbers[0] if self.numbers else 0
        for number in self.numbers:
            for missing in range(expected, number):
                self._note(segment_path(self._directory, missing), 0, "this segment of the log is missing")
            yield from self._segment(number)
            expected = number + 1
        if self._next is None:
            self._next = self._needed_from
        if self._next <= self._reached:
            end = segment_path(self._directory, self.numbers[-1] if self.numbers else 1)
            self._fault = self._fault or (end, 0, "the log ends too early")
            yield self._hole(self._reached + 1)

    def _segment(self, number: int) -> Iterator[Group | Hole]:
        path = segment_path(self._directory, number)
        view = self._view(path)
        try:
            header = SegmentHeader.decode(bytes(view[:SEGMENT_HEADER_BYTES]))
            if header.store_uuid != self._store_uuid or header.number != number:
                raise CorruptionError(path, 0, "this segment belongs to another store or another place of the log")
            if header.size != len(view):
                self._note(path, len(view), f"the file should have {header.size} bytes")
            if self._next is None and header.first_lsn <= self._needed_from:
                self._next = header.first_lsn
            if header.previous_tail_cut and (header.first_lsn, header.previous_crc) == (self._next, self._crc):
                self._forget_tail()
        except MalformedError as bad:
            if content_end(view, 0) > 0 or number != self.numbers[-1]:
                self._note(path, 0, bad.why)
        offset = SEGMENT_HEADER_BYTES
        while offset < len(view):
            try:
                group = self._group(view, path, offset, number)
            except MalformedError as bad:
                if content_end(view, offset) == offset:
                    return
                self._note(path, offset, bad.why)
                following = sound_header_after(view, offset + bad.extent, self._store_uuid, number)
                if following is None:
                    return
                offset = following
                continue
            yield from self._met(group)
            offset += group.header.extent

    def _group(self, view: memoryview, path: str, offset: int, number: int) -> Group:
        seed = seed_of(self._store_uuid, number, offset)
        header: GroupHeader = decode_group_header(view, offset, seed)
        return Group(path, offset, header, decode_records(decode_payload(view, offset, header, seed), header))

    def _met(self, group: Group) -> Iterator[Group | Hole]:
        header = group.header
        if self._next is None:
            self._next = min(self._needed_from, header.first_lsn)
        follows = header.first_lsn > self._next or self._crc is None or header.previous_crc == self._crc
        if header.first_lsn < self._next or not (follows or self._fault):
            why = f"lsn {header.first_lsn} does not follow lsn {self._next - 1}: a segment is from another time"
            raise CorruptionError(group.path, group.offset, why)
        if header.first_lsn > self._next:
            self._fault = self._fault or (group.path, group.offset, "records before this are missing")
            yield self._hole(header.first_lsn)
        self._fault, self._next, self._crc = None, header.last_lsn + 1, header.crc
        yield group

    def _hole(self, following: int) -> Hole:
        assert self._fault is not None and self._next is not None, "a hole begins with a fault"
        hole = Hole(*self._fault, self._next, following - 1)
        self._next = following
        return hole

    def _note(self, path: str, offset: int, why: str) -> None:
        self._fault = self._fault or (path, offset, why)
        self.faults.append(f"{path} at byte {offset}: {why}")

    def _forget_tail(self) -> None:
        """Ignore remains of a crash after the last group, which the next segment's start has cut off: no damage."""
        if self._fault:
            self.faults.pop()
            self._fault = None

    def _view(self, path: str) -> memoryview:
        """Return what can be read of a file."""
        try:
            file = self._fs.open(path)
        except (CorruptionError, OSError) as error:  # nothing of an encrypted file can be read without its head
            offset, why = (error.offset, error.why) if isinstance(error, CorruptionError) else (0, error.strerror)
            self._note(path, offset, why or str(error))
            return memoryview(b"")
        try:
            found = salvaged(file)
        finally:
            file.close()
        for offset, why in found.faults:
            self._note(path, offset, why)
        return found.content

"""LoggedAnswers: the answers to numbered writes in many log records, without those that nobody keeps any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..kernels.log import log_parts as kernels
from ..record.parts import Parts
from ..vectors.memory.memory import address_of, allocate, allocate_zeroed

_WORDS = b'{"writer":"', b'","seq":', b',"answer":'


class AnswersOfWriter(NamedTuple):
    """The answers to the numbered writes of one writer in the log, as far as they are still kept."""

    table_id: int
    name: str
    first: int
    """The first of its notes."""
    floor: int
    """There were others, to numbers below this."""
    kept: list[tuple[int, int, bytes]]
    """Notes, the numbers of the writes and their answers as JSON, in the order of the log."""


@dataclass(frozen=True, slots=True, eq=False)
class LoggedAnswers:
    """Notes in the log with answers to numbered writes that are all written in the plain way: no name in them needs
    escapes."""

    notes: Parts
    names: np.ndarray
    name_bytes: np.ndarray
    numbers: np.ndarray
    answers: np.ndarray
    answer_bytes: np.ndarray

    @classmethod
    def of(cls, notes: Parts) -> LoggedAnswers | None:
        """Return the answers in notes, None if one is not written in the plain way."""
        count, words = len(notes), np.frombuffer(b"".join(_WORDS), np.uint8)
        bodies, sizes = np.ascontiguousarray(notes.bodies), np.ascontiguousarray(notes.sizes)
        columns = [allocate(count, np.int64) for _ in range(5)]
        where = address_of(bodies), address_of(sizes), count, address_of(words)
        kernels.read_answers(*where, *map(address_of, columns))
        return cls(notes, *columns) if columns[4].min(initial=0) >= 0 else None

    @property
    def largest_bytes(self) -> int:
        """The bytes of the longest answer."""
        return int(self.answer_bytes.max(initial=0))

    def by_writer(self, count: int) -> list[AnswersOfWriter]:
        """Return what remains if each writer keeps the answers to its ``count`` largest numbers, the writer whose last
        note is oldest first."""
        writers, firsts = self._numbered()
        order = np.lexsort((np.arange(len(writers)), self.numbers, writers))
        numbers, owners = self.numbers[order], writers[order]
        repeated = (numbers[1:] == numbers[:-1]) & (owners[1:] == owners[:-1])
        order = np.delete(order, np.flatnonzero(repeated) + 1)  # the first answer to a number stands
        bounds = np.searchsorted(writers[order], np.arange(len(firsts) + 1)).tolist()
        lasts = np.empty(len(firsts), np.int64)
        lasts[writers] = np.arange(len(writers))  # for repeated writers, numpy keeps the last
        return [
            self._of_writer(first, order[start:end], count)
            for _, first, start, end in sorted(
                zip(lasts.tolist(), firsts.tolist(), bounds[:-1], bounds[1:], strict=True)
            )
        ]

    def _numbered(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each note's writer, and the first note of each writer."""
        count, owners = len(self.names), np.ascontiguousarray(self.notes.owners)
        slots = allocate_zeroed(max(16, 1 << (2 * count - 1).bit_length()), np.uint64)
        writers, firsts = allocate(count, np.int64), allocate(count, np.int64)
        names = address_of(self.names), address_of(self.name_bytes), address_of(owners), count
        table = address_of(slots), len(slots)
        different = kernels.number_strings(*names, *table, address_of(writers), address_of(firsts))
        return writers, firsts[:different]

    def _of_writer(self, first: int, notes: np.ndarray, count: int) -> AnswersOfWriter:
        """Return what remains of one writer, whose ``notes`` are in the order of their numbers."""
        left = max(len(notes) - count, 0)
        floor = int(self.numbers[notes[left - 1]]) + 1 if left else 0
        kept = [
            (note, int(self.numbers[note]), self._bytes(self.answers, self.answer_bytes, note))
            for note in np.sort(notes[left:]).tolist()
        ]
        name = self._bytes(self.names, self.name_bytes, first).decode()
        return AnswersOfWriter(int(self.notes.owners[first]), name, first, floor, kept)

    def _bytes(self, starts: np.ndarray, sizes: np.ndarray, note: int) -> bytes:
        return self.notes.bytes_at(int(starts[note]), int(sizes[note]))


def runs_of_kind(notes: Parts) -> Iterator[tuple[int, Parts]]:
    """Yield each run of notes of one kind in the log with that kind, in order."""
    cuts = np.flatnonzero(np.diff(notes.kinds)) + 1
    bounds = [0, *cuts.tolist(), len(notes)]
    for first, last in pairwise(bounds):
        if first < last:
            yield int(notes.kinds[first]), notes.taken(np.arange(first, last))

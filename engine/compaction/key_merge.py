"""Iterates over DiskRowSets in key order, with a chunk of each in memory.

Each rowset is a stream of chunks of keys. In each round the bound is the smallest of the last keys in memory: all rows
up to it are known. A rowset whose first key is above the bound is not read yet. So where rowsets do not overlap, a
round is a chunk of one of them, in its own order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..codecs.codec import PAGE_ROWS
from ..delta.run import DeltaRun
from ..rowset.diskrowset import DiskRowSet
from ..vectors.keys.keys import (
    KeyVector,
    concat_keys,
    equal_at,
    key_bytes,
    keys_less_equal,
    merge_order,
    slice_keys,
    take_keys,
)
from ..vectors.vector import Vector

_COMPARED_ROWS_AT_ONCE = 1 << 16
"""Rows per rowset to compare at once, when keys are checked for duplicates."""
_CHUNKS_FETCHED = 8
"""Chunks of a far rowset that are fetched at once."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows [first, last) of an input of a merge: a rowset, given by its number."""

    source: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """Rows of the inputs of a merge in key order, above all earlier ones."""

    parts: Sequence[RowRange]
    order: np.ndarray | None
    """Positions in the concatenated parts; None if there is one part and all its rows are included."""
    keys: KeyVector
    unmixed_rows: int = 0
    """How many rows of the only part's rowset, from its first on, come before the rows of any other."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def page(self) -> RowRange | None:
        """The part, if the rows are exactly one page of a rowset."""
        part = self.parts[0]
        is_page = self.order is None and part.first % PAGE_ROWS == 0 and part.last - part.first == PAGE_ROWS
        return part if is_page else None

    def without(self, gone: np.ndarray) -> MergedRows:
        """Return the rows that are not ``gone`` (one bool a row)."""
        kept = np.flatnonzero(~gone)
        return MergedRows(self.parts, kept if self.order is None else self.order[kept], take_keys(self.keys, kept))

    def slice(self, first: int, last: int) -> MergedRows:
        """Return rows [first, last)."""
        if (first, last) == (0, len(self)):
            return self
        keys = slice_keys(self.keys, first, last)
        if self.order is not None:
            return MergedRows(self.parts, self.order[first:last], keys)
        (part,) = self.parts
        return MergedRows([RowRange(part.source, part.first + first, part.first + last)], None, keys)

    def arranged(self, cells: Vector) -> Vector:
        """Return cells of the concatenated parts in the order of the rows."""
        return cells if self.order is None else cells.take(self.order)

    def arranged_run(self, run: DeltaRun) -> DeltaRun:
        """Return deltas of the concatenated parts as deltas of the rows, without those of excluded rows."""
        if self.order is None:
            return run
        place = np.full(sum(part.last - part.first for part in self.parts), -1, np.int32)
        place[self.order] = np.arange(len(self.order), dtype=np.int32)
        rowids = place[run.rowids]
        sequence = np.argsort(rowids, kind="stable")
        sequence = sequence[np.searchsorted(rowids[sequence], 0) :]
        return DeltaRun(rowids[sequence], run.timestamps[sequence], run.values.take(sequence))

    def by_part(self) -> Iterator[tuple[RowRange, np.ndarray, np.ndarray]]:
        """Yield each part with the positions of its rows here, and their numbers in their rowset."""
        order = np.arange(len(self)) if self.order is None else self.order
        start = 0
        for part in self.parts:
            length = part.last - part.first
            positions = np.flatnonzero((order >= start) & (order < start + length))
            yield part, positions, order[positions] - start + part.first
            start += length


class _MergeStream:
    """The keys of one rowset that are in memory."""

    def __init__(self, source: int, rowset: DiskRowSet, chunk_rows: int) -> None:
        self.first_key = rowset.min_key
        self._source = source
        self._rowset = rowset
        self._chunk_rows = chunk_rows
        self._first = self._last = 0
        self._fetched = 0
        self._keys: KeyVector | None = None

    def open(self) -> bool:
        """Load keys if there are none; False at the end."""
        if self._first < self._last:
            return True
        if self._last == len(self._rowset):
            return False
        if self._rowset.is_far:
            self._fetch()
        # Chunks end where pages do, so that no page is decoded twice.
        self._first, self._last = self._last, min(self._last + self._chunk_rows, len(self._rowset))
        self._keys = self._rowset.keys_in(self._first, self._last)
        return True

    @property
    def next_key(self) -> bytes:
        """The key of the next row; the stream is open."""
        assert self._keys is not None, "the stream is open"
        return key_bytes(self._keys, 0)

    def rows_below(self, key: bytes | None) -> int:
        """Return how many of the coming rows are surely below ``key``, in whole mini-blocks; None is above all."""
        rows = len(self._rowset) if key is None else self._rowset.rows_below(key)
        return max(rows - self._first, 0)

    @property
    def last_key(self) -> bytes:
        assert self._keys is not None, "the stream is open"
        return key_bytes(self._keys, len(self._keys) - 1)

    def take_until(self, bound: bytes) -> tuple[RowRange, KeyVector]:
        """Remove and return the rows with keys up to ``bound``; there may be none."""
        assert self._keys is not None, "the stream is open"
        count = int(np.count_nonzero(keys_less_equal(self._keys, bound)))
        part, taken = RowRange(self._source, self._first, self._first + count), slice_keys(self._keys, 0, count)
        self._keys = slice_keys(self._keys, count, len(self._keys))
        self._first += count
        return part, taken

    def _fetch(self) -> None:
        """Begin to fetch what a merge reads some chunks later, if that is not done."""
        window = _CHUNKS_FETCHED * self._chunk_rows
        if self._fetched < min(self._last + window // 2, len(self._rowset)):
            first, self._fetched = self._fetched, min(self._fetched + window, len(self._rowset))
            # It may copy pages as they are stored.
            self._rowset.fetch(self._rowset.column_ids, [(first, self._fetched)], as_stored=True)


def merged_rows(rowsets: Sequence[DiskRowSet], chunk_rows: int) -> Iterator[MergedRows]:
    """Merge rowsets without common keys: yield all of their rows, with at most ``chunk_rows`` (a power of two) of each
    in memory."""
    streams = [_MergeStream(source, rowset, chunk_rows) for source, rowset in enumerate(rowsets)]
    waiting = sorted(streams, key=lambda stream: stream.first_key, reverse=True)
    running: list[_MergeStream] = []
    while True:
        running = [stream for stream in running if stream.open()]
        bound = min((stream.last_key for stream in running), default=None)
        if waiting and (bound is None or waiting[-1].first_key <= bound):
            running.append(waiting.pop())
        elif bound is None:
            return
        else:
            unmixed_rows = _unmixed_rows(running, waiting)
            yield replace(_merged([stream.take_until(bound) for stream in running]), unmixed_rows=unmixed_rows)


def _unmixed_rows(running: Sequence[_MergeStream], waiting: Sequence[_MergeStream]) -> int:
    """Return how many rows of the next stream come before those of any other."""
    first, *others = sorted(running, key=lambda stream: stream.next_key)
    keys = [others[0].next_key] if others else []
    return first.rows_below(min(keys + [stream.first_key for stream in waiting[-1:]], default=None))


def _merged(taken: Sequence[tuple[RowRange, KeyVector]]) -> MergedRows:
    filled = [(part, keys) for part, keys in taken if len(keys)]
    parts, keys = [part for part, _ in filled], [keys for _, keys in filled]
    if len(parts) == 1:
        return MergedRows(parts, None, keys[0])
    order = merge_order(keys)
    return MergedRows(parts, order, take_keys(concat_keys(keys), order))


@dataclass(frozen=True, slots=True)
class SharedKey:
    """A key that two of the rowsets to merge have, and its row in ``one``."""

    one: DiskRowSet
    row: int
    other: DiskRowSet


def shared_key(rowsets: Sequence[DiskRowSet]) -> SharedKey | None:
    """Return a key that is in two of the rowsets to merge; None if there is none."""
    near = _overlapping(rowsets)
    for rows in merged_rows(near, _COMPARED_ROWS_AT_ONCE):
        before, after = np.arange(len(rows) - 1), np.arange(1, len(rows))
        equal = equal_at(rows.keys, before, rows.keys, after) if len(rows.parts) > 1 else np.empty(0, np.bool_)
        if equal.any():
            first = int(np.flatnonzero(equal)[0])
            (one, row), (other, _) = (_source_of(rows, position) for position in (first, first + 1))
            return SharedKey(near[one], row, near[other])
    return None


def _overlapping(rowsets: Sequence[DiskRowSet]) -> list[DiskRowSet]:
    """Return those whose key ranges have keys in common with that of another."""
    shared: dict[DiskRowSet, None] = {}
    farthest: DiskRowSet | None = None
    for rowset in sorted(rowsets, key=lambda rowset: rowset.min_key):
        if farthest is not None and rowset.min_key <= farthest.max_key:
            shared |= {farthest: None, rowset: None}
        if farthest is None or rowset.max_key > farthest.max_key:
            farthest = rowset
    return list(shared)


def _source_of(rows: MergedRows, position: int) -> tuple[int, int]:
    """Return the number of the rowset that a row comes from, and its row number there."""
    for part, positions, numbers in rows.by_part():
        place = int(np.searchsorted(positions, position))
        if place < len(positions) and positions[place] == position:
            return part.source, int(numbers[place])
    raise AssertionError(f"no rowset has the merged row at position {position}")

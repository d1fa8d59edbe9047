"""Ordered scans: merge the rowsets of a tablet by encoded primary key, with a chunk or two of each in memory.

A DiskRowSet whose keys overlap no other is read without a merge, and without its keys. Overlapping rowsets are streams
of chunks in key order. In each round the bound is the smallest of the streams' last keys in memory: all rows up to it
are known. Large rounds are cut into pieces at keys that divide them evenly (`cut`). The pool computes the order of a
piece from its keys, while it reads the next chunks; then it merges the columns, several at once. A stream whose first
key is above the bound is not opened yet, so memory depends on how many rowsets overlap, not on how many there are. No
two streams share a key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import groupby

import pyarrow as pa

from ....schemas.protocol.service import Marked
from ....schemas.table.column import ColumnSchema
from ...rowset.memrowset import MemRowSet
from ...rowset.read_rows import empty_batch
from ...rowset.rowset import RowSet
from ...vectors.keys.keys import KeyEncoder, key_bytes
from ...vectors.places import Places
from .chunk import ScanRequest, chunks, fetched
from .clusters import Cluster, after, is_in_order, read_in_order
from .over_tablets import result, submit
from .runs import Head, KeyRun, RunReader, Span, batch_of, merged_column, merged_places, spans_by_batch

_BATCHES_AT_ONCE = 16
"""Batches that are merged as one and cut afterwards: then most of a decoded chunk is copied at once, while it is in the
cache, and merging many short runs costs more than it gains."""
_BATCH_BYTES = 8 << 20
"""The most bytes of a batch: a reader that may resume buffers the rows since the last mark."""
_MERGES_AHEAD = 1
"""The most merges, beside the one in progress, whose order is computed ahead."""


class _OrderedStream:
    """One rowset, read chunk by chunk."""

    def __init__(self, rowset: RowSet, first_key: bytes, reader: RunReader, pool: Executor, ahead: int) -> None:
        wanted = fetched(chunks(rowset, reader.request, reader.request.counts), reader.request)
        # A MemRowSet is in the order of arrival and fits in memory: it is one run.
        self._works = iter([tuple(wanted)]) if isinstance(rowset, MemRowSet) else ((chunk,) for chunk in wanted)
        self._next_work = next(self._works, None)
        self._read = reader.sorted_whole if isinstance(rowset, MemRowSet) else reader.in_order
        self._pool = pool
        self._ahead = ahead
        self._coming: deque[Future[KeyRun | None]] = deque()
        self.first_key = first_key
        """No key of the stream is below it."""
        self.head = Head()

    @property
    def is_read(self) -> bool:
        """Whether all chunks are read, so that the head has all remaining rows."""
        return self._next_work is None and not self._coming

    def begin(self) -> None:
        """Start reading the first chunk."""
        self._read_ahead(1)

    def fill(self) -> bool:
        """Read until the head has most of a chunk, or all remaining rows; return False if there are none."""
        while self.head.is_low and not self.is_read:
            self._read_ahead(1)
            run = result(self._coming.popleft())
            self._read_ahead(self._ahead)
            if run is not None:
                self.head.append(run)
        return bool(len(self.head))

    def cancel(self) -> None:
        """Cancel pending reads."""
        for future in self._coming:
            future.cancel()

    def _read_ahead(self, count: int) -> None:
        while self._next_work is not None and len(self._coming) < count:
            self._coming.append(submit(self._pool, self._read, self._next_work))
            self._next_work = next(self._works, None)


def scan_ordered(
    found: Sequence[Cluster],
    request: ScanRequest,
    key: tuple[ColumnSchema, ...],
    encoder: KeyEncoder,
    pool: Executor,
    ahead: int,
) -> Iterator[Marked]:
    """Yield the selected rows of all clusters ``found`` in key order, changes of one key in timestamp order, and the
    keys up to which they are complete.

    ``pool`` works on up to ``ahead`` batches ahead.
    """
    for is_alone, near in groupby(found, key=is_in_order):
        if is_alone:
            yield from read_in_order([rowset for ((_, rowset),) in near], request, pool, ahead)
        else:
            reader = RunReader(request, key, encoder)
            for cluster in near:
                yield from _merged(cluster, reader, pool, ahead)


def _merged(cluster: Cluster, reader: RunReader, pool: Executor, ahead: int) -> Iterator[Marked]:
    # With many streams, one chunk ahead for each is enough; one pool reads them all.
    each = min(ahead, max(1, ahead // len(cluster)))
    streams = [_OrderedStream(rowset, least, reader, pool, each) for (least, _), rowset in cluster]
    merging: deque[_Merge] = deque()
    try:
        for spans, batch_rows in _rounds(streams):
            merging.append(_Merge(spans, batch_rows, reader.request.schema, pool))
            if len(merging) > (ahead if merging[0].is_single else min(ahead, _MERGES_AHEAD)):
                yield from merging.popleft().batches()
        while merging:
            yield from merging.popleft().batches()
    finally:
        for merge in merging:
            merge.cancel()
        for stream in streams:
            stream.cancel()


class _Merge:
    """The merge of some spans: first the order of their rows, then each column by itself."""

    def __init__(self, spans: list[Span], batch_rows: int, schema: pa.Schema, pool: Executor) -> None:
        """Start the merge in the pool."""
        self._spans = spans
        self._batch_rows = batch_rows
        self._schema = schema
        self._pool = pool
        self._whole: Future[pa.RecordBatch] | None = None
        self._places: Future[Places] | None = None
        if not len(schema):
            return
        if self.is_single:
            self._whole = submit(pool, batch_of, spans[0], schema)
        else:
            self._places = submit(pool, merged_places, spans)

    @property
    def is_single(self) -> bool:
        """Whether there is nothing to merge."""
        return len(self._spans) == 1

    def batches(self) -> Iterator[Marked]:
        """Yield the rows in batches, the last perhaps short, each with the key up to which rows are complete."""
        rows = sum(map(len, self._spans))
        batch = self._result(rows)
        step = max(min(self._batch_rows, _BATCH_BYTES * rows // max(batch.nbytes, 1)), 1)
        for first in range(0, rows, step):
            yield Marked(batch.slice(first, step), self._key_after(min(first + step, rows), rows))

    def _key_after(self, end: int, rows: int) -> bytes | None:
        """Return the least key above the first ``end`` rows; None if the next row has the same key, or if no key is at
        hand."""
        if end == rows:
            return after(max(span.last_key for span in self._spans))
        last = self._key_of(end - 1)
        return None if last is None or last == self._key_of(end) else after(last)

    def _key_of(self, row: int) -> bytes | None:
        """Return the key of a merged row; None for rows without columns, which are not ordered."""
        if self.is_single:
            span, at = self._spans[0], row
        elif self._places:
            places = result(self._places)
            place = int(places.words[row]) & (1 << places.place_bits) - 1
            span, at = self._spans[place >> places.row_bits], place & (1 << places.row_bits) - 1
        else:
            return None
        return key_bytes(span.run.keys, span.first + at)

    def cancel(self) -> None:
        """Cancel pending work."""
        for future in (self._whole, self._places):
            if future:
                future.cancel()

    def _result(self, rows: int) -> pa.RecordBatch:
        if self._whole:
            return result(self._whole)
        return self._in_order(result(self._places)) if self._places else empty_batch(rows)

    def _in_order(self, places: Places) -> pa.RecordBatch:
        types = enumerate(self._schema.types)
        columns = [submit(self._pool, merged_column, self._spans, number, places, kind) for number, kind in types]
        try:
            return pa.RecordBatch.from_arrays([result(column) for column in columns], schema=self._schema)
        finally:
            for column in columns:
                column.cancel()


def _rounds(streams: list[_OrderedStream]) -> Iterator[tuple[list[Span], int]]:
    """Yield the spans of some batches, with all rows above the previous ones up to some key, and the rows per batch."""
    waiting = sorted(streams, key=lambda stream: stream.first_key, reverse=True)
    running: list[_OrderedStream] = []
    while waiting or running:
        running = [stream for stream in running if stream.fill()]
        bound = _bound(running)
        if waiting and (bound is None or waiting[-1].first_key <= bound):
            # Start reading all streams that are due at once.
            due = waiting[-1].first_key if bound is None else bound
            while waiting and waiting[-1].first_key <= due:
                waiting[-1].begin()
                running.append(waiting.pop())
        elif bound is not None:
            yield from _batches([stream.head for stream in running], bound)


def _bound(running: list[_OrderedStream]) -> bytes | None:
    """Return the key up to which all rows are known; None if no stream is running."""
    unfinished = [stream.head.last_key for stream in running if not stream.is_read]
    return min(unfinished) if unfinished else max((stream.head.last_key for stream in running), default=None)


def _batches(heads: list[Head], bound: bytes) -> Iterator[tuple[list[Span], int]]:
    """Take the rows up to ``bound`` from the heads, in parts."""
    spans = [span for head in heads for span in head.take_until(bound)]
    batch_rows = max(head.chunk_rows for head in heads)
    for parts in spans_by_batch(spans, _BATCHES_AT_ONCE * batch_rows):
        yield parts, batch_rows

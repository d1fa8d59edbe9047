"""Ordered scans: merge the rowsets of a tablet by encoded primary key, with one chunk of each in memory.

Every rowset is a stream of chunks in key order. In each round the smallest of the streams' last keys in memory is the
bound: all rows up to it are known, whichever stream they come from; they are merged and put out, and the streams that
are used up read their next chunk. A stream whose first key lies above the bound is not opened yet, so that memory
goes with how many rowsets overlap, not with how many there are. No two streams share a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ...schemas.column import ColumnSchema
from ..rowset.diskrowset import DiskRowSet
from ..rowset.memrowset import MemRowSet
from ..rowset.rowset import RowSet
from ..vectors.arrow import from_arrow
from ..vectors.keys import (
    KeyEncoder,
    KeyVector,
    argsort_keys,
    equal_at,
    key_bytes,
    keys_less_equal,
    merge_order,
    slice_keys,
    take_keys,
)
from ..vectors.physical import physical_of
from .chunk import Chunk, PruneCount, ScanRequest, chunks
from .read import read_chunk


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Rows in key order with their keys."""

    keys: KeyVector
    rows: pa.RecordBatch

    @property
    def last_key(self) -> bytes:
        return key_bytes(self.keys, len(self.keys) - 1)

    def slice(self, first: int, last: int) -> _Run:
        return _Run(slice_keys(self.keys, first, last), self.rows.slice(first, last - first))


class _Stream:
    """One rowset, read chunk by chunk."""

    def __init__(self, runs: Iterator[_Run], first_key: bytes | None) -> None:
        self._runs = runs
        self.first_key = first_key
        """No key of the stream is below it; None when nothing is known."""
        self.head: _Run | None = None

    def open(self) -> bool:
        """Make sure that there is a head; False when the stream is used up."""
        while self.head is None or not len(self.head.keys):
            self.head = next(self._runs, None)
            if self.head is None:
                return False
        return True

    def take_until(self, bound: bytes) -> _Run | None:
        """Remove and return the rows with keys up to ``bound``."""
        assert self.head is not None, "an open stream has a head"
        total = len(self.head.keys)
        count = int(np.count_nonzero(keys_less_equal(self.head.keys, bound)))
        taken, self.head = self.head.slice(0, count), self.head.slice(count, total)
        return taken if count else None


def scan_ordered(
    rowsets: Sequence[RowSet], request: ScanRequest, key: tuple[ColumnSchema, ...], encoder: KeyEncoder
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of all ``rowsets`` in key order, changes of one key in the order of their timestamps."""
    columns = {column.id: column for column in (*request.columns, *key)}
    wider = replace(request, columns=tuple(columns.values()))
    streams = [_stream(rowset, wider, key, encoder) for rowset in rowsets]
    names = request.schema.names
    for rows in _merge(streams):
        yield rows.select(names)


def _merge(streams: list[_Stream]) -> Iterator[pa.RecordBatch]:
    waiting = sorted(streams, key=lambda stream: stream.first_key or b"", reverse=True)
    running: list[_Stream] = []
    while waiting or running:
        running = [stream for stream in running if stream.open()]
        bound = min((stream.head.last_key for stream in running if stream.head), default=None)
        if waiting and (bound is None or (waiting[-1].first_key or b"") <= bound):
            running.append(waiting.pop())
            continue
        if bound is None:
            return
        parts = [part for stream in running if (part := stream.take_until(bound))]
        yield _merged(parts)


def _merged(parts: list[_Run]) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0].rows
    sources, rows = merge_order([part.keys for part in parts])
    starts = np.cumsum([0] + [len(part.keys) for part in parts[:-1]])
    return pa.concat_batches([part.rows for part in parts]).take(pa.array(starts[sources] + rows))


def _stream(rowset: RowSet, request: ScanRequest, key: tuple[ColumnSchema, ...], encoder: KeyEncoder) -> _Stream:
    wanted = chunks(rowset, request, PruneCount())
    if isinstance(rowset, MemRowSet):
        return _Stream(_sorted_whole(list(wanted), request, key, encoder), None)
    assert isinstance(rowset, DiskRowSet)
    return _Stream(_in_order(wanted, request, key, encoder), rowset.min_key)


def _in_order(
    wanted: Iterator[Chunk], request: ScanRequest, key: tuple[ColumnSchema, ...], encoder: KeyEncoder
) -> Iterator[_Run]:
    for chunk in wanted:
        if (rows := read_chunk(chunk, request)) is not None:
            yield _Run(_keys(rows, key, encoder), rows)


def _sorted_whole(
    wanted: list[Chunk], request: ScanRequest, key: tuple[ColumnSchema, ...], encoder: KeyEncoder
) -> Iterator[_Run]:
    """Yield the rows of a MemRowSet, which stand in the order of arrival and fit in memory as they are."""
    batches = [rows for chunk in wanted if (rows := read_chunk(chunk, request)) is not None]
    if not batches:
        return
    rows = pa.concat_batches(batches)
    keys = _keys(rows, key, encoder)
    order = _stable(keys, argsort_keys(keys)) if request.changes else argsort_keys(keys)
    yield _Run(take_keys(keys, order), rows.take(pa.array(order)))


def _stable(keys: KeyVector, order: np.ndarray) -> np.ndarray:
    """Bring the rows of one key, which stand together in ``order``, back into the order in which they came."""
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = ~equal_at(keys, order[1:], keys, order[:-1])
    return order[np.lexsort((order, np.cumsum(is_new)))]


def _keys(rows: pa.RecordBatch, key: tuple[ColumnSchema, ...], encoder: KeyEncoder) -> KeyVector:
    return encoder.encode([from_arrow(rows.column(column.name), physical_of(column.logical.arrow)) for column in key])

"""Groups rows to write into commits: large enough to be cheap, small enough to be pipelined.

Rows in key order may make larger commits: a store writes a large batch of new rows in that order straight to disk, past
its log and memory. Such a commit has no more bytes than all before it together. So the first answer comes soon, a small
load has ordinary commits, and a large one soon has large commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ...schemas.rows.batches import in_one
from .key_order import KeyOrder

COMMIT_ROWS = 65_536
COMMIT_BYTES = 8 * 1024 * 1024
ORDERED_COMMIT_BYTES = 32 * 1024 * 1024
"""Of rows in key order: measured by ``bench/engine/direct_load.py``."""


def in_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a user gave in slices of at most about one commit; skip empty ones."""
    for batch in batches:
        fitting = batch.num_rows * COMMIT_BYTES // max(batch.nbytes, 1)
        step = max(1, min(COMMIT_ROWS, fitting))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def in_batches(pieces: Iterable[pa.RecordBatch], order: KeyOrder | None = None) -> Iterator[pa.RecordBatch]:
    """Merge small slices of a user's rows into batches; none exceeds a commit unless a slice does.

    With an ``order``, slices that continue each other in it make larger batches.
    """
    waiting = _Waiting()
    sent = 0
    for piece in pieces:
        ascends, follows = order.place(piece) if order else (False, False)
        if waiting.pieces and not waiting.has_room(piece, follows, min(sent, ORDERED_COMMIT_BYTES)):
            yield in_one(waiting.pieces)
            sent += waiting.size
            waiting = _Waiting()
        waiting.add(piece, follows if waiting.pieces else ascends)
    if waiting.pieces:
        yield in_one(waiting.pieces)


class _Waiting:
    """The pieces of the next commit."""

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.rows = self.size = 0
        self._ascends = True

    def add(self, piece: pa.RecordBatch, ascends: bool) -> None:
        self.pieces.append(piece)
        self.rows += piece.num_rows
        self.size += piece.nbytes
        self._ascends &= ascends

    def has_room(self, piece: pa.RecordBatch, follows: bool, ordered_bytes: int) -> bool:
        size = self.size + piece.nbytes
        if self.rows + piece.num_rows <= COMMIT_ROWS and size <= COMMIT_BYTES:
            return True
        return self._ascends and follows and size <= ordered_bytes


def in_one_batch(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows that a user gave as one batch, or nothing if there are none."""
    if together := list(pieces):
        yield in_one(together)

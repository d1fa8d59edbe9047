"""Cuts what is to be written into commits: large enough to be cheap, small enough to be pipelined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

COMMIT_ROWS = 65_536
COMMIT_BYTES = 8 * 1024 * 1024


def in_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces none of which is much larger than a commit; without those that are empty."""
    for batch in batches:
        fitting = batch.num_rows * COMMIT_BYTES // max(batch.nbytes, 1)
        step = max(1, min(COMMIT_ROWS, fitting))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


def in_batches(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the pieces, small ones put together, none above the size of a commit unless it came so."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for piece in pieces:
        if waiting and (rows + piece.num_rows > COMMIT_ROWS or size + piece.nbytes > COMMIT_BYTES):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def in_one_batch(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows as one batch, nothing if there are none."""
    if together := list(pieces):
        yield pa.concat_batches(together)

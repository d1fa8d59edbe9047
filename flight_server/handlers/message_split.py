"""Splits a stream of record batches into messages of similar size.

They are neither too large (some clients reject 4 MiB) nor too small (each costs a call). They are measured in bytes,
since rows have any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ...schemas.rows.batches import in_one
from ..settings.config import ServerConfig


def cut(batches: Iterable[pa.RecordBatch], config: ServerConfig) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an answer to a client in messages, batches of about ``sent_bytes_target``.

    No batch of several rows exceeds ``sent_bytes_max``. All have at least ``sent_bytes_min``, except the first, which
    is sent at once, the last, and those that the next batch would make too large. Empty batches are left out.
    """
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    is_first = True
    for piece in _pieces(batches, config):
        size = piece.nbytes
        if waiting and waiting_bytes + size > config.sent_bytes_max:
            yield in_one(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(piece)
        waiting_bytes += size
        if is_first or waiting_bytes >= config.sent_bytes_min or not piece.num_columns:
            yield in_one(waiting)
            waiting, waiting_bytes, is_first = [], 0, False
    if waiting:
        yield in_one(waiting)


def _pieces(batches: Iterable[pa.RecordBatch], config: ServerConfig) -> Iterator[pa.RecordBatch]:
    """Yield slices of the batches; none of several rows exceeds the maximum."""
    for batch in batches:
        if batch.nbytes <= config.sent_bytes_max:
            if batch.num_rows:
                yield batch
            continue
        rows = max(1, batch.num_rows * config.sent_bytes_target // batch.nbytes)
        for start in range(0, batch.num_rows, rows):
            yield from _halved(batch.slice(start, rows), config.sent_bytes_max)


def _halved(piece: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Halve a piece repeatedly, if its rows are larger than the batch's average."""
    if piece.num_rows <= 1 or piece.nbytes <= bytes_max:
        yield piece
        return
    middle = piece.num_rows // 2
    yield from _halved(piece.slice(0, middle), bytes_max)
    yield from _halved(piece.slice(middle), bytes_max)

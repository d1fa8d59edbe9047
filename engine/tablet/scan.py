"""Scan a tablet at a snapshot: its version is pinned, pruned, and read chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future

import pyarrow as pa

from ...schemas.errors import UnavailableError
from .chunk import Chunk, PruneCount, ScanRequest, chunks
from .read import read_chunk
from .version import Version

_CLOSED = "the store was closed while it was scanned"


def scan_unordered(version: Version, request: ScanRequest, pool: Executor, ahead: int) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows, rowset by rowset; ``ahead`` chunks are read by ``pool`` before they are asked for."""
    count = PruneCount()
    wanted = (chunk for rowset in version.rowsets() for chunk in chunks(rowset, request, count))
    yield from _read_ahead(wanted, request, pool, ahead)


def prune(version: Version, request: ScanRequest) -> PruneCount:
    """Count what a scan would read, without reading it."""
    count = PruneCount()
    for rowset in version.rowsets():
        for _ in chunks(rowset, request, count):
            pass
    return count


def _read_ahead(wanted: Iterator[Chunk], request: ScanRequest, pool: Executor, ahead: int) -> Iterator[pa.RecordBatch]:
    """Read chunks in order, several at once. Kernels release the GIL, so plain threads share the work."""
    running: list[Future[pa.RecordBatch | None]] = []
    try:
        for chunk in wanted:
            running.append(_submit(pool, chunk, request))
            if len(running) > ahead and (batch := _result(running.pop(0))) is not None:
                yield batch
        while running:
            if (batch := _result(running.pop(0))) is not None:
                yield batch
    finally:
        for future in running:
            future.cancel()


def _submit(pool: Executor, chunk: Chunk, request: ScanRequest) -> Future[pa.RecordBatch | None]:
    try:
        return pool.submit(read_chunk, chunk, request)
    except RuntimeError:
        raise UnavailableError(_CLOSED) from None


def _result(future: Future[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    try:
        return future.result()
    except CancelledError:
        raise UnavailableError(_CLOSED) from None

"""Scans tablets at a snapshot: pins their versions, prunes, and reads chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from functools import partial
from typing import TypeVar

import pyarrow as pa

from ....schemas.errors import UnavailableError
from ....schemas.protocol.request import carried, check
from ...aggregate.plan import AggregatePlan
from ...aggregate.slot_pool import SlotPool
from ...tablet.version import Version
from .aggregate import Tally, aggregate_chunk, known_partial
from .chunk import Chunk, ScanRequest, chunks, fetched, in_runs
from .read_chunk import read_chunk

Result = TypeVar("Result")

_CLOSED = "the store was closed during the scan"


def scan_unordered(
    versions: Sequence[Version], request: ScanRequest, pool: Executor, ahead: int
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows, tablet by tablet and rowset by rowset; ``pool`` reads ``ahead`` chunks ahead."""
    wanted = (chunk for version in versions for chunk in _wanted(version, request))
    yield from read_ahead(fetched(wanted, request), partial(read_chunk, request=request), pool, ahead)


def aggregate(
    version: Version, request: ScanRequest, plan: AggregatePlan, pool: Executor, ahead: int
) -> Iterator[pa.Table]:
    """Aggregate a tablet in chunks: yield partial answers, first those that need no reading."""
    unknown: list[Chunk] = []
    takes_all = request.where is None and not request.is_split
    for rowset in version.rowsets():
        whole = Chunk(rowset, 0, rowset.row_count(request.snapshot))
        if takes_all and whole.last and (known := known_partial(whole, request, plan)) is not None:
            yield known
            continue
        for chunk in chunks(rowset, request, request.counts):
            if (known := known_partial(chunk, request, plan)) is not None:
                yield known
            else:
                unknown.append(chunk)
    slots = SlotPool(plan)
    work = partial(aggregate_chunk, request=request, pool=slots, tally=Tally())
    runs = in_runs(unknown, request, max(ahead // 2, 1))
    yield from read_ahead(fetched(runs, request), work, pool, ahead)
    yield from slots.partials()


def _wanted(version: Version, request: ScanRequest) -> Iterator[Chunk]:
    return (chunk for rowset in version.rowsets() for chunk in chunks(rowset, request, request.counts))


def read_ahead(
    wanted: Iterator[Chunk], read: Callable[[Chunk], Result | None], pool: Executor, ahead: int
) -> Iterator[Result]:
    """Read the chunks of a scan in order, ``ahead`` of them ahead if the pool has threads."""
    running: list[Future[Result | None]] = []
    try:
        for chunk in wanted:
            running.append(submit(pool, read, chunk))
            if len(running) > ahead and (found := result(running.pop(0))) is not None:
                yield found
        while running:
            if (found := result(running.pop(0))) is not None:
                yield found
    finally:
        for future in running:
            future.cancel()


def submit(pool: Executor, work: Callable[..., Result], *arguments: object) -> Future[Result]:
    """Submit a part of a scan. Raises UnavailableError if the store was closed, or the client is gone."""
    check()
    try:
        return pool.submit(carried(work), *arguments)
    except RuntimeError:
        raise UnavailableError(_CLOSED) from None


def result(future: Future[Result]) -> Result:
    """Wait for a submitted part of a scan. Raises UnavailableError if the store was closed before it began."""
    try:
        return future.result()
    except CancelledError:
        raise UnavailableError(_CLOSED) from None

"""Marked scans: rows in the cheapest order that lets a disconnected reader resume.

Between the break and the next attempt rows move: memory is flushed, rowsets are merged, the server may restart. The
snapshot and the keys stay the same. So a resumable scan reports from time to time a key below which all rows have come,
and none above.

A DiskRowSet that overlaps no other gives such a key after every chunk, at no cost, since its rows are in key order.
Overlapping rowsets are read one after the other, but in bands: ranges of keys with about ``BAND_BYTES`` of rows each.
The reader buffers the rows of the current band until it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import groupby

from ....schemas.protocol.service import Marked
from ...filter.prune import KeyRange
from ...rowset.rowset import RowSet
from .chunk import ScanRequest, chunks, fetched
from .clusters import Cluster, after, clusters, is_in_order, read_in_order
from .over_tablets import read_ahead
from .read_chunk import read_chunk
from .split import split_rowsets

BAND_BYTES = 64 << 20
"""About how many bytes of selected rows. Larger bands cost readers memory, smaller ones cut rowsets into short runs."""


def scan_marked(rowsets: Sequence[RowSet], request: ScanRequest, pool: Executor, ahead: int) -> Iterator[Marked]:
    """Yield the selected rows of all ``rowsets``, and from time to time the key below which they are complete.

    ``pool`` reads ``ahead`` chunks ahead.
    """
    for is_alone, near in groupby(clusters(rowsets, request), key=is_in_order):
        if is_alone:
            yield from read_in_order([rowset for ((_, rowset),) in near], request, pool, ahead)
        else:
            for cluster in near:
                yield from _in_bands(cluster, request, pool, ahead)


def _in_bands(cluster: Cluster, request: ScanRequest, pool: Executor, ahead: int) -> Iterator[Marked]:
    """Read the rowsets of a cluster band by band; several bands at once if a filter leaves few rows."""
    rowsets = [rowset for _, rowset in cluster]
    bands = [band.keys for band in split_rowsets(rowsets, request, BAND_BYTES // 2)[0]]
    at, step = 0, 1
    while at < len(bands):
        keys = KeyRange(bands[at].lower, bands[min(at + step, len(bands)) - 1].upper)
        is_last = at + step >= len(bands)
        narrowed = request if len(bands) == 1 else replace(request, keys=keys, is_split=True)
        wanted = (chunk for rowset in rowsets for chunk in chunks(rowset, narrowed, narrowed.counts))
        size = 0
        for batch in read_ahead(fetched(wanted, narrowed), partial(read_chunk, request=narrowed), pool, ahead):
            size += batch.nbytes
            yield Marked(batch, None)
        yield Marked(None, after(_greatest(cluster)) if is_last or keys.upper is None else keys.upper)
        at, step = at + step, max(min(2 * step, BAND_BYTES * step // max(size, 1)), 1)


def _greatest(cluster: Cluster) -> bytes:
    return max(greatest for (_, greatest), _ in cluster)

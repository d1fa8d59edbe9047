"""Clusters: the rowsets of a scan, grouped by overlapping keys. One that overlaps no other is read without a merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor

from ....schemas.protocol.service import Marked
from ...codecs.codec import BLOCK_ROWS
from ...rowset.diskrowset import DiskRowSet
from ...rowset.rowset import RowSet
from ...vectors.keys.key_bounds import KeyBounds, overlapping
from .chunk import Chunk, ScanRequest, chunks, fetched
from .over_tablets import read_ahead
from .read_chunk import read_chunk

Cluster = list[tuple[KeyBounds, RowSet]]
"""Rowsets with overlapping keys, each with its bounds, in the order of their least keys."""


def clusters(rowsets: Iterable[RowSet], request: ScanRequest) -> list[Cluster]:
    """Return the rowsets that may have rows of the scan in clusters that do not overlap, in key order."""
    bounds: list[KeyBounds] = []
    wanted: list[RowSet] = []
    for rowset in rowsets:
        first, last = rowset.row_range(request.keys.lower, request.keys.upper)
        if first < last and (known := rowset.key_bounds(request.snapshot)):
            bounds.append(known)
            wanted.append(rowset)
    return [[(bounds[number], wanted[number]) for number in cluster] for cluster in overlapping(bounds)]


def is_in_order(cluster: Cluster) -> bool:
    """Whether the rows of a cluster of a scan's rowsets are in key order without a merge."""
    return len(cluster) == 1 and isinstance(cluster[0][1], DiskRowSet)


def read_in_order(rowsets: Sequence[RowSet], request: ScanRequest, pool: Executor, ahead: int) -> Iterator[Marked]:
    """Yield the selected rows of DiskRowSets with ascending key ranges, and after most chunks the key where the next
    begins; ``pool`` reads ``ahead`` chunks ahead."""

    def read(chunk: Chunk) -> Marked:
        return Marked(read_chunk(chunk, request), _key_after(chunk))

    wanted = (chunk for rowset in rowsets for chunk in chunks(rowset, request, request.counts))
    return read_ahead(fetched(wanted, request), read, pool, ahead)


def after(key: bytes) -> bytes:
    """Return the least key above ``key``, from which a scan goes on."""
    return key + b"\0"


def _key_after(chunk: Chunk) -> bytes | None:
    """Return a key above all rows up to the end of a chunk and not above later ones; None if none is at hand."""
    rowset = chunk.rowset
    assert isinstance(rowset, DiskRowSet), "a rowset in key order"
    if chunk.last == len(rowset):
        return after(rowset.max_key)
    return None if chunk.last % BLOCK_ROWS else rowset.first_key(chunk.last // BLOCK_ROWS)
